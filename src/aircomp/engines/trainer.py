"""The device side of a round as one value: give it (round, device), get the update.

A `Trainer` holds what every process or node needs once (model, data, partition); a task is a pair of integers.
"""

import copy
import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aircomp.common import rng as rngs
from aircomp.data.augment import random_crop_flip
from aircomp.data.images import ImageData
from aircomp.data.partition import Partition
from aircomp.device.local import LocalResult, LocalSettings, batch_sizes, train
from aircomp.device.together import WideModel, can_widen, train_together
from aircomp.device.update import FlatModel
from aircomp.errors import AirCompError, TrainingDiverged

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
    """Trains any device of the federation; the same bits in every process."""

    def __init__(
        self,
        module: nn.Module,
        data: ImageData,
        partition: Partition,
        settings: LocalSettings,
        *,
        seed: int,
        augment: bool = False,
        device: str = "cpu",
        idle: Collection[str] = (),
    ):
        self.model = FlatModel(copy.deepcopy(module).to(device), idle=idle)
        self.data, self.partition, self.settings = data, partition, settings
        self.seed, self.augment, self.device = seed, augment, device
        self._wide: dict[int, WideModel] = {}  # by number of copies, built when the first group needs it

    def groups(self, tasks: Sequence[Task]) -> list[tuple[int, ...]]:
        """Return the places in `tasks` that are trained together, which no number of workers changes."""
        together = self.settings.together if can_widen(self.model.module) else 1
        alike: dict[tuple[int, ...], list[int]] = {}
        for place, task in enumerate(tasks):
            alike.setdefault(tuple(batch_sizes(len(self._samples(task)), self.settings)), []).append(place)
        groups = [tuple(places[i : i + together]) for places in alike.values() for i in range(0, len(places), together)]
        return sorted(groups)

    def run_group(
        self, tasks: Sequence[Task], weights: Float[Tensor, " params"], buffers: Float[Tensor, " buffers"]
    ) -> list[LocalResult]:
        """Train the devices of one of the `groups`; see `run`."""
        if len(tasks) == 1:
            return [self.run(tasks[0], weights, buffers)]
        if len(tasks) not in self._wide:
            self._wide[len(tasks)] = WideModel(self.model, len(tasks))
        samples = [self._samples(task) for task in tasks]
        results = train_together(
            self._wide[len(tasks)],
            weights.to(self.device),
            [(buffers if task.own_buffers is None else task.own_buffers).to(self.device) for task in tasks],
            [self.data.train_images[own] for own in samples],
            [self.data.train_labels[own] for own in samples],
            self.settings,
            self._prepare,
            rngs=[rngs.generator(self.seed, "local", task.round_index, task.device) for task in tasks],
        )
        return [self._checked(task, result) for task, result in zip(tasks, results, strict=True)]

    def run(self, task: Task, weights: Float[Tensor, " params"], buffers: Float[Tensor, " buffers"]) -> LocalResult:
        """Train the task's device from the given global state; the result is on the CPU.

        A model that draws from torch's global generators (dropout, say) draws the same numbers for the same round and
        device, whatever the process has done before.

        Raises:
            TrainingDiverged: If the update is not finite, naming round, device and layer.
            AirCompError: If the model raises, naming round and device.
        """
        samples = self._samples(task)
        place = (task.round_index, task.device)
        try:
            with rngs.global_state(self.seed, "global", *place, device=self.device):
                result = train(
                    self.model,
                    weights.to(self.device),
                    (buffers if task.own_buffers is None else task.own_buffers).to(self.device),
                    self.data.train_images[samples],
                    self.data.train_labels[samples],
                    self.settings,
                    self._prepare,
                    rng=rngs.generator(self.seed, "local", *place),
                )
        except AirCompError:
            raise
        except Exception as error:  # an edge: the model may be the user's own, and fail on one batch of many
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise AirCompError(f"training {_who(task)} in round {task.round_index} failed: {reason}") from error
        return self._checked(task, result)

    def _samples(self, task: Task) -> Tensor:
        return self.partition.base_station if task.device == BASE_STATION else self.partition.devices[task.device]

    def _prepare(self, images: Tensor, rng: torch.Generator) -> Tensor:
        if self.augment:
            images = random_crop_flip(images, rng=rng)
        return self.data.inputs(images, self.model.module)

    def _checked(self, task: Task, result: LocalResult) -> LocalResult:
        finite = torch.isfinite(result.update)
        if finite.all():
            return replace(result, update=result.update.cpu(), buffers=result.buffers.cpu())
        layer = self.model.layer_at(int((~finite).nonzero()[0]))
        raise TrainingDiverged(
            f"the update of {_who(task)} in round {task.round_index} is not finite, first in layer {layer}; "
            "lower local.learning_rate or set local.clip_norm"
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
