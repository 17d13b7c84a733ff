"""Rows of results as tables and figures: which fields, under which headings, in which lines."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aircomp.common.results import Row
from aircomp.measure.fields import FIELDS, columns_of, label_of
from aircomp.report import figures
from aircomp.report.page import Figure, Table, as_number, cell_text

SHARE = (-0.02, 1.02)
"""Axis of an accuracy: all of [0, 1], and the markers at its ends."""


def table_of(title: str, rows: list[Row], names: Iterable[str], note: str = "") -> Table:
    """Make a table of the fields that some row has."""
    present = [name for name in dict.fromkeys(names) if any(row.get(name) not in (None, "") for row in rows)]
    return Table(title, columns_of(present), rows, note)


def fields_of(rows: Sequence[Row]) -> list[str]:
    """Return all fields of some rows: the known ones in their order, then the others; no run, no spread."""
    found = dict.fromkeys(name for row in rows for name in row)
    others = [name for name in found if name not in FIELDS and not name.endswith("_std")]
    return [name for name in FIELDS if name in found and name not in ("run", "contender")] + others


def varies(rows: Sequence[Row], name: str, *within: str) -> bool:
    """Tell whether rows that share the fields `within` differ in another one."""
    seen: dict[str, set[str]] = {}
    for row in rows:
        seen.setdefault(repr([row.get(key) for key in within]), set()).add(repr(row.get(name)))
    return any(len(values) > 1 for values in seen.values())


def accuracy_by_snr(rows: Sequence[Row], settings: Sequence[str]) -> Figure | None:
    """Draw test accuracy against SNR, a line for each uplink and settings; uplinks without noise are levels."""
    noisy = [row for row in rows if as_number(row.get("snr_db")) is not None]
    series = series_of(noisy, ["uplink", *settings], "snr_db", "test_accuracy_last5")
    clean = [row | {"place": 0} for row in rows if row.get("snr_db") is None]
    levels = {k: v[0][1] for k, v in series_of(clean, ["uplink", *settings], "place", "test_accuracy_last5").items()}
    title = "Test accuracy against SNR"
    return lines_of(series, label_of("snr_db"), label_of("test_accuracy_last5"), title, references=levels)


def decoding_by_snr(rows: Sequence[Row], labels: Sequence[str]) -> tuple[Figure, ...]:
    """Draw what decoding came to against SNR, where there is more than one SNR."""
    if not _several_snrs(rows):
        return ()
    drawn = []
    for name in ("test_accuracy_last5", "count_accuracy", "update_nmse_hard"):
        share = not name.startswith("update")
        series, limits = series_of(rows, labels, "snr_db", name), {}
        if name == "count_accuracy":
            posterior, limits = beside_decoders(rows, labels)
            series |= posterior
        heading = label_of(name)
        title = f"{heading[0].upper()}{heading[1:]} against SNR"
        axis = {"log": not share, "limits": SHARE if share else None}
        drawn.append(lines_of(series, label_of("snr_db"), heading, title, references=limits, **axis))
    return present(drawn)


Lines = dict[str, list[tuple[Any, ...]]]
"""Points of each line by its label."""


def beside_decoders(rows: Sequence[Row], labels: Sequence[str]) -> tuple[Lines, Lines]:
    """Return the lines of the posterior and the limits of the accuracy against SNR, for each codebook."""
    books = [name for name in dict.fromkeys([*labels, "codebook"]) if name != "decoder"]
    posterior, limits = (
        series_of(rows, books, "snr_db", name) for name in ("posterior_count_accuracy", "count_accuracy_limit")
    )
    return (
        {f"posterior, {label}": points for label, points in posterior.items()},
        {f"limit, {label}": points for label, points in limits.items()},
    )


def information_by_snr(rows: Sequence[Row], labels: Sequence[str]) -> Figure | None:
    """Draw what the channel can carry in a slot against SNR, beside what the counts hold."""
    if not _several_snrs(rows):
        return None
    others = [name for name in labels if name not in ("decoder", "codebook")]
    books = ["codebook", *others]
    by_book = varies(rows, "capacity_bits", "snr_db", *others)  # where the SNR refers to what was sent
    capacity = series_of(rows, books if by_book else others, "snr_db", "capacity_bits")
    series = {f"capacity{', ' if label else ''}{label}": points for label, points in capacity.items()}
    series |= {f"signals of {k}": points for k, points in series_of(rows, books, "snr_db", "signal_bits").items()}
    held = series_of(rows, others, "snr_db", "entropy_bits")
    levels = {f"the counts hold{', ' if label else ''}{label}": points[0][1] for label, points in held.items()}
    return lines_of(series, label_of("snr_db"), "bits", "Information of a slot", references=levels)


def _several_snrs(rows: Sequence[Row]) -> bool:
    return len({row["snr_db"] for row in rows if as_number(row.get("snr_db")) is not None}) > 1


def curves_of(curves: Mapping[str, Sequence[Row]], x: str, y: str, title: str, **axis: Any) -> Figure | None:
    """Draw one field of the metrics of several runs."""
    series = {name: [(r.get(x), r.get(y)) for r in records] for name, records in curves.items()}
    return lines_of({name: points for name, points in series.items() if points}, x, label_of(y), title, **axis)


def bars_of(rows: Sequence[Row], category: str, several: Sequence[str], name: str, title: str) -> Figure | None:
    """Draw one field as bars, in one colour a run; the axis is logarithmic where values differ a hundredfold."""
    series: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows:
        value = as_number(row.get(name))
        if value:
            label = _label(row, several)
            series.setdefault(label, []).append((cell_text(row.get(category)), value, row.get(f"{name}_std")))
    values = [abs(point[1]) for points in series.values() for point in points]
    if not values or len(values) > 60:
        return None
    heading = label_of(name)
    parts = [f"{place} {cell_text(value)}" for points in series.values() for place, value, _ in points]
    alt = f"{heading}: {'; '.join(parts[:24])}."
    return figures.bars(series, x=heading, y="", title=title, alt=alt, log=max(values) > 100 * min(values))


def series_of(rows: Iterable[Row], labels: Sequence[str], x: str, y: str) -> dict[str, list[tuple[Any, ...]]]:
    """Group rows into lines; several values at one place (seeds) become their mean and spread."""
    found: dict[str, dict[Any, list[Row]]] = {}
    for row in rows:
        if figures.can_draw(row.get(x)) and figures.can_draw(row.get(y)):
            found.setdefault(_label(row, labels), {}).setdefault(row[x], []).append(row)
    return {
        label: [(place, *_mean([row[y] for row in same], same[0].get(f"{y}_std"))) for place, same in places.items()]
        for label, places in found.items()
    }


def lines_of(series: Mapping[str, figures.Points], x: str, y: str, title: str, **axis: Any) -> Figure | None:
    """Draw lines with a description made of their labels; None if there is nothing to draw."""
    known = {
        k: p for k, p in series.items() if any(as_number(each[0]) is not None and _shown(each[1], axis) for each in p)
    }
    if not known:
        return None
    references: Mapping[str, Any] = axis.get("references") or {}
    curves = {name: reference for name, reference in references.items() if isinstance(reference, list)}
    levels = [f"; {name} {cell_text(level)}" for name, level in references.items() if name not in curves]
    alt = f"{y} against {x}: {_described({**known, **curves})}{''.join(levels)}."
    return figures.lines(known, x=x, y=y, title=title, alt=alt, **axis)


def panels_of(
    families: Mapping[str, Mapping[str, figures.Points]], x: str, y: str, title: str, **axis: Any
) -> Figure | None:
    """Draw lines in named panels, with a description made of their labels; None if there is nothing to draw."""
    shown = {
        family: {label: points for label, points in lines.items() if any(_shown(each[1], axis) for each in points)}
        for family, lines in families.items()
    }
    shown = {family: lines for family, lines in shown.items() if lines}
    if not shown:
        return None
    parts = [f"{family}: {_described(lines)}" for family, lines in shown.items()]
    alt = f"{y} against {x}; {'; '.join(parts)}."
    return figures.panels(shown, x=x, y=y, title=title, alt=alt, **axis)


def _label(row: Row, names: Iterable[str]) -> str:
    """Name a line of a figure by some of its fields; settings are named as well, words speak for themselves."""
    parts = []
    for name in names:
        value = row.get(name)
        parts.append(value if isinstance(value, str) else f"{label_of(name)} {cell_text(value)}")
    return ", ".join(parts)


def _mean(values: Sequence[float], spread: Any) -> tuple[float, float | None]:
    if len(values) == 1:
        return values[0], as_number(spread)
    return statistics.fmean(values), statistics.stdev(values)


def _shown(value: Any, axis: Mapping[str, Any]) -> bool:
    return figures.can_draw(value) and (value > 0 or not axis.get("log"))


def _described(series: Mapping[str, figures.Points]) -> str:
    """Say where each line begins and ends."""
    parts = []
    for name, points in list(series.items())[:12]:
        ends = sorted((p[0], p[1]) for p in points if as_number(p[0]) is not None and as_number(p[1]) is not None)
        (first, low), (last, high) = ends[0], ends[-1]
        reach = f" to {cell_text(high)} at {cell_text(last)}" if len(ends) > 1 else ""
        parts.append(f"{name} {cell_text(low)} at {cell_text(first)}{reach}")
    return "; ".join(parts) + ("; and more" if len(series) > 12 else "")


def present(drawn: Iterable[Figure | None]) -> tuple[Figure, ...]:
    """Leave out the figures that had nothing to draw."""
    return tuple(figure for figure in drawn if figure is not None)
