"""What each study gave when it was measured, compactly, and the bands that a rerun must keep to.

    expected/SCALE/NAME.json                  results of the paper and ours
    expected/arena/round.json, training.json  challenges

A file holds groups of rows that have the same fields, a column for each: words as indices into a list, numbers to four
significant digits, of a measured field the value of every seed. Mean, deviation and band follow from those.
"""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from aircomp.common.artefact import read_json, write_text
from aircomp.common.results import Row
from aircomp.errors import ConfigError

SPREADS = 3.0
"""Standard deviations over the seeds that a band is wide, to either side: seeds differ, machines round differently."""
FLOOR = 0.02
"""A band is never narrower than two points, or two per cent of a number above one: three seeds may agree by chance."""
NARROWEST = {"raw_nmse": 0.1}
"""The narrowest band of an error of the arena, as a share of it: 0.4 dB.

On white noise half of the errors have a deviation of more than 4 % over seeds. Machines that round differently train other
updates, which is as if they had other seeds.
"""
UNCHECKED = ("seconds",)
"""Measured, but not a property of the software alone."""
SETTINGS = ("snr_db", "local_steps", "scale", "antennas", "value")
"""Numbers that tell a row from the others, as words do."""
REMARKS = ("measured_at", "side_information")
"""Words that do not."""
DIGITS = 4
VALUES, STD = "_values", "_std"


def folder() -> Path:
    """Return where the expectations lie."""
    return Path(str(resources.files("aircomp"))) / "studies" / "expected"


def expected(group: str, name: str) -> dict[str, Any] | None:
    """Return what was measured of a study, or None if it never was.

    Args:
        group: A scale, or `arena`.
        name: Of the result, or the arena's task.
    """
    path = folder() / group / f"{name}.json"
    if not path.exists():
        return None
    content = read_json(path)
    return content | {"rows": [row for group in content["groups"] for row in _rows(group)]}


def write_expected(group: str, name: str, about: Mapping[str, Any], rows: Sequence[Row]) -> Path:
    """Write what was measured, a line for each column."""
    path = folder() / group / f"{name}.json"
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(sorted(row)), []).append(row)
    parts = [f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in about.items()]
    columns = [",\n".join(_lines(same)) for same in groups.values()]
    parts.append('  "groups": [\n' + ",\n".join(f"    {{\n{each}\n    }}" for each in columns) + "\n  ]")
    write_text(path, "{\n" + ",\n".join(parts) + "\n}\n")
    return path


def _lines(rows: Sequence[Row]) -> Iterable[str]:
    for name in rows[0]:
        if name.endswith((VALUES, STD)):
            continue
        column: Any = [row[name] for row in rows]
        if f"{name}{VALUES}" in rows[0]:
            column = {"values": [[_short(v) for v in row[f"{name}{VALUES}"]] for row in rows]}
        elif f"{name}{STD}" in rows[0]:
            column = {"mean": [_short(v) for v in column], "std": [_short(row[f"{name}{STD}"], 3) for row in rows]}
        elif all(value == column[0] for value in column):
            column = {"all": column[0], "rows": len(column)}
        elif any(isinstance(value, str) for value in column):
            words = list(dict.fromkeys(column))
            column = {"words": words, "rows": [words.index(value) for value in column]}
        yield f"      {json.dumps(name)}: {json.dumps(column, ensure_ascii=False, separators=(',', ':'))}"


def _rows(columns: Mapping[str, Any]) -> list[Row]:
    found: dict[str, Sequence[Any]] = {}
    for name, column in columns.items():
        match column:
            case {"values": values}:
                found[name] = [_mean(each) for each in values]
                found[f"{name}{STD}"] = [_deviation(each) for each in values]
                found[f"{name}{VALUES}"] = values
            case {"mean": means, "std": deviations}:
                found[name], found[f"{name}{STD}"] = means, deviations
            case {"all": value, "rows": number}:
                found[name] = [value] * number
            case {"words": words, "rows": places}:
                found[name] = [words[place] for place in places]
            case _:
                found[name] = column
    return [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]


def _short(value: float | None, digits: int = DIGITS) -> float | None:
    """Return a number with so many significant digits, whole ones without a point."""
    if value is None:
        return None
    found = float(f"{value:.{digits}g}")
    return int(found) if found == int(found) and abs(found) < 10**6 else found


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _deviation(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.stdev(known) if len(known) > 1 else None


# ── what is expected of a row ────────────────────────────────────────────────────────────────────────────────────────


def identity(row: Row) -> tuple[tuple[str, Any], ...]:
    """Return what tells a row from the others: its words and its settings."""
    return tuple((k, v) for k, v in sorted(row.items()) if k not in REMARKS and (isinstance(v, str) or k in SETTINGS))


def measured(row: Row) -> list[str]:
    """Return the fields of a row that were measured, those with a deviation."""
    return [key.removesuffix(STD) for key in row if key.endswith(STD)]


def expectation_of(row: Row, judged: str = "") -> Row:
    """Return what is kept of a row: what tells it from others, and its measured fields.

    Args:
        row: Of a result.
        judged: The only field of which the value of each seed is kept; all fields if empty.
    """
    kept = dict(identity(row)) | {name: row[name] for name in ("seeds", "measured_at") if row.get(name) is not None}
    for name in measured(row):
        if row.get(name) is not None and name not in UNCHECKED:
            about = VALUES if judged in ("", name) and f"{name}{VALUES}" in row else STD
            kept |= {name: row[name], f"{name}{about}": row[f"{name}{about}"]}
    return kept


def band(row: Row, name: str) -> float:
    """Return how far a rerun may be from a measured field."""
    of_arena = "challenge" in row and name in NARROWEST
    narrowest = NARROWEST[name] * abs(row[name]) if of_arena else FLOOR * max(1.0, abs(row[name]))
    return max(SPREADS * (row.get(f"{name}{STD}") or 0.0), narrowest)


def deviations(rows: Sequence[Row], before: Sequence[Row]) -> list[str]:
    """Say which numbers lie outside their bands; rows that are on one side only are not compared."""
    known = {identity(row): row for row in before}
    found = []
    for row in rows:
        old = known.get(identity(row), {})
        for name in measured(old):
            now, wide = row.get(name), band(old, name) if old[name] is not None else 0.0
            if old[name] is not None and (now is None or abs(now - old[name]) > wide):
                what = ", ".join(f"{k} {v}" for k, v in identity(row))
                given = "nothing" if now is None else f"{now:.4g}"
                found.append(f"{name} of {what}: {given} instead of {old[name]:.4g} ± {wide:.2g}")
    return found


def docs_folder() -> Path:
    """Return the docs of the source that this package runs from."""
    docs = Path(str(resources.files("aircomp"))).parents[1] / "docs"
    if not docs.is_dir():
        raise ConfigError(
            "--update-expected rewrites files of the source, but this package has none beside it; use a clone and make env"
        )
    return docs
