"""Training between two epochs as one explicit value, and its checkpoint on disk.

Generators are derived from (seed, purpose, epoch, step), so there is no random state to keep. The checkpoint is one
file, replaced atomically: parameters now and at the best epoch, Adam's moments, and the progress.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from aircomp.artefact import read_tensors, write_tensors
from aircomp.errors import ArtefactError
from aircomp.train.recipe import PretrainSettings

MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What Adam keeps for every parameter."""


@dataclass(frozen=True)
class Progress:
    """How far training is."""

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

    def advance(self, loss: float, seconds: float, settings: PretrainSettings) -> "Progress":
        """Return the progress after an epoch that ended with this validation loss."""
        done = replace(self, epoch=self.epoch + 1, seconds=self.seconds + seconds)
        if settings.schedule == "cosine":
            done = replace(done, learning_rate=settings.rate(done.epoch + 1))
        if self.best_loss is None or loss < self.best_loss - settings.tolerance:
            return replace(done, best_loss=loss, best_epoch=done.epoch, since_halving=0)
        waited = self.since_halving + 1
        if settings.schedule == "cosine" or waited < settings.halve_after:
            return replace(done, since_halving=waited)
        return replace(done, since_halving=0, learning_rate=self.learning_rate / 2)

    def ended(self, settings: PretrainSettings) -> str | None:
        """Say why training is over, or None if it goes on."""
        if settings.schedule == "halving" and self.epoch - self.best_epoch >= settings.patience:
            return f"no improvement for {settings.patience} epochs"
        if self.epoch >= settings.epochs:
            return f"{settings.epochs} epochs done"
        if settings.seconds is not None and self.epoch and self.seconds_left(settings) <= 0:
            return f"{settings.seconds:g} seconds spent"
        return None

    def seconds_left(self, settings: PretrainSettings) -> float:
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
    for number, kept in optimizer.state_dict()["state"].items():
        tensors |= {f"adam.{number}.{name}": kept[name] for name in MOMENTS}
    metadata = {"identity": identity, "progress": json.dumps(asdict(state.progress))}
    write_tensors(path, tensors, metadata)


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Adam, identity: str) -> TrainingState | None:
    """Put parameters and moments back in place and return the rest; None if nothing was saved yet.

    Raises:
        ArtefactError: If the file is damaged or belongs to other settings or other fragments.
    """
    if not path.exists():
        return None
    tensors, metadata = read_tensors(path)
    if metadata.get("identity") != identity:
        raise ArtefactError(
            f"{path} was written for other settings or other fragments; resume with the same ones or choose --out"
        )
    try:
        last, best = _part(tensors, "last."), _part(tensors, "best.")
        progress = Progress(**json.loads(metadata["progress"]))
        model.load_state_dict(last)
        groups = optimizer.state_dict()["param_groups"]
        kept: dict[int, dict[str, Tensor]] = {}
        for key, value in _part(tensors, "adam.").items():
            number, name = key.split(".")
            kept.setdefault(int(number), {})[name] = value
        optimizer.load_state_dict({"state": kept, "param_groups": groups})
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ArtefactError(f"{path} is incomplete ({error}); start anew with --overwrite") from None
    return TrainingState(progress, best, last)


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
