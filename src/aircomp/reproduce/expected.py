"""What each result gave when it was measured for this version, with bands: a rerun that leaves them has changed.

`aircomp reproduce NAME --update-expected` takes what it measures as the new expectation (`update.py`).
"""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from aircomp.common.artefact import read_json
from aircomp.common.results import Row

SPREADS = 3.0
"""Standard deviations over the seeds that a band is wide, to either side: seeds differ, machines round differently."""
FLOOR = 0.02
"""A band is never narrower than two points, or two per cent of a number above one: three seeds may agree by chance."""
UNCHECKED = ("seconds",)
"""Measured, but not a property of the software alone."""
SETTINGS = ("snr_db", "local_steps", "scale", "antennas", "value")
"""Numbers that tell a row from the others, as words do."""


def folder(scale: str) -> Path:
    """Return where the expectations of a scale lie."""
    return Path(str(resources.files("aircomp"))) / "reproduce" / "expected" / scale


def expected(name: str, scale: str) -> dict[str, Any] | None:
    """Return what was measured of a result, or None if it never was."""
    path = folder(scale) / f"{name}.json"
    return read_json(path) if path.exists() else None


def deviations(rows: Sequence[Row], expectation: dict[str, Any]) -> list[str]:
    """Say which numbers lie outside their bands; rows that are on one side only are not compared."""
    known = {identity(row): row for row in expectation["rows"]}
    found = []
    for row in rows:
        before = known.get(identity(row))
        for name in measured(before or {}):
            assert before is not None
            band = before[f"{name}_band"]
            now = row.get(name)
            if now is None or abs(now - before[name]) > band:
                what = ", ".join(f"{k} {v}" for k, v in identity(row))
                given = "nothing" if now is None else f"{now:.4g}"
                found.append(f"{name} of {what}: {given} instead of {before[name]:.4g} ± {band:.2g}")
    return found


def expectation_of(result: dict[str, Any]) -> dict[str, Any]:
    """Make an expectation of a `result.json`."""
    rows = []
    for row in result["rows"]:
        kept = dict(identity(row)) | {"seeds": row.get("seeds")}
        for name in (key.removesuffix("_std") for key in row if key.endswith("_std")):
            if row[name] is not None and name not in UNCHECKED:
                kept |= banded(row, name, FLOOR * max(1.0, abs(row[name])))
        rows.append(kept)
    about = {key: result[key] for key in ("command", "version", "environment")}
    return about | {"core_seconds": result["config"]["core_seconds"], "rows": [r for r in rows if measured(r)]}


def banded(row: Row, name: str, narrowest: float, decimals: int = 4) -> Row:
    """Return a field with its band, and what is known of its spread."""
    band = max(SPREADS * (row.get(f"{name}_std") or 0.0), narrowest)
    return {name: round(row[name], decimals), f"{name}_band": round(band, decimals)} | _spread(row, name)


def _spread(row: Row, name: str) -> Row:
    """Return the deviation over the seeds and the value of each, by which the paper's claims are judged."""
    values = row.get(f"{name}_values")
    if values is None:
        return {}
    std = row.get(f"{name}_std")
    return {
        f"{name}_std": None if std is None else round(std, 6),
        f"{name}_values": [None if value is None else round(value, 6) for value in values],
    }


def identity(row: Row) -> tuple[tuple[str, Any], ...]:
    """Return what tells a row from the others: its words and its settings."""
    return tuple((k, v) for k, v in sorted(row.items()) if isinstance(v, str) or k in SETTINGS)


def measured(row: Row) -> list[str]:
    """Return the fields of a row that have a band."""
    return [key.removesuffix("_band") for key in row if key.endswith("_band")]
