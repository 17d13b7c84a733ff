"""The device side of a round as one value: give it (round, device), get the update.

A `Trainer` holds what every process or node needs once (model, data, objective); a task is a pair of integers. An executor
gives tasks to trainers: the one here to a trainer in this process, those of `local.py` and `ray.py` to others.
"""

import copy
import itertools
import logging
import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from aircomp.common import rng as rngs
from aircomp.common.checks import part_name
from aircomp.common.threads import one_thread
from aircomp.data.samples import Samples
from aircomp.device.local import LocalResult, Objective, batch_sizes, train
from aircomp.device.settings import LocalSettings
from aircomp.device.update import FlatModel
from aircomp.engines import Engine
from aircomp.errors import AirCompError, ConfigError, ShapeError, TrainingDiverged

log = logging.getLogger(__name__)

BASE_STATION = -1
"""The base station's place among the device numbers."""


@dataclass(frozen=True)
class Task:
    """Train one device in one round."""

    round_index: int
    device: int
    own_buffers: Float[Tensor, " buffers"] | None = None
    """The device's own buffers, where they stay local; the global ones otherwise."""


class Trainer:
    """Trains any device of the federation; the same bits in every process.

    Args:
        module: Copied.
        holders: What each device trains on, and the base station if it has data.
        settings: How.
        objective: What training makes small.
        seed: Everything random derives from it.
        device: Where tensors are computed.
        idle: Trainable parameters that no gradient reaches.
    """

    def __init__(
        self,
        module: nn.Module,
        holders: Mapping[int, Samples],
        settings: LocalSettings,
        objective: Objective | None = None,
        *,
        seed: int,
        device: str = "cpu",
        idle: Collection[str] = (),
    ):
        self.model = FlatModel(copy.deepcopy(module).to(device), idle=idle)
        self.holders, self.settings, self.objective = dict(holders), settings, objective or Objective()
        self.seed, self.device = seed, device
        self._wide: dict[int, Any] = {}  # WideModels by number of copies, built when the first group needs one

    def groups(self, tasks: Sequence[Task]) -> list[tuple[int, ...]]:
        """Return the places in `tasks` that are trained together, which no number of workers changes."""
        together = self.settings.together if self._can_widen() else 1
        alike: dict[tuple[int, ...], list[int]] = {}
        for place, task in enumerate(tasks):
            sizes = tuple(batch_sizes(len(self.holders[task.device]), self.settings)) if together > 1 else (place,)
            alike.setdefault(sizes, []).append(place)
        groups = [tuple(places[i : i + together]) for places in alike.values() for i in range(0, len(places), together)]
        return sorted(groups)

    def _can_widen(self) -> bool:
        """Tell whether several devices can be trained at once, and are to be."""
        if self.settings.together == 1 or not self.settings.is_flat or self.objective != Objective(cross_entropy):
            return False
        from aircomp.device.together import can_widen  # devices are trained one by one unless asked for

        return can_widen(self.model.module)

    def run_group(
        self, tasks: Sequence[Task], weights: Float[Tensor, " params"], buffers: Float[Tensor, " buffers"]
    ) -> list[LocalResult]:
        """Train the devices of one of the `groups`; see `run`."""
        if len(tasks) == 1:
            return [self.run(tasks[0], weights, buffers)]
        from aircomp.device.together import WideModel, train_together

        if len(tasks) not in self._wide:
            self._wide[len(tasks)] = WideModel(self.model, len(tasks))
        results = train_together(
            self._wide[len(tasks)],
            weights.to(self.device),
            [(buffers if task.own_buffers is None else task.own_buffers).to(self.device) for task in tasks],
            [self.holders[task.device] for task in tasks],
            self.settings,
            rngs=[rngs.generator(self.seed, "local", task.round_index, task.device) for task in tasks],
            round_index=tasks[0].round_index,
        )
        return [self._checked(task, result) for task, result in zip(tasks, results, strict=True)]

    def run(self, task: Task, weights: Float[Tensor, " params"], buffers: Float[Tensor, " buffers"]) -> LocalResult:
        """Train the task's device from the given global state; the result is on the CPU.

        A model that draws from torch's global generators (dropout, say) draws the same numbers for the same round and
        device, whatever the process has done before.

        Raises:
            TrainingDiverged: If the update is not finite, naming round, device and layer.
            AirCompError: If the model, the loss or the data raises, naming round and device.
        """
        place = (task.round_index, task.device)
        try:
            with rngs.global_state(self.seed, "global", *place, device=self.device):
                result = train(
                    self.model,
                    weights.to(self.device),
                    (buffers if task.own_buffers is None else task.own_buffers).to(self.device),
                    self.holders[task.device],
                    self.settings,
                    self.objective,
                    rng=rngs.generator(self.seed, "local", *place),
                    round_index=task.round_index,
                )
        except ShapeError as error:
            raise ShapeError(f"training {_who(task)} in round {task.round_index + 1}: {error}") from error
        except TrainingDiverged:
            raise
        except ConfigError as error:
            raise ConfigError(f"training {_who(task)} in round {task.round_index + 1}: {error}") from error
        except AirCompError as error:
            raise AirCompError(f"training {_who(task)} in round {task.round_index + 1}: {error}") from error
        except Exception as error:  # an edge: model, loss and data may be the user's own, and fail on one batch of many
            log.debug("training %s failed", _who(task), exc_info=True)
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise AirCompError(f"training {_who(task)} in round {task.round_index + 1} failed: {reason}") from error
        return self._checked(task, result)

    def _checked(self, task: Task, result: LocalResult) -> LocalResult:
        finite = torch.isfinite(result.update)
        if finite.all() and not math.isfinite(result.loss):
            raise TrainingDiverged(
                f"the training loss of {_who(task)} in round {task.round_index + 1} is {result.loss}; expected a finite "
                "number, so check the loss"
            )
        if finite.all():
            return replace(result, update=result.update.cpu(), buffers=result.buffers.cpu())
        layer = self.model.layer_at(int((~finite).nonzero()[0]))
        raise TrainingDiverged(
            f"the update of {_who(task)} in round {task.round_index + 1} is not finite, first in layer {layer}, and its "
            f"loss {part_name(self.objective.step or self.objective.loss)} is {result.loss}; check its data, lower "
            "local.learning_rate or set local.clip_norm"
        )


