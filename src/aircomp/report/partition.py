"""The picture of who holds what: a heat-map of classes, one row a holder."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.common.artefact import write_atomically
from aircomp.data.partition import Partition
from aircomp.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FORMATS = ("png", "svg", "pdf")


def draw_partition(
    partition: Partition, labels: Int[Tensor, " dataset"], class_names: Sequence[str], path: Path
) -> Path:
    """Draw each holder's share of every class, the base station on top, and return `path`.

    Colours are shares of the holder's own samples, light to dark of one hue, which is safe for colour-blind readers.
    Up to 50 devices and 20 classes, the cells also show the number of samples.

    Args:
        partition: Who holds which samples.
        labels: The class of every training sample.
        class_names: Names of the classes 0, 1, …
        path: File to write; its ending says the format (png, svg or pdf).

    Raises:
        ConfigError: If the ending is none of these.
    """
    kind = path.suffix.removeprefix(".").lower()
    if kind not in _FORMATS:
        raise ConfigError(f"cannot draw {path.name}: expected a name that ends in .png, .svg or .pdf")
    from matplotlib.figure import Figure

    counts = partition.class_counts(labels, len(class_names)).cpu()
    shares = counts / counts.sum(dim=1, keepdim=True)
    num_devices = len(counts) - 1
    height = 2.2 + min(0.19 * num_devices, 12.0)
    figure = Figure(figsize=(3.2 + min(max(0.55 * len(class_names), 3.0), 9.0), height), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(_with_gap(shares).numpy(), aspect="auto", interpolation="nearest", cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, ax=axes, label="share of the holder's samples", fraction=0.05)
    if num_devices <= 50 and len(class_names) <= 20:
        _write_counts(axes, counts, shares)
    _label_axes(axes, num_devices, class_names)
    sizes = sorted(len(rows) for rows in partition.devices)
    span = f"{sizes[0]} samples each" if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]} samples"
    axes.set_title(f"{num_devices} devices of {span}", fontsize=10)
    write_atomically(path, lambda temporary: figure.savefig(temporary, format=kind, dpi=150))
    return path


def _gap(num_devices: int) -> int:
    """Return the rows left empty below the base station's, which is drawn as thick so that it shows among many."""
    return 1 + num_devices // 100


def _with_gap(shares: Float[Tensor, "holders classes"]) -> Float[Tensor, "rows classes"]:
    """Repeat the base station's row to a visible thickness and leave as much empty (NaN) below it."""
    rows = _gap(len(shares) - 1)
    top = shares[:1].expand(rows, -1)
    return torch.cat([top, torch.full_like(top, torch.nan), shares[1:]])


def _write_counts(
    axes: "Axes", counts: Int[Tensor, "holders classes"], shares: Float[Tensor, "holders classes"]
) -> None:
    first_device = 2 * _gap(len(counts) - 1)
    for holder, column in counts.nonzero().tolist():
        row = 0 if holder == 0 else first_device + holder - 1
        colour = "white" if shares[holder, column] > 0.5 else "black"
        text = str(int(counts[holder, column]))
        axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=6)


def _label_axes(axes: "Axes", num_devices: int, class_names: Sequence[str]) -> None:
    rows = _gap(num_devices)
    step = 10 ** max(0, math.ceil(math.log10(num_devices / 50)))  # at most 50 of them are named
    devices = range(0, num_devices, step)
    axes.set_yticks(
        [(rows - 1) / 2, *(2 * rows + k for k in devices)], ["base station", *map(str, devices)], fontsize=7
    )
    class_step = 1 + (len(class_names) - 1) // 40
    slanted = max(map(len, class_names)) > 3
    axes.set_xticks(range(0, len(class_names), class_step), class_names[::class_step], fontsize=7)
    axes.tick_params(axis="x", labelrotation=90 if slanted else 0)
    axes.set_xlabel("class")
    axes.set_ylabel("device")
