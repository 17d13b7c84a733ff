"""The summary of a run: the row of its result."""

import statistics
from typing import Any

from aircomp.common.results import Row
from aircomp.federation.round import Record


def metric_summary(name: str, values: list[Any], higher_is_better: bool) -> Row:
    """Return the last one, the mean of the last five, and the best."""
    best = max if higher_is_better else min
    return {
        f"test_{name}": values[-1] if values else None,
        f"test_{name}_last5": statistics.fmean(values[-5:]) if values else None,
        f"best_test_{name}": best(values) if values else None,
    }


def means(metrics: list[Record]) -> Row:
    """Means over the rounds that have them: decoding accuracy, update errors, the feedback ratio, and K's error."""
    row: Row = {}
    names = {name for r in metrics for name, v in r.items() if isinstance(v, float)}
    for name in sorted(name for name in names if not name.startswith("test_") and name != "num_active_hat"):
        row[name] = statistics.fmean([r[name] for r in metrics if isinstance(r.get(name), float)])
    errors = [abs(r["num_active_hat"] - r["num_active"]) for r in metrics if "num_active_hat" in r]
    if errors:
        row["num_active_mae"] = statistics.fmean(errors)
    return row


def air_summary(metrics: list[Record], num_params: int) -> Row:
    """Return what the rounds took that had a transmission: means, but the largest device and the largest peak."""
    sent = [record for record in metrics if "channel_uses" in record]
    if not sent:
        return {"channel_uses_per_parameter": None, "energy_per_device": None}
    largest = {name: max(record[name] for record in sent) for name in ("energy_max", "peak_power")}
    uses = statistics.fmean(record["channel_uses"] for record in sent)
    return {"channel_uses_per_parameter": uses / num_params} | largest
