"""Training the layers that come with the package: `aircomp pretrain FRAGMENTS… --preset zoo`.

One recipe and one collection for all sizes; the rounds are quantised anew where a layer has another number of codewords.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from aircomp.common.checks import check_path
from aircomp.layer.communication import CommunicationLayer
from aircomp.train.fit import pretrain
from aircomp.train.loop import Record
from aircomp.train.recipe import PretrainSettings

PRESET = "zoo"
SIZES = ((64, 32), (128, 32), (128, 64), (256, 64), (256, 128))
"""Number and length of the codewords of each."""


def pretrain_zoo(
    directories: Sequence[str | Path],
    settings: PretrainSettings,
    out: str | Path,
    *,
    on_epoch: Callable[[str, Record], None] | None = None,
    **options: Any,
) -> dict[str, CommunicationLayer]:
    """Train a layer of each of `SIZES` into `out/NAME`; return them by name.

    Args:
        directories: Fragments directories with raw fragments.
        settings: The recipe; its sizes are replaced.
        out: Where the layer directories lie.
        on_epoch: Called with the name of the layer and each epoch's record.
        **options: Those of `aircomp.train.fit.pretrain`.
    """
    check_path("out", out)
    found = {}
    for codewords, uses in SIZES:
        name = f"{codewords}x{uses}"
        sized = settings.changed(**{"codeword_length": uses, "data.num_codewords": codewords})
        show = None if on_epoch is None else _named(on_epoch, name)
        found[name] = pretrain(directories, sized, Path(out) / name, on_epoch=show, **options)
    return found


def _named(on_epoch: Callable[[str, Record], None], name: str) -> Callable[[Record], None]:
    return lambda record: on_epoch(name, record)
