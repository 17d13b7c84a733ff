"""Test a model: its loss and metrics on the test set, and BatchNorm statistics recomputed for the test."""

import logging
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from aircomp.common.boundary import blaming, leaving
from aircomp.common.checks import describe
from aircomp.data.images import ImageData
from aircomp.data.samples import Samples, TensorSamples, all_batches
from aircomp.device.local import Objective, moved, pair_of
from aircomp.errors import AirCompError, ShapeError, TrainingDiverged
from aircomp.measure.scores import Metric, accuracy

log = logging.getLogger(__name__)

BatchNorm = nn.modules.batchnorm._BatchNorm
TEST_BATCH, STATISTICS_BATCH = 500, 200
"""Samples at a time."""


@torch.no_grad()
def score(
    module: nn.Module, test: Samples, objective: Objective, metrics: Mapping[str, Metric], where: str
) -> dict[str, float]:
    """Return the mean loss on the test set, and each metric of all outputs and targets.

    Args:
        module: The model, on whatever device it is.
        test: The test set.
        objective: Gives the loss.
        metrics: By name.
        where: What to say of the time in an error, say `after round 3`.

    Raises:
        AirCompError: If the user's own functions fail, naming them and the round.
    """
    module.eval()
    place = next(module.parameters()).device
    outputs, targets, loss = [], [], 0.0
    try:
        for index, batch in enumerate(all_batches(test, TEST_BATCH)):
            size = min(TEST_BATCH, len(test) - index * TEST_BATCH)
            if objective.step is None:  # loss and metrics of one pass
                inputs, wanted = pair_of(batch)
                outputs.append(_outputs(module, inputs, place))
                targets.append(moved(wanted, place))
                with leaving(objective.loss, outputs[-1], targets[-1]):  # metrics see them, too
                    loss += size * float(objective.of_outputs(outputs[-1], targets[-1]))
            else:
                loss += size * float(objective(module, batch, place))
                if metrics:
                    inputs, wanted = pair_of(batch, "leave metrics out")
                    outputs.append(_outputs(module, inputs, place))
                    targets.append(moved(wanted, place))
    except ShapeError as error:
        raise ShapeError(f"testing {where}: {error}") from error
    except AirCompError as error:
        raise AirCompError(f"testing {where}: {error}") from error
    except Exception as error:  # an edge: the user's dataset
        log.debug("testing %s failed", where, exc_info=True)
        raise AirCompError(f"testing {where} failed: {_line(error)}") from error
    if math.isnan(loss):
        raise TrainingDiverged(
            f"testing {where}: the loss is not a number; check the loss and the data of the test, or lower "
            "server.learning_rate or local.learning_rate"
        )
    found = {"test_loss": loss / len(test)}
    return {f"test_{name}": _value(name, metric, outputs, targets, where) for name, metric in metrics.items()} | found


def _value(name: str, metric: Metric, outputs: list[Any], targets: list[Any], where: str) -> float:
    given, wanted = _joined(outputs), _joined(targets)
    try:
        with blaming(metric):
            value = metric(given, wanted)
    except AirCompError as error:
        raise AirCompError(f"the metric {name!r} failed {where}: {error}") from error
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError):
        raise ShapeError(f"the metric {name!r} returned {describe(value)} {where}; expected one number") from None
    if not math.isfinite(number):
        raise ShapeError(f"the metric {name!r} returned {number} {where}; expected a finite number")
    return number


def _outputs(module: nn.Module, inputs: Any, place: torch.device) -> Any:
    with blaming(module):
        return module(moved(inputs, place))


def _joined(parts: list[Any]) -> Any:
    """Return what batches gave as if it had been one batch."""
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat(parts)
    if isinstance(first, dict):
        return {name: _joined([part[name] for part in parts]) for name in first}
    if isinstance(first, tuple | list) and first and isinstance(first[0], Tensor):
        return type(first)(_joined([part[i] for part in parts]) for i in range(len(first)))
    return [each for part in parts for each in part]


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def samples_for_test(data: ImageData) -> TensorSamples:
    """Return a dataset's test images and labels."""
    return TensorSamples((data.test_images, data.test_labels), torch.arange(len(data.test_labels)))


def evaluate(module: nn.Module, data: ImageData) -> tuple[float, float]:
    """Return accuracy and mean loss of a classifier on the test images."""
    found = score(module, samples_for_test(data), Objective(), {"accuracy": accuracy}, "the model")
    return found["test_accuracy"], found["test_loss"]


@torch.no_grad()
def recompute_statistics(module: nn.Module, samples: Samples) -> None:
    """Set every BatchNorm's running mean and variance to their averages over batches of some samples, weights as they are.

    One that the model keeps out of training keeps its statistics.
    """
    module.train()
    norms = [m for m in module.modules() if isinstance(m, BatchNorm) and m.training]
    momenta = [m.momentum for m in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # PyTorch's word for the plain average over all batches
    place = next(module.parameters()).device
    rows = torch.arange(len(samples))
    sizes = [len(batch) for batch in rows.split(STATISTICS_BATCH)]
    if len(sizes) > 1 and sizes[-1] == 1:  # BatchNorm refuses a batch with one value of a channel
        sizes[-2:] = [STATISTICS_BATCH + 1]
    for places in rows.split(sizes):
        module(moved(pair_of(samples.batch(places))[0], place))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
