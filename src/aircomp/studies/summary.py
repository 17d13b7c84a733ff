"""Several seeds as mean and spread, and the decibels between two curves."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from aircomp.common.checks import describe
from aircomp.common.results import Row
from aircomp.errors import ArtefactError

WITHIN = {"two points": 0.02, "five points": 0.05}
"""How far below perfect aggregation an accuracy still counts as working."""


def over_seeds(found: Iterable[tuple[Row, Any]], by: Sequence[str], fields: Sequence[str]) -> list[Row]:
    """Average rows that are alike in the fields `by`, in the order of their first appearance.

    Args:
        found: Fields that identify a job, and its payload with `rows`.
        by: What tells apart.
        fields: What is averaged; each gets a `<field>_std` (of a sample; None if there is but one) and, in the order of
            `found`, its `<field>_values`.
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for identity, payload in found:
        remark = {"measured_at": payload["measured_at"]} if "measured_at" in payload else {}
        for row in payload["rows"]:
            both = row | identity | remark
            groups.setdefault(tuple(both.get(name) for name in by), []).append(both)
    rows = []
    for key, same in groups.items():
        row: Row = dict(zip(by, key, strict=True)) | {"seeds": len(same)}
        for name in fields:
            values = [each[name] for each in same if each.get(name) is not None]
            if words := [value for value in values if not isinstance(value, int | float)]:
                place = ", ".join(map(str, key))
                raise ArtefactError(f"a finished job of {place} has {name} = {describe(words[0])}; expected a number")
            row[name] = statistics.fmean(values) if values else None
            row[f"{name}_std"] = statistics.stdev(values) if len(values) > 1 else None
            row[f"{name}_values"] = [each.get(name) for each in same]
        if remarks := list(dict.fromkeys(each["measured_at"] for each in same if "measured_at" in each)):
            row["measured_at"] = "; ".join(remarks)
        rows.append(row)
    return rows


def working_range(rows: Sequence[Row], reference: str, perfect: float) -> list[Row]:
    """Return the lowest SNR at which each uplink ends near perfect aggregation, and how much less that is than one needs."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        curves.setdefault(row["uplink"], []).append((row["snr_db"], row["test_accuracy_last5"]))
    found = []
    for within, points in WITHIN.items():
        lowest = {name: _lowest_working(sorted(curve), perfect - points) for name, curve in curves.items()}
        needed = lowest[reference]
        if needed == min(row["snr_db"] for row in rows):  # or less: nothing is known of a gain over it
            needed = None
        for name, snr_db in lowest.items():
            gain = None if needed is None or snr_db is None else needed - snr_db
            found.append({"within": within, "uplink": name, "lowest_snr_db": snr_db, "gain_db": gain})
    return found


def _lowest_working(curve: Sequence[tuple[float, float]], level: float) -> float | None:
    """Return the lowest SNR from which on a curve stays at or above a level, interpolated; None if it never does."""
    lowest = None
    for (snr_db, accuracy), above in zip(reversed(curve), [None, *reversed(curve)], strict=False):
        if accuracy < level:
            if above is not None and lowest is not None:
                share = (level - accuracy) / (above[1] - accuracy)
                lowest = snr_db + share * (above[0] - snr_db)
            break
        lowest = snr_db
    return lowest
