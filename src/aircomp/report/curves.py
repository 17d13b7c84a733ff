"""Accuracy and loss of federated runs as figures."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from aircomp.common.artefact import write_atomically
from aircomp.federation.run import Simulation
from aircomp.measure.fields import label_of
from aircomp.report.figures import MARKERS, PALETTE, logarithmic, whole_numbers
from aircomp.report.partition import draw_partition


def draw_run(result: Simulation, out: Path) -> list[Path]:
    """Draw one run's curves and who holds what; return the files."""
    curves = draw_curves(result.metrics, out / "curves.png", title=f"{result.row['dataset']}, {result.row['uplink']}")
    if result.data is None or result.partition is None:
        return [curves]
    labels = result.data.train_labels
    classes = [str(c) for c in range(result.data.num_classes)]
    return [curves, draw_partition(result.partition, labels, classes, out / "partition.png")]


def draw_curves(records: Sequence[dict[str, Any]], path: Path, *, title: str = "") -> Path:
    """Draw test accuracy and losses against rounds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    accuracy, loss = figure.subplots(1, 2)
    tested = [r for r in records if r.get("test_accuracy") is not None]
    rounds = [r["round"] for r in tested]
    accuracy.plot(rounds, [r["test_accuracy"] for r in tested], color=PALETTE[0])
    loss.plot(rounds, [r["test_loss"] for r in tested], color=PALETTE[0], label="test images")
    trained = [(r["round"], r["train_loss"]) for r in records if r.get("train_loss") is not None]
    loss.plot(*zip(*trained, strict=True), color=PALETTE[1], linestyle=":", label="devices' own images")
    accuracy.set(xlabel="round", ylabel=label_of("test_accuracy"), ylim=(0, 1), title=title)
    loss.set(xlabel="round", ylabel="cross-entropy (nats)")
    if positive := [value for line in loss.lines for value in line.get_ydata() if value > 0]:
        logarithmic(loss.yaxis, positive)
    for axes in (accuracy, loss):
        axes.grid(alpha=0.3)
        whole_numbers(axes.xaxis)
    loss.legend(frameon=False, fontsize="small")
    write_atomically(path, lambda temporary: figure.savefig(temporary, format="png", dpi=150))
    return path


def draw_snr(rows: Sequence[dict[str, Any]], path: Path) -> Path:
    """Draw test accuracy against SNR, one line an uplink; uplinks without noise are horizontal."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    noisy = [row for row in rows if row["snr_db"] is not None]
    uplinks = dict.fromkeys(row["uplink"] for row in noisy)
    for uplink, color, marker in zip(uplinks, cycle(PALETTE), cycle(MARKERS), strict=False):
        points = sorted((row["snr_db"], row["test_accuracy_last5"]) for row in noisy if row["uplink"] == uplink)
        axes.plot(*zip(*points, strict=True), color=color, marker=marker, label=uplink)
    for row, style in zip((r for r in rows if r["snr_db"] is None), ("--", ":"), strict=False):
        axes.axhline(row["test_accuracy_last5"], color="0.35", linestyle=style, label=row["uplink"])
    lowest = min(row["test_accuracy_last5"] for row in rows)
    axes.set(xlabel=label_of("snr_db"), ylabel=label_of("test_accuracy_last5"), ylim=(max(0.0, lowest - 0.1), 1))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    write_atomically(path, lambda temporary: figure.savefig(temporary, format="png", dpi=150))
    return path
