"""Rows of a result as tables and figures, the same on its report and in the docs."""

from collections.abc import Sequence
from typing import Any

from aircomp.common.results import Row
from aircomp.measure.fields import label_of
from aircomp.report.figures import heatmap
from aircomp.report.page import Figure, Table
from aircomp.report.rows import (
    SHARE,
    bars_of,
    beside_decoders,
    information_by_snr,
    lines_of,
    panels_of,
    present,
    series_of,
    table_of,
)
from aircomp.studies.expected import REMARKS, SETTINGS, measured
from aircomp.studies.jobs import Payload
from aircomp.studies.study import Drawing, Result, rows_with
from aircomp.studies.summary import working_range
from aircomp.studies.verdicts import SPEAKING

NARROWEST = 0.1
"""Points of test accuracy that an axis shows at least: a difference that does not matter shall not look large."""

# ── tables ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def fields_of(result: Result, rows: Sequence[Row]) -> list[str]:
    """Return the fields that are shown of some rows."""
    found = dict.fromkeys(name for row in rows for name in measured(row) if row.get(name) is not None)
    return [name for name in result.show or found if name in found and name != "seconds"]


def tables_of(result: Result, rows: Sequence[Row]) -> list[Table]:
    """Return the tables of a result: over SNR one for each field, with a column for each SNR."""
    found = []
    for group in groups_of(rows):
        fields = fields_of(result, group)
        if sum(row.get("snr_db") is not None for row in group) > 1:
            found += [by_snr(result, group, name) for name in fields]
        elif fields:
            found.append(table_of(title_of(fields), group, (*words_of(group), *fields, "seeds")))
    tables = [table for table in found if table.rows]
    if tables and result.note:
        tables[0] = Table(tables[0].title, tables[0].columns, tables[0].rows, f"{tables[0].note} {result.note}".strip())
    return tables


def groups_of(rows: Sequence[Row]) -> list[list[Row]]:
    """Split rows that tell different things: by the words and settings that they have."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(name for name in words_of([row]) if name != "snr_db"), []).append(row)
    return list(groups.values())


def words_of(rows: Sequence[Row]) -> list[str]:
    """Return the fields that tell these rows from each other."""
    names = dict.fromkeys(
        k for row in rows for k, v in row.items() if k not in REMARKS and (isinstance(v, str) or k in SETTINGS)
    )
    first = [name for name in SPEAKING if name in names]
    return first + [name for name in names if name not in (*first, "seeds")]


def varying(rows: Sequence[Row]) -> list[str]:
    """Return the fields in which some of these rows differ, beside the SNR."""
    return [word for word in words_of(rows) if word != "snr_db" and len({row.get(word) for row in rows}) > 1]


def title_of(fields: Sequence[str]) -> str:
    """Return the title of a table of some fields."""
    return " · ".join(label_of(name)[0].upper() + label_of(name)[1:] for name in fields[:2])


def by_snr(result: Result, rows: Sequence[Row], name: str) -> Table:
    """Put the SNRs beside each other; below each row, what the paper prints for it."""
    labels = varying(rows) or words_of(rows)[:1]
    snrs = sorted({row["snr_db"] for row in rows if row.get("snr_db") is not None})
    columns = {label: label_of(label) for label in labels} | {"none": "no noise"} | {_at(s): f"{s:g} dB" for s in snrs}
    lines: dict[tuple[Any, ...], Row] = {}
    printed: dict[tuple[Any, ...], Row] = {}
    first = next(iter(fields_of(result, rows)), "")
    for row in rows:
        key, place = tuple(row.get(label) for label in labels), _at(row.get("snr_db"))
        line = lines.setdefault(key, dict(zip(labels, key, strict=True)))
        if row.get(name) is not None:
            line |= {place: row[name], f"{place}_std": row.get(f"{name}_std")}
        if name == first and (value := result.printed_value(row)) is not None:
            paper = printed.setdefault(key, dict(zip(labels, key, strict=True)) | {labels[0]: f"{key[0]}, the paper"})
            paper |= {place: value}
    if not any("none" in line for line in lines.values()):
        del columns["none"]
    both = [line for key in lines for line in (lines[key], printed.get(key)) if line is not None]
    shown = [line for line in both if len(line) > len(labels)]
    return Table(title_of([name]), columns, shown, result.printed_note if printed else "")


def _at(snr_db: float | None) -> str:
    return "none" if snr_db is None else f"{snr_db:g}"


# ── figures ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def figures_of(result: Result, rows: Sequence[Row]) -> list[Figure]:
    """Return the figures of a result's rows: those that its file asks for, or the usual one."""
    asked = present(drawing_of(result, each, rows) for each in result.draw)
    return list(asked) if result.draw else list(present([usual_figure(result, rows)]))


def usual_figure(result: Result, rows: Sequence[Row]) -> Figure | None:
    """Draw the first field of a result: over SNR as lines, otherwise as bars; None where there is nothing to draw."""
    group = next((group for group in groups_of(rows) if fields_of(result, group)), [])
    if not group:
        return None
    name, labels = fields_of(result, group)[0], varying(group)
    if "codebook" in labels and "decoder" in labels:
        labels.remove("codebook")
    noisy = [row for row in group if row.get("snr_db") is not None]
    if len({row["snr_db"] for row in noisy}) < 2:
        return bars_of(group, labels[0], labels[1:], name, result.title) if labels else None
    clean = {row[labels[0]]: row[name] for row in group if row.get("snr_db") is None and labels}
    if "information" in result.extra:
        clean |= beside_decoders(group, ["decoder"])[1]
    series = series_of(noisy, labels or words_of(group)[:1], "snr_db", name)
    axis = (
        SHARE if name == "count_accuracy" else axis_of([row[name] for row in group if row.get(name) is not None], name)
    )
    return lines_of(series, label_of("snr_db"), label_of(name), result.title, references=clean or None, limits=axis)