T = TypeVar("T")


def in_order(groups: Sequence[tuple[int, ...]], results: Sequence[Sequence[T]]) -> list[T]:
    """Return what each group of places gave, in the order of the places.

    >>> in_order([(0, 2), (1,)], [["a", "c"], ["b"]])
    ['a', 'b', 'c']
    """
    places = itertools.chain.from_iterable(groups)
    found = dict(zip(places, itertools.chain.from_iterable(results), strict=True))
    return [found[place] for place in range(len(found))]


def name_of(tasks: Sequence[Task]) -> str:
    """Return how to call the devices of some tasks in a sentence."""
    return ", ".join(_who(task) for task in tasks)


def _who(task: Task) -> str:
    return "the base station" if task.device == BASE_STATION else f"device {task.device}"


@runtime_checkable
class Executor(Protocol):
    """Runs the device tasks of a round and returns their results in the order of the tasks."""

    def map(
        self,
        tasks: Sequence[Task],
        weights: Float[Tensor, " params"],
        buffers: Float[Tensor, " buffers"],
    ) -> list[LocalResult]:
        """Train every task's device from the same global state."""
        ...

    def close(self) -> None:
        """Stop what was started."""
        ...


class SerialExecutor:
    """Trains one device after the other in this process."""

    def __init__(self, trainer: Trainer):
        self.trainer = trainer

    def map(
        self, tasks: Sequence[Task], weights: Float[Tensor, " params"], buffers: Float[Tensor, " buffers"]
    ) -> list[LocalResult]:
        """See `Executor.map`."""
        with one_thread():
            groups = self.trainer.groups(tasks)
            results = [self.trainer.run_group([tasks[i] for i in group], weights, buffers) for group in groups]
        return in_order(groups, results)

    def close(self) -> None:
        """Nothing was started."""


def num_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def make_executor(trainer: Trainer, engine: Engine, num_workers: int, ray_address: str = "") -> Executor:
    """Return the executor for `engine`; 0 workers means one for each core, which is the fastest on a CPU.

    With Ray that is each core of the cluster at `ray_address`, or of this machine where there is no address.
    """
    local_workers = num_workers or (num_cores() if trainer.device == "cpu" else 1)
    if engine == "ray":
        from aircomp.engines.ray import RayExecutor  # each only where it is asked for

        return RayExecutor(trainer, num_workers, ray_address)
    if engine == "serial" or local_workers == 1:
        return SerialExecutor(trainer)
    from aircomp.engines.local import ProcessExecutor

    return ProcessExecutor(trainer, local_workers)
