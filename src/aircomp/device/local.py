"""Local training on one device (Sec. II-A): E epochs or steps of SGD from the global model, and the difference."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from aircomp.common.settings import NeedsTable, Settings, needs
from aircomp.device.update import FlatModel

Precision = Literal["float32", "bfloat16"]


class LocalSettings(Settings):
    """How a device trains between two rounds."""

    NEEDS: ClassVar[NeedsTable] = {"epochs": needs("steps", 0)}

    epochs: int = Field(default=1, ge=0)
    """Passes over the device's data; the authors' recipe has 3. Ignored when steps is set."""
    steps: int = Field(default=0, ge=0)
    """Number of SGD steps, E in the paper; 0 means: count in epochs."""
    batch_size: int = Field(default=20, ge=1)
    """Samples of one step (the authors' recipes have 16 to 20)."""
    learning_rate: float = Field(default=0.01, gt=0)
    """Local learning rate."""
    momentum: float = Field(default=0.0, ge=0, lt=1)
    """Momentum of the local SGD, started anew each round."""
    weight_decay: float = Field(default=0.0, ge=0)
    """L2 penalty, added to the gradient."""
    clip_norm: float = Field(default=0.0, ge=0)
    """Largest norm of a step's gradient; 0 does not clip."""
    data_fraction: float = Field(default=1.0, gt=0, le=1)
    """Share of the device's data drawn at random each round (0.8 in the authors' recipe)."""
    together: int = Field(default=1, ge=1, le=64)
    """Devices that are computed at once, where their batches have the same sizes. On a CPU, 4 take about 0.8 of the time
    of one by one; results differ in rounding only. A group trains in one worker, so take 2 where workers are many."""
    precision: Precision = "float32"
    """Numbers that the model computes with. bfloat16 keeps 8 bits of every activation and is faster on processors that
    have it; weights, losses and steps stay float32."""

    @model_validator(mode="after")
    def _trains_at_all(self) -> "LocalSettings":
        if self.epochs == 0 and self.steps == 0:
            raise ValueError("epochs and steps are both 0, so devices would never train; set one of them")
        return self


@dataclass(frozen=True)
class LocalResult:
    """What a device holds after local training."""

    update: Float[Tensor, " params"]
    buffers: Float[Tensor, " buffers"]
    loss: float
    """Mean training loss over the steps."""
    num_samples: int
    """Samples seen, with repetition."""


Prepare = Callable[[Tensor, torch.Generator], Tensor]
"""Turns a raw batch of images into the model's input: augmentation and normalisation."""


def train(
    model: FlatModel,
    weights: Float[Tensor, " params"],
    buffers: Float[Tensor, " buffers"],
    images: Tensor,
    labels: Int[Tensor, " samples"],
    settings: LocalSettings,
    prepare: Prepare,
    *,
    rng: torch.Generator,
) -> LocalResult:
    """Train from the global `weights` on one device's samples and return the update Δw."""
    model.load(weights, buffers)
    model.module.train()
    velocity = torch.zeros_like(weights) if settings.momentum else None
    total = torch.zeros((), device=weights.device)
    batches = batch_indices(len(labels), settings, rng=rng)
    for batch in batches:
        batch = batch.to(images.device)
        inputs = prepare(images[batch], rng).to(weights.device)
        with reduced(weights.device, settings.precision):
            logits = model.module(inputs)
        loss = F.cross_entropy(logits.to(weights.dtype), labels[batch].to(weights.device))
        model.gradient.zero_()
        loss.backward()
        if settings.clip_norm:
            model.gradient.mul_(clip_factor(model.gradient.norm(), settings.clip_norm))
        sgd_step(model.weights, model.gradient, velocity, settings)
        total += loss.detach()
    model.check_idle()
    return LocalResult(
        update=model.weights - weights,
        buffers=model.read_buffers(),
        loss=total.item() / len(batches),
        num_samples=sum(len(b) for b in batches),
    )


def reduced(device: torch.device, precision: Precision) -> torch.autocast:
    """Compute what is inside in this precision; float32 leaves everything as it is."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


def clip_factor(norm: Float[Tensor, "*copies"], limit: float) -> Float[Tensor, "*copies"]:
    """Return what a gradient of this norm is multiplied with to be no longer than `limit`, as `clip_grad_norm_` does."""
    return (limit / (norm + 1e-6)).clamp(max=1.0)


@torch.no_grad()
def sgd_step(weights: Tensor, gradient: Tensor, velocity: Tensor | None, settings: LocalSettings) -> None:
    """Take one SGD step in place: weight decay, momentum, in PyTorch's order of operations."""
    if settings.weight_decay:
        gradient.add_(weights, alpha=settings.weight_decay)
    if velocity is not None:
        gradient = velocity.mul_(settings.momentum).add_(gradient)
    weights.add_(gradient, alpha=-settings.learning_rate)


def batch_sizes(num_samples: int, settings: LocalSettings) -> list[int]:
    """Return the number of samples of each step."""
    full, rest = divmod(_num_used(num_samples, settings), settings.batch_size)
    epoch = [settings.batch_size] * full + [rest] * (rest > 0)
    return [epoch[step % len(epoch)] for step in range(num_steps(num_samples, settings))]


def num_steps(num_samples: int, settings: LocalSettings) -> int:
    """Return how many SGD steps a device with so many samples takes in a round.

    >>> num_steps(1_220, LocalSettings(epochs=3, data_fraction=0.8, batch_size=20))
    147
    """
    return settings.steps or settings.epochs * -(-_num_used(num_samples, settings) // settings.batch_size)


def batch_indices(num_samples: int, settings: LocalSettings, *, rng: torch.Generator) -> list[Tensor]:
    """Return the sample indices of each step: shuffled passes over this round's share of the data."""
    used, steps = _num_used(num_samples, settings), num_steps(num_samples, settings)
    share = torch.randperm(num_samples, generator=rng)[:used]
    batches: list[Tensor] = []
    while len(batches) < steps:
        order = share[torch.randperm(used, generator=rng)]
        batches += order.split(settings.batch_size)
    return batches[:steps]


def _num_used(num_samples: int, settings: LocalSettings) -> int:
    """Return how many of its samples a device draws for a round."""
    return max(1, round(settings.data_fraction * num_samples))
