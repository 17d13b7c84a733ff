"""Metrics of a model on its test set: functions of all outputs and all targets, `aircomp.metrics` in the public API.

One whose smaller values are better says so: `higher_is_better = False`, as torchmetrics do.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from jaxtyping import Float, Int
from torch import Tensor

from aircomp.common.checks import describe
from aircomp.errors import ShapeError

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
    fits = _are_tensors(outputs, targets) and outputs.shape[:-1] == targets.shape and outputs.shape[-1] > 1
    _check(
        fits, outputs, targets, "outputs [..., classes] with a number for each of two classes or more, targets [...]"
    )
    right = outputs.argmax(dim=-1) == targets
    return int(right.sum()) / max(right.numel(), 1)


def r2(outputs: Float[Tensor, "samples ..."], targets: Float[Tensor, "samples ..."]) -> float:
    r"""Return $1 - \sum(y - \hat y)^2 / \sum(y - \bar y)^2$ of a regression, over all its outputs."""
    found, wanted = _alike(outputs, targets)
    error = (wanted - found).square().sum()
    spread = (wanted - wanted.mean(dim=0)).square().sum()
    return float(1 - error / spread)


@lower_is_better
def mean_absolute_error(outputs: Float[Tensor, "samples ..."], targets: Float[Tensor, "samples ..."]) -> float:
    """Return the mean distance of a regression from its targets."""
    found, wanted = _alike(outputs, targets)
    return float((wanted - found).abs().mean())


def _alike(outputs: Any, targets: Any) -> tuple[Tensor, Tensor]:
    # a last axis of one is no difference
    fits = _are_tensors(outputs, targets) and outputs.squeeze().shape == targets.squeeze().shape
    _check(fits, outputs, targets, "one number in the outputs for each target")
    return outputs.double().view_as(targets), targets.double()


def _are_tensors(*values: Any) -> bool:
    return all(isinstance(value, Tensor) for value in values)


def _check(fits: bool, outputs: Any, targets: Any, wanted: str) -> None:
    if not fits:
        raise ShapeError(f"outputs are {describe(outputs)} and targets {describe(targets)}; expected {wanted}")
