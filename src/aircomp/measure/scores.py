"""Metrics of a model on its test set: functions of all outputs and all targets, `aircomp.metrics` in the public API.

One whose smaller values are better says so: `higher_is_better = False`, as torchmetrics do.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from jaxtyping import Float, Int
from torch import Tensor

Metric = Callable[[Any, Any], float]
"""Of all outputs and all targets of the test set."""
M = TypeVar("M", bound=Metric)


def lower_is_better(metric: M) -> M:
    """Mark a metric whose smaller values are better."""
    metric.higher_is_better = False  # pyright: ignore[reportFunctionMemberAccess]
    return metric


def is_higher_better(metric: Metric) -> bool:
    """Tell whether larger values of a metric are better, as they are where it does not say."""
    return getattr(metric, "higher_is_better", True) is not False


def accuracy(outputs: Float[Tensor, "samples ... classes"], targets: Int[Tensor, "samples ..."]) -> float:
    """Return the share of right classes, over samples and, of sequences, places."""
    right = outputs.argmax(dim=-1) == targets
    return int(right.sum()) / max(right.numel(), 1)


def r2(outputs: Float[Tensor, "samples ..."], targets: Float[Tensor, "samples ..."]) -> float:
    r"""Return $1 - \sum(y - \hat y)^2 / \sum(y - \bar y)^2$ of a regression, over all its outputs."""
    wanted = targets.double()
    error = (wanted - outputs.double().view_as(wanted)).square().sum()
    spread = (wanted - wanted.mean(dim=0)).square().sum()
    return float(1 - error / spread)


@lower_is_better
def mean_absolute_error(outputs: Float[Tensor, "samples ..."], targets: Float[Tensor, "samples ..."]) -> float:
    """Return the mean distance of a regression from its targets."""
    return float((targets.double() - outputs.double().view_as(targets)).abs().mean())
