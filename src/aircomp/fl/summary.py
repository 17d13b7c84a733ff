"""The summary of a run: the row of its result."""

import statistics
from typing import Any

from aircomp.common.results import Row
from aircomp.fl.round import Record


def accuracy_summary(accuracies: list[Any]) -> Row:
    """Return the last one, the mean of the last five, the best, and the spread of the last ten."""
    if not accuracies:
        return dict.fromkeys(("test_accuracy", "test_accuracy_last5", "best_test_accuracy", "stability"))
    return {
        "test_accuracy": accuracies[-1],
        "test_accuracy_last5": statistics.fmean(accuracies[-5:]),
        "best_test_accuracy": max(accuracies),
        "stability": statistics.pstdev(accuracies[-10:]),
    }


def means(metrics: list[Record]) -> Row:
    """Means over the rounds that have them: decoding accuracy, update errors, the feedback ratio, and K's error."""
    row: Row = {}
    names = {name for r in metrics for name, v in r.items() if isinstance(v, float)}
    for name in sorted(names - {"test_accuracy", "test_loss", "num_active_hat"}):
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
