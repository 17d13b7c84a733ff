"""A field of runs against rounds, at the width of a paper's column."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from aircomp.common.artefact import write_atomically
from aircomp.errors import ConfigError, unknown_name
from aircomp.measure.fields import FIELDS, label_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMN = (3.5, 2.4)
"""Width and height in inches; 3.5 is a column of two on a page."""
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Distinct to colour-blind readers, too (Okabe and Ito 2008)."""
DASHES = ("-", "--", "-.", ":")
FORMATS = ("svg", "pdf", "png")


@runtime_checkable
class Recorded(Protocol):
    """A finished run."""

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """A record a round."""
        ...

    @property
    def row(self) -> dict[str, Any]:
        """The summary."""
        ...


def plot(
    runs: Sequence[Recorded] | Mapping[str, Recorded], field: str | None = None, path: str | Path | None = None
) -> "Figure":
    """Draw a field of several runs against rounds.

    Args:
        runs: What `aircomp.federate` and `aircomp.simulate` return; in a dictionary, by the names of the legend.
        field: A field of the records, say `test_accuracy`; by default the first that a test gave.
        path: Where to save it; the ending is svg, pdf or png.

    Raises:
        ConfigError: If no run has the field, or the ending is another.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    named = dict(runs) if isinstance(runs, Mapping) else {_name(run, i, runs): run for i, run in enumerate(runs)}
    known = list(dict.fromkeys(k for run in named.values() for r in run.metrics for k, v in r.items() if _is_number(v)))
    field = field or next((name for name in known if name.startswith("test_")), "train_loss")
    if field not in known:
        raise unknown_name("field in these runs", field, known)
    kind = Path(path).suffix.removeprefix(".").lower() if path is not None else "svg"
    if kind not in FORMATS:
        raise ConfigError(f"cannot draw {path}: expected a name that ends in .svg, .pdf or .png")
    with rc_context({"font.size": 8, "svg.hashsalt": "aircomp", "pdf.fonttype": 42}):
        figure = Figure(figsize=COLUMN, layout="constrained")
        axes = figure.subplots()
        for number, (name, run) in enumerate(named.items()):
            points = [(r["round"], r[field]) for r in run.metrics if _is_number(r.get(field))]
            line = axes.plot([at for at, _ in points], [value for _, value in points], label=name, linewidth=1.2)[0]
            line.set(color=COLORS[number % len(COLORS)], linestyle=DASHES[number % len(DASHES)])
        axes.set(xlabel="round", ylabel=label_of(field) if field in FIELDS else field.replace("_", " "))
        axes.grid(alpha=0.3)
        if len(named) > 1:
            axes.legend(frameon=False)
        if path is not None:
            metadata = {"Date": None} if kind == "svg" else {"CreationDate": None} if kind == "pdf" else {}
            write_atomically(
                Path(path), lambda temporary: figure.savefig(temporary, format=kind, dpi=300, metadata=metadata)
            )
    return figure


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _name(run: Recorded, index: int, runs: Sequence[Recorded]) -> str:
    """Return what tells a run from the others: its scheme and SNR, and its place where others share them."""

    def told(one: Recorded) -> str:
        noise = "" if one.row["snr_db"] is None else f", {one.row['snr_db']:g} dB"
        return f"{one.row['uplink']}{noise}"

    alike = [i for i, other in enumerate(runs) if told(other) == told(run)]
    return told(run) if len(alike) == 1 else f"{told(run)} ({alike.index(index) + 1})"