def drawing_of(result: Result, asked: Drawing, rows: Sequence[Row]) -> Figure | None:
    """Draw a figure that a result's file asks for."""
    known = [row for row in rows_with(rows, asked.where) if row.get(asked.field) is not None]
    known = [row for row in known if all(row.get(label) is not None for label in asked.labels)]
    if "model" in asked.where or (known and "model" in known[0]):
        known = [row for row in known if row.get("model") == known[0].get("model")]
    placed = [row for row in known if row.get(asked.x) is not None]
    title = asked.title or result.title
    if asked.panels:
        return _panels(asked, placed, title)
    lines = {label: sorted(points) for label, points in series_of(placed, asked.labels, asked.x, asked.field).items()}
    levels: dict[str, Any] = {
        ", ".join(str(row[label]) for label in asked.labels): row[asked.field] for row in known if row not in placed
    }
    if asked.x == "snr_db":
        for row in placed:
            if (value := result.printed_value(row)) is not None:
                levels.setdefault(f"{row[asked.labels[0]]}, the paper", []).append((row["snr_db"], value))
    paper = {name: sorted(set(points)) for name, points in levels.items() if isinstance(points, list)}
    return lines_of(
        lines, label_of(asked.x), label_of(asked.field), title, references=(levels | paper) or None, log=asked.log
    )


def _panels(asked: Drawing, rows: Sequence[Row], title: str) -> Figure | None:
    """Draw a panel for every value of a field; lines that have one value only stand in all panels."""
    line = asked.labels[0]
    values = sorted({row[asked.panels] for row in rows})
    single = {row[line] for row in rows} - {row[line] for row in rows if row[asked.panels] != values[0]}
    series = {
        f"{value} {label_of(asked.panels).removesuffix('s') if value == 1 else label_of(asked.panels)}": series_of(
            [row for row in rows if row[asked.panels] == value or row[line] in single],
            asked.labels,
            asked.x,
            asked.field,
        )
        for value in values
    }
    limits = SHARE if asked.field == "count_accuracy" else None
    return panels_of(series, label_of(asked.x), label_of(asked.field), title, limits=limits)


def axis_of(values: Sequence[float], name: str) -> tuple[float, float] | None:
    """Return the ends of an axis, wide enough for a test accuracy; None leaves them to the data."""
    if name != "test_accuracy_last5":
        return None
    middle, half = (min(values) + max(values)) / 2, max(max(values) - min(values), NARROWEST) / 2
    return middle - 1.1 * half, middle + 1.1 * half


# ── what only the report shows ───────────────────────────────────────────────────────────────────────────────────────

Found = list[tuple[Row, Payload]]
"""What identifies each job within its result, and what the job found."""


def extras_of(result: Result, rows: Sequence[Row], found: Found) -> tuple[list[Figure], list[Table]]:
    """Return what a report shows beside the usual: it needs more of a job than its rows."""
    figures: list[Figure | None] = []
    tables = []
    if "curves" in result.extra:
        figures.append(_curves(found))
    if "information" in result.extra:
        figures.append(information_by_snr(rows, ["decoder"]))
    if "geometry" in result.extra:
        figures += _geometry(found)
    if "working-range" in result.extra:
        tables.append(_ranges(rows))
    return list(present(figures)), [table for table in tables if table.rows]


def _curves(found: Found) -> Figure | None:
    curves: dict[str, list[Any]] = {}
    for about, payload in found:
        name = ", ".join(f"{v:g} dB" if k == "snr_db" else str(v) for k, v in about.items())
        if tests := payload.get("rounds"):
            for row in tests:
                curves.setdefault(f"{name}, {row['buffers']}", []).append((row["round"], row["test_accuracy"]))
        elif payload.get("curve"):
            curves.setdefault(name, [tuple(point) for point in payload["curve"]])
    return lines_of(curves, "round", label_of("test_accuracy"), "One seed's convergence")


def _geometry(found: Found) -> list[Figure | None]:
    firsts: dict[str, Payload] = {}
    for about, payload in found:
        firsts.setdefault(about["setup"], payload)
    spectra = {name: list(enumerate(p["singular_values"], 1)) for name, p in firsts.items()}
    maps: list[Figure | None] = [
        heatmap(
            p["correlation"],
            rows=[str(i) for i in range(len(p["correlation"]))],
            columns=[str(i) for i in range(len(p["correlation"]))],
            x="codeword, by rank",
            y="codeword, by rank",
            unit="|correlation|",
            title=f"Cross-correlation: {name}",
            alt=f"Absolute correlation of every pair of codewords, {name}.",
        )
        for name, p in firsts.items()
    ]
    return [lines_of(spectra, "number", "singular value", "Singular values of one codebook each"), *maps]


def _ranges(rows: Sequence[Row]) -> Table:
    noisy = [row for row in rows if row.get("snr_db") is not None]
    perfect = next((row for row in rows if row.get("uplink") == "perfect"), None)
    known = perfect is not None and any(row["uplink"] == "amp-da" for row in noisy)
    ranges = working_range(noisy, "amp-da", perfect["test_accuracy_last5"]) if perfect and known else []
    title = "The lowest SNR that works, and decibels gained over AMP-DA"
    return table_of(title, ranges, ("within", "uplink", "lowest_snr_db", "gain_db"), RANGE_NOTE)


RANGE_NOTE = (
    "The lowest SNR from which on an uplink ends so near to perfect aggregation, interpolated between those measured; the "
    "lowest one measured means that or less, with a gain of that or more, and nothing that it never does. Where AMP-DA works "
    "at all that were measured, no gain is known."
)
