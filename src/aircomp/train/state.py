"""Training between two epochs as one explicit value, and its checkpoint on disk.

Generators are derived from (seed, purpose, epoch, step), so there is no random state to keep. The checkpoint is one
file, replaced atomically: parameters now and at the best epoch, Adam's moments, and the progress.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError
from torch import Tensor, nn

from aircomp.common.tensors import expect_tensor, read_tensors, write_tensors
from aircomp.errors import ArtefactError
from aircomp.train.recipe import Cosine, Halving, TrainingSettings

MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What Adam keeps for every parameter."""


@dataclass(frozen=True)
class Progress:
    """How far training is."""

    __pydantic_config__ = ConfigDict(allow_inf_nan=False, extra="forbid")  # where it is read from a file

    learning_rate: float
    epoch: int = 0
    """Epochs done."""
    best_epoch: int = 0
    best_loss: float | None = None
    """Lowest validation loss so far, None before the first epoch."""
    since_halving: int = 0
    """Epochs without improvement since the learning rate was last halved."""
    seconds: float = 0.0
    """Spent in training, over all the times it was resumed."""

    def advance(self, loss: float, seconds: float, settings: TrainingSettings) -> "Progress":
        """Return the progress after an epoch that ended with this validation loss."""
        done = replace(self, epoch=self.epoch + 1, seconds=self.seconds + seconds)
        if isinstance(settings.schedule, Cosine):
            done = replace(done, learning_rate=settings.rate(done.epoch + 1))
        if self.best_loss is None or loss < self.best_loss - settings.tolerance:
            return replace(done, best_loss=loss, best_epoch=done.epoch, since_halving=0)
        waited = self.since_halving + 1
        if not isinstance(settings.schedule, Halving) or waited < settings.schedule.halve_after:
            return replace(done, since_halving=waited)
        return replace(done, since_halving=0, learning_rate=self.learning_rate / 2)

    def ended(self, settings: TrainingSettings) -> str | None:
        """Say why training is over, or None if it goes on."""
        schedule = settings.schedule
        if isinstance(schedule, Halving) and self.epoch - self.best_epoch >= schedule.patience:
            return f"no improvement for {schedule.patience} epochs"
        if self.epoch >= settings.epochs:
            return f"{settings.epochs} epochs done"
        if settings.seconds is not None and self.epoch and self.seconds_left(settings) <= 0:
            return f"{settings.seconds:g} seconds spent"
        return None

    def seconds_left(self, settings: TrainingSettings) -> float:
        """Return how long training may still take, to judge by its epochs so far; 0 if the next one would not fit."""
        one = self.seconds / max(self.epoch, 1)
        left = one * (settings.epochs - self.epoch)
        if settings.seconds is not None:
            spare = settings.seconds - self.seconds
            left = min(left, spare if spare >= one else 0.0)
        return left


@dataclass(frozen=True)
class TrainingState:
    """Everything that a resumed training needs."""

    progress: Progress
    best: dict[str, Tensor]
    """Parameters at the best epoch."""
    last: dict[str, Tensor]
    """Parameters at the last epoch."""


def save_checkpoint(path: Path, state: TrainingState, optimizer: torch.optim.Adam, identity: str) -> None:
    """Write all of it in one file."""
    tensors = {f"last.{name}": value for name, value in state.last.items()}
    # a copy: the last epoch may be the best one, and safetensors refuses one memory under two names
    tensors |= {f"best.{name}": value.clone() for name, value in state.best.items()}
    moments = optimizer.state_dict()["state"]
    for number, kept in moments.items():
        tensors |= {f"adam.{number}.{name}": kept[name] for name in MOMENTS}
    metadata = {"identity": identity, "progress": json.dumps(asdict(state.progress)), "moments": json.dumps([*moments])}
    write_tensors(path, tensors, metadata)


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Adam, identity: str) -> TrainingState | None:
    """Put parameters and moments back in place and return the rest; None if nothing was saved yet.

    Raises:
        ArtefactError: If the file is damaged or belongs to other settings or other fragments.
    """
    if not os.path.lexists(path):
        return None
    tensors, metadata = read_tensors(path)
    if metadata.get("identity") != identity:
        raise ArtefactError(
            f"{path} was written for other settings or other fragments; resume with the same ones or choose --out"
        )
    progress = _progress(path, metadata)

    def found(name: str, like: Tensor) -> Tensor:
        return expect_tensor(path, tensors, name, like.dtype, like.shape, REMEDY)

    parameters = model.state_dict()
    last = {name: found(f"last.{name}", like) for name, like in parameters.items()}
    best = {name: found(f"best.{name}", like) for name, like in parameters.items()}
    kept = {}
    learned = dict(enumerate(optimizer.param_groups[0]["params"]))
    for number in _moments(path, metadata, learned):
        like = learned[number]
        moments = {name: found(f"adam.{number}.{name}", like) for name in ("exp_avg", "exp_avg_sq")}
        kept[number] = {
            "step": expect_tensor(path, tensors, f"adam.{number}.step", torch.float32, (), REMEDY)
        } | moments
    model.load_state_dict(last)
    optimizer.load_state_dict({"state": kept, "param_groups": optimizer.state_dict()["param_groups"]})
    return TrainingState(progress, best, last)


def _moments(path: Path, metadata: Mapping[str, str], learned: Mapping[int, Tensor]) -> list[int]:
    """Return the parameters that Adam has moments of: all that ever had a gradient."""
    try:
        found = json.loads(metadata.get("moments", json.dumps([*learned])))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(number, int) and number in learned for number in found):
        raise ArtefactError(f"{path} does not tell which moments it holds; {REMEDY}")
    return found


REMEDY = "start anew with --overwrite"
_PROGRESS = TypeAdapter(Progress)


def _progress(path: Path, metadata: dict[str, str]) -> Progress:
    try:
        return _PROGRESS.validate_json(metadata.get("progress", ""), strict=True)
    except ValidationError:
        raise ArtefactError(f"{path} does not tell how far training is; {REMEDY}") from None
