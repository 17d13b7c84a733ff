"""What the challenges gave when they were measured for this version, with bands: a rerun that leaves them has changed.

`aircomp arena --update-expected` takes what it measures as the new expectation, `make expected-arena` for all challenges.
"""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from aircomp.common.artefact import read_json, write_json
from aircomp.common.results import Row, environment
from aircomp.comparison.challenges import ORDER
from aircomp.comparison.entrants import find_entrant
from aircomp.comparison.judge import MEASURES
from aircomp.comparison.run import ROUND_ITSELF, Comparison, Plan, Task
from aircomp.errors import ConfigError
from aircomp.reproduce import expected as bands

KEPT = {"round": ("raw_nmse", "raw_gain", ROUND_ITSELF), "training": ("test_accuracy_last5",)}
"""The fields that are expected of each task."""
NARROWEST = {"raw_nmse": 0.1}
"""The narrowest band of an error, as a share of it: 0.4 dB.

Three seeds may agree by chance. On white noise half of the errors have a deviation of more than 4 % over seeds. Machines that
round differently train other updates, which is as if they had other seeds. Of other fields a band has two points at least.
"""
DECIMALS = 6


def folder() -> Path:
    """Return where the expectations lie."""
    return Path(str(resources.files("aircomp"))) / "comparison" / "expected"


def expected(task: Task) -> dict[str, Any] | None:
    """Return what was measured of a task, or None if it never was; every row says whether the scheme is ours."""
    path = folder() / f"{task}.json"
    if not path.exists():
        return None
    found = read_json(path)
    return found | {"rows": [row | {"ours": find_entrant(row["scheme"]).ours} for row in found["rows"]]}


def deviations(rows: Sequence[Row], task: Task) -> list[str]:
    """Say which numbers lie outside their bands, and which schemes of the same challenges were never measured."""
    before = expected(task) or {"rows": []}
    known = {_place(row) for row in before["rows"]}
    missing = [f"{' '.join(map(str, _place(row)))} was never measured" for row in rows if _place(row) not in known]
    return missing + bands.deviations([_bare(row, KEPT[task]) for row in rows], before)


def check_whole(plan: Plan) -> None:
    """Refuse a comparison that is not that of the challenges as they are: others would be compared with its numbers."""
    if plan.schemes or plan.settings or not set(plan.chosen()) <= set(ORDER):
        raise ConfigError(
            "--update-expected takes the challenges as they are; leave out --scheme, --snr-db and challenges of your own"
        )


def update(comparison: Comparison) -> Path:
    """Write what was measured with all seeds as the new expectation; challenges that were not measured keep theirs."""
    plan = comparison.plan
    path = folder() / f"{plan.task}.json"
    others = [row for row in read_json(path)["rows"] if row["challenge"] not in plan.chosen()] if path.exists() else []
    judged = f"{MEASURES[plan.task].field}_values"
    rows = others + [_expected_row(row, plan.task) for row in comparison.rows if None not in row.get(judged, [None])]
    rows.sort(key=lambda row: ORDER.index(row["challenge"]))
    path.parent.mkdir(exist_ok=True)
    write_json(path, {"environment": environment(), "rows": rows})
    return path


def _expected_row(row: Row, task: Task) -> Row:
    kept = _bare(row, ()) | {"seeds": row["seeds"]}
    for name in KEPT[task]:
        if row.get(name) is not None and None not in row[f"{name}_values"]:
            narrowest = NARROWEST[name] * row[name] if name in NARROWEST else bands.FLOOR
            with_band = bands.banded(row, name, narrowest, DECIMALS)
            if name != MEASURES[task].field:  # only what is judged needs the value of every seed
                del with_band[f"{name}_values"]
            kept |= with_band
    return kept


def _bare(row: Row, fields: Sequence[str]) -> Row:
    return {name: row[name] for name in ("challenge", "value", "scheme", *fields) if name in row}


def _place(row: Row) -> tuple[Any, ...]:
    return row["challenge"], row["value"], row["scheme"]
