"""`aircomp layers`: what trained layers come with the package."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from aircomp.cli.common import parse, print_table

SNR_DB = (0.0, 5.0, 10.0)
OTHERS = ("blind-net", "joint-net", "learned-analog")
"""What else was trained: the schemes of these names use it."""
FRAGMENT = 20
"""Parameters of a fragment in the paper."""


@dataclass(frozen=True)
class Options:
    """List the trained layers of the package: their sizes, the numbers of devices they know, and how well they count.

    The count accuracy is that of rounds held out in training, with ten devices and the `slot` SNR. Take a layer by its name
    (`--uplink.layer 128x32` with `--uplink.quantize.num-codewords 128`), or set the sizes, and the layer follows.

    Examples:
      aircomp layers
      aircomp layers --uses-per-parameter 1.6
      aircomp simulate digits --uplink gamp-net --uplink.codeword-length 32
    """

    uses_per_parameter: float | None = None
    """A budget of real channel uses: print the layer that fits it best."""
    fragment_length: int = FRAGMENT
    """Parameters of a fragment, which one codeword stands for."""
    out: Path | None = None
    """Directory for result.json; nothing is written without it."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace the result in --out."""


def run(args: Sequence[str]) -> None:
    """Parse, list, print."""
    options = parse(Options, args, "layers")
    # only now: they import torch, and a mistake is told without it
    from aircomp.common import results
    from aircomp.common.outdir import open_directory
    from aircomp.layer.zoo import CELL, PAPER, layer_names, pick_layer
    from aircomp.measure.fields import columns_of

    names = [PAPER, CELL, *layer_names()]
    if options.uses_per_parameter is not None:
        names = [pick_layer(options.uses_per_parameter, fragment_length=options.fragment_length)]
    rows = [_row(name, options.fragment_length) for name in names]
    if options.out is not None:
        config = {"uses_per_parameter": options.uses_per_parameter, "fragment_length": options.fragment_length}
        with open_directory(options.out, "layers", overwrite=options.overwrite):
            results.write_result(options.out / "result.json", "layers", config, 0, rows)
    print_table(f"layers of the package, fragments of {options.fragment_length} parameters", rows, columns_of(rows[0]))
    if options.uses_per_parameter is None:
        print(f"trained as well: the schemes {', '.join(OTHERS)} bring theirs and need no --layer")


def _row(name: str, fragment_length: int) -> dict[str, Any]:
    from aircomp.layer.communication import CommunicationLayer

    layer = CommunicationLayer.load(name)
    codewords, uses = layer.codebook.shape
    low, high = layer.num_active_range or (None, None)
    row: dict[str, Any] = {
        "layer": name,
        "form": layer.form,
        "num_codewords": codewords,
        "codeword_length": uses,
        "channel_uses_per_parameter": uses / fragment_length,
        "fewest_devices": low,
        "most_devices": high,
        "num_weights": sum(weight.numel() for weight in layer.net.parameters()),
    }
    tested = {test["snr_db"]: test["count_accuracy"] for test in layer.training.get("test", [])}
    return row | {f"count_accuracy_{snr_db:g}db": tested.get(snr_db) for snr_db in SNR_DB}
