"""The device side of a round as one value: give it (round, device), get the update.

A `Trainer` holds what every process or node needs once (model, data, partition); a task is a pair of integers.
"""

import copy
from collections.abc import Collection
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aircomp.common import rng as rngs
from aircomp.data.augment import random_crop_flip
from aircomp.data.images import ImageData
from aircomp.data.partition import Partition
from aircomp.device.local import LocalResult, LocalSettings, train
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

    def run(self, task: Task, weights: Float[Tensor, " params"], buffers: Float[Tensor, " buffers"]) -> LocalResult:
        """Train the task's device from the given global state; the result is on the CPU.

        A model that draws from torch's global generators (dropout, say) draws the same numbers for the same round and
        device, whatever the process has done before.

        Raises:
            TrainingDiverged: If the update is not finite, naming round, device and layer.
            AirCompError: If the model raises, naming round and device.
        """
        samples = self.partition.base_station if task.device == BASE_STATION else self.partition.devices[task.device]
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
        self._check_finite(task, result)
        return replace(result, update=result.update.cpu(), buffers=result.buffers.cpu())

    def _prepare(self, images: Tensor, rng: torch.Generator) -> Tensor:
        if self.augment:
            images = random_crop_flip(images, rng=rng)
        return self.data.inputs(images, self.model.module)

    def _check_finite(self, task: Task, result: LocalResult) -> None:
        finite = torch.isfinite(result.update)
        if finite.all():
            return
        layer = self.model.layer_at(int((~finite).nonzero()[0]))
        raise TrainingDiverged(
            f"the update of {_who(task)} in round {task.round_index} is not finite, first in layer {layer}; "
            "lower local.learning_rate or set local.clip_norm"
        )


def _who(task: Task) -> str:
    return "the base station" if task.device == BASE_STATION else f"device {task.device}"
