"""The layers that come with the package: a directory each under `weights`.

    paper    the paper's: its network as published, 128 codewords of 64 real channel uses
    128x64   ours, named by its sizes: 128 codewords of 64 real channel uses
    cell     ours of the same sizes, for the paper's cell alone: 7 to 13 devices, the `slot` SNR

A link asks for the layer of its own sizes (`layer_for`). Who has a budget and no sizes yet asks `pick_layer`.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from aircomp.common.checks import check_number
from aircomp.errors import ArtefactError, ConfigError

DEFAULT, PAPER, CELL = "128x64", "paper", "cell"
"""All of the paper's sizes."""
_NAME = re.compile(r"(\d+)x(\d+)")


def layer_names() -> list[str]:
    """Return the names of our layers, shortest codewords first.

    >>> "128x64" in layer_names()
    True
    """
    found = [entry.name for entry in _weights().iterdir() if _NAME.fullmatch(entry.name)]
    return sorted(found, key=lambda name: layer_sizes(name)[::-1])


def is_name(given: str | Path) -> bool:
    """Tell whether a layer of the package is meant: its name alone, whatever lies in the working directory.

    >>> is_name("128x64"), is_name("./128x64")
    (True, False)
    """
    return str(given) in [*layer_names(), DEFAULT, PAPER, CELL]


def layer_sizes(name: str) -> tuple[int, int]:
    """Return number and length of a layer's codewords by its name."""
    found = _NAME.fullmatch(name)
    if not found:
        raise ConfigError(f"{name!r} names no sizes; expected one of {', '.join(layer_names())}")
    return int(found[1]), int(found[2])


@contextmanager
def bundled(name: str) -> Iterator[Path]:
    """Give the directory of a layer of the package.

    Raises:
        ArtefactError: If the package carries none of this name.
    """
    with resources.as_file(_weights() / name) as directory:
        if not (directory / "layer.json").is_file():
            raise ArtefactError(
                f"this build of aircomp carries no layer {name}; train one with aircomp pretrain and give its directory"
            )
        yield directory


def layer_for(num_codewords: int, codeword_length: int) -> str:
    """Return the name of the package's layer of these sizes.

    Raises:
        ConfigError: If there is none, naming those that there are.
    """
    name = f"{num_codewords}x{codeword_length}"
    if name not in layer_names():
        raise ConfigError(
            f"the package has no layer for {num_codewords} codewords of {codeword_length} channel uses; take the sizes "
            f"of one that it has ({', '.join(layer_names())}), or train one with aircomp pretrain and name its directory"
        )
    return name


def pick_layer(uses_per_parameter: float, *, fragment_length: int = 20) -> str:
    """Return the layer that fits a budget of channel uses: the longest codewords, and of those the most.

    Args:
        uses_per_parameter: Real channel uses that may be spent on a parameter; 3.2 in the paper.
        fragment_length: Parameters of a fragment, each of which takes one codeword.

    Raises:
        ConfigError: If even the shortest codewords are too long.

    >>> pick_layer(1.6)
    '128x32'
    """
    check_number("uses_per_parameter", uses_per_parameter, low=0, open_low=True)
    check_number("fragment_length", fragment_length, low=1, integer=True)
    fitting = [name for name in layer_names() if layer_sizes(name)[1] <= uses_per_parameter * fragment_length]
    if not fitting:
        least = layer_sizes(layer_names()[0])[1] / fragment_length
        raise ConfigError(
            f"uses_per_parameter = {uses_per_parameter:g} is less than any layer takes with fragments of {fragment_length} "
            f"parameters; expected at least {least:g}, or longer fragments"
        )
    return fitting[-1]


def _weights():
    return resources.files("aircomp") / "weights"
