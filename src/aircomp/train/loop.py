"""The loop of every training: epochs of optimiser steps, each with a validation, after which everything is on disk.

Under torchrun several processes share the batches of every step (`train/distributed.py`). What is trained is a subclass:
a communication layer (`train/fit.py`, `train/paper.py`), or the networks of another scheme. `train/entry.py` calls it.
"""

import math
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aircomp.common import artefact, results
from aircomp.common import rng as rngs
from aircomp.common.interrupt import deferred
from aircomp.common.results import Row
from aircomp.common.tensors import moved, tensor_hash
from aircomp.errors import AirCompError, ConfigError, TrainingDiverged
from aircomp.federation.journal import Journal, read_metrics
from aircomp.train.batches import blocks, choose_slots
from aircomp.train.distributed import Gradients, Team
from aircomp.train.recipe import TrainingSettings
from aircomp.train.rounds import R, Split
from aircomp.train.state import Progress, TrainingState, load_checkpoint, save_checkpoint

Record = dict[str, Any]


@runtime_checkable
class Trained(Protocol):
    """What a training makes."""

    training: dict[str, Any]

    def save(self, directory: str | Path) -> None:
        """Write the layer directory."""
        ...


M = TypeVar("M", bound=nn.Module)
L = TypeVar("L", bound=Trained)
B = TypeVar("B")


@dataclass(frozen=True)
class Loss:
    """What training minimises, where it has one term."""

    total: Float[Tensor, ""]


class Training(ABC, Generic[M, L, B, R]):
    """One training's parts, so that `run` reads as the loop that it is.

    Args:
        settings: The recipe.
        rounds: To train on, to choose the best epoch by, and to report on.
        out: The layer directory.
        device: Where to compute.
        on_epoch: Called with each epoch's record.
        batches_per_step: Batches whose mean gradient a step follows.
        team: The processes.
    """

    Terms: type[Any] = Loss
    """The terms of its loss, a dataclass whose `total` is minimised."""

    def __init__(
        self,
        settings: Any,
        rounds: Split[R],
        *,
        out: Path,
        device: str,
        on_epoch: Callable[[Record], None] | None,
        batches_per_step: int | None,
        team: Team,
    ):
        self.settings, self.rounds, self.out, self.on_epoch, self.team = settings, rounds, out, on_epoch, team
        self.recipe: TrainingSettings = settings
        number, size = getattr(settings.data, "train_samples", None), settings.data.batch_slots
        self.slots = choose_slots(rounds.train, number, size, rng=rngs.generator(settings.seed, "training slots"))
        self.batch_slots = self.step_slots()
        self.validation = self.validation_batches(rng=rngs.generator(settings.seed, "validation slots"))
        self.batches_per_step = team.size if batches_per_step is None else batches_per_step
        self.device = team.device(device)
        self.model = self.untrained().to(self.device)
        learned = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(learned, lr=settings.learning_rate)
        self.gradients = Gradients(learned, self.batches_per_step, self.team)
        self.checkpoint = self.out / "checkpoint" / "training.safetensors"
        identity = [
            settings.identity,
            tensor_hash(*(self.told(saved) for saved in [*rounds.train, *rounds.validation])),
        ]
        # steps of one batch, the usual ones, do not say so: trainings begun before there were others can be resumed
        identity += [self.batches_per_step] if self.batches_per_step > 1 else []
        self.identity = artefact.config_hash(identity)
        if not self._plan(epoch=1):
            raise ConfigError(
                f"batches_per_step = {self.batches_per_step}, but an epoch has fewer batches; lower it or data.batch_slots"
            )

    @abstractmethod
    def untrained(self) -> M:
        """Return what is learned, before the first step."""

    @abstractmethod
    def told(self, saved: R) -> Tensor:
        """Return what tells a round from others."""

    @abstractmethod
    def draw(self, rounds: Sequence[R], number: int, slots: Tensor, rng: torch.Generator) -> B:
        """Make a batch of some slots of one of some rounds."""

    @abstractmethod
    def loss(self, batch: B, rng: torch.Generator) -> Any:
        """Send a batch; return the terms of its loss."""

    @abstractmethod
    def wrap(self, model: M, config: dict[str, Any], training: dict[str, Any]) -> L:
        """Make what is trained of parameters that no longer change, with their record."""

    @abstractmethod
    def test(self, layer: L) -> list[Row]:
        """Measure it on held-out rounds."""

    @property
    def trained_on(self) -> dict[str, Any]:
        """What the record of the training says of its rounds."""
        return {"rounds": self.rounds.names}

    def validation_batches(self, *, rng: torch.Generator) -> Sequence[B]:
        """Make the batches that every epoch is judged by: drawn once."""
        data, rounds = self.settings.data, self.rounds.validation
        slots = choose_slots(rounds, data.validation_samples, data.batch_slots, rng=rng)
        plan = blocks(slots, data.batch_slots, rng=rng)
        return [self.draw(rounds, number, chosen, rng) for number, chosen in plan]

    def step_slots(self) -> int:
        """Return how many slots make a batch."""
        return self.settings.data.batch_slots

    def step(self, number: int, slots: Tensor, rng: torch.Generator) -> Any:
        """Take a step, or a part of one, on some slots of a round; return the terms of its loss."""
        terms = self.judge(self.draw(self.rounds.train, number, slots, rng), rng)
        descend(self.model, self.optimizer, terms.total, self.recipe.clip_norm, self.gradients)
        return terms

    def judge(self, batch: B, rng: torch.Generator) -> Any:
        """Return the terms of a batch's loss."""
        return self.loss(moved(batch, self.device), rng)

    def make_layer(self, parameters: dict[str, Tensor], training: dict[str, Any]) -> L:
        """Make what is trained of some parameters."""
        model = self.untrained().to(self.device)
        model.load_state_dict(parameters)
        model.eval().requires_grad_(False)
        return self.wrap(model, self.recipe.model_dump(mode="json"), training)

    def run(self, *, resume: bool) -> L:
        """Train from the start, or from where a checkpoint ends."""
        state = load_checkpoint(self.checkpoint, self.model, self.optimizer, self.identity) if resume else None
        if state is None:
            state = TrainingState(Progress(self.recipe.rate(1)), {}, {})
        self._check_replicas(state.progress, f"not all processes see {self.out}; put --out where they all can read it")
        journal = self._journal(state.progress)
        try:
            while state.progress.ended(self.recipe) is None:
                state = self._epoch(state, journal)
        except TrainingDiverged as error:
            raise self._diverged(error, state.progress) from None
        finally:  # the end, Ctrl-C or an error
            with deferred():
                journal.close()
                if state.progress.epoch and self.team.leads:
                    self._layer(state.progress, state.last).save(self.out / "last")
        return self._finish(state)

    def _journal(self, progress: Progress) -> Journal:
        if not self.team.leads:
            return Journal(None, [], step="epoch")
        return Journal(self.out, read_metrics(self.out / "metrics.jsonl", progress.epoch, step="epoch"), step="epoch")

    def _check_replicas(self, progress: Progress, otherwise: str) -> None:
        """See that all processes have the same parameters, bit by bit, after the same epoch."""
        if self.team.size > 1:
            epoch = torch.tensor(progress.epoch)
            if not self.team.agrees(tensor_hash(epoch, *self.model.state_dict().values())):
                raise AirCompError(otherwise)

    def _epoch(self, state: TrainingState, journal: Journal) -> TrainingState:
        begun = time.perf_counter()
        progress, number = state.progress, state.progress.epoch + 1
        for group in self.optimizer.param_groups:
            group["lr"] = progress.learning_rate
        trained = self._train(number)
        seconds_training = time.perf_counter() - begun
        validated = self._validate()
        if not math.isfinite(validated["loss"]):
            raise TrainingDiverged(f"the validation loss is {validated['loss']:g}")
        seconds = self.team.leaders(time.perf_counter() - begun)  # when time is up, it is up for all
        after = progress.advance(validated["loss"], seconds, self.recipe)
        self._check_replicas(
            after, f"the processes' models differ after epoch {number}; use one kind of machine and torch"
        )
        last = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        best = last if after.best_epoch == number else state.best
        record: Record = {"epoch": number, "learning_rate": progress.learning_rate}
        record |= {f"train_{k}": v for k, v in trained.items() if k != "samples"}
        record |= {f"validation_{k}": v for k, v in validated.items()}
        record |= {
            "best_epoch": after.best_epoch,
            "seconds": seconds,
            "seconds_left": after.seconds_left(self.recipe),
        }
        record["samples_per_second"] = trained["samples"] / seconds_training
        after_epoch = TrainingState(after, best, last)
        if self.team.leads:
            with deferred():
                self._keep(after_epoch, record, journal)
        return after_epoch

    def _keep(self, state: TrainingState, record: Record, journal: Journal) -> None:
        """Put an epoch on disk and tell of it."""
        journal.add(record)
        save_checkpoint(self.checkpoint, state, self.optimizer, self.identity)
        if state.progress.best_epoch == state.progress.epoch:
            self._layer(state.progress, state.best).save(self.out)
        if self.on_epoch:
            self.on_epoch(record)

    def _plan(self, epoch: int) -> list[tuple[int, Tensor]]:
        """Return the batches of an epoch, whole steps of them: numbers of rounds, and slots."""
        plan = blocks(self.slots, self.batch_slots, rng=rngs.generator(self.recipe.seed, "batches", epoch))
        if self.recipe.samples_per_epoch is not None:
            plan = plan[: -(-self.recipe.samples_per_epoch // self.batch_slots)]
        return plan[: len(plan) // self.batches_per_step * self.batches_per_step]

    def _train(self, epoch: int) -> dict[str, float]:
        plan = self._plan(epoch)
        self.model.train()
        found = []
        for place, (number, slots) in self.team.share(list(enumerate(plan))):
            rng = rngs.generator(self.recipe.seed, "training channel", epoch, place)
            found.append(self._numbers(self.step(number, slots, rng)))
        return self._mean(found, len(plan)) | {"samples": sum(len(slots) for _, slots in plan)}

    @torch.no_grad()
    def _validate(self) -> dict[str, float]:
        self.model.eval()
        found = []
        for place, batch in self.team.share(list(enumerate(self.validation))):
            rng = rngs.generator(self.recipe.seed, "validation noise", place)
            found.append(self._numbers(self.judge(batch, rng)))
        return self._mean(found, len(self.validation))

    @property
    def _terms(self) -> list[str]:
        return [field.name for field in fields(self.Terms)]

    def _numbers(self, terms: Any) -> list[float]:
        return [float(getattr(terms, name).detach()) for name in self._terms]

    def _mean(self, found: Sequence[list[float]], total: int) -> dict[str, float]:
        """Average every term over the batches of all processes."""
        mine = torch.tensor(found, dtype=torch.float64).view(len(found), len(self._terms))
        means = {
            name: statistics.fmean(c)
            for name, c in zip(self._terms, self.team.interleave(mine, total).T.tolist(), strict=True)
        }
        return {"loss": means.pop("total"), **means}

    def _layer(self, progress: Progress, parameters: dict[str, Tensor]) -> L:
        """Make what is trained of some parameters, with a record of how far it is."""
        record = {
            "epochs": progress.epoch,
            "best_epoch": progress.best_epoch,
            "validation_loss": progress.best_loss,
            "seconds": round(progress.seconds, 1),
            "ended": progress.ended(self.recipe),
            "batches_per_step": self.batches_per_step,
        }
        return self.make_layer(parameters, record | self.trained_on)

    def _finish(self, state: TrainingState) -> L:
        """Measure the best layer on the held-out rounds, and write it with what was found."""
        layer = self._layer(state.progress, state.best)
        rows = self.test(layer)
        layer.training["test"] = rows
        if self.team.leads:
            layer.save(self.out)
            config = self.recipe.model_dump(mode="json")
            results.write_result(self.out / "result.json", "pretrain", config, self.recipe.seed, rows)
        return layer

    def _diverged(self, error: TrainingDiverged, progress: Progress) -> TrainingDiverged:
        kept = f"the best layer, of epoch {progress.best_epoch}, is kept in {self.out}"
        if progress.best_epoch == 0:
            kept = "no epoch had ended, so there is no layer"
        return TrainingDiverged(
            f"training diverged in epoch {progress.epoch + 1} ({error}); {kept}; lower learning_rate or set clip_norm"
        )


def descend(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    total: Tensor,
    clip_norm: float | None,
    gradients: Gradients | None = None,
) -> None:
    """Follow the gradient of a loss, or leave it to meet those of the step's other batches.

    Args:
        model: What is learned.
        optimizer: Of its parameters.
        total: The loss of a batch.
        clip_norm: The largest norm of a gradient; None: any.
        gradients: Where the gradients of a step's batches meet, if it has more than one.

    Raises:
        TrainingDiverged: If loss or gradient is not finite; the parameters are then left as they were.
    """
    optimizer.zero_grad(set_to_none=True)
    total.backward()
    loss = total.detach()
    if gradients is not None and (loss := gradients.add(loss)) is None:
        return  # other batches complete the step
    norm = nn.utils.clip_grad_norm_(model.parameters(), clip_norm or math.inf)
    if not torch.isfinite(norm + loss):
        raise TrainingDiverged(f"the loss is {float(loss):g} and the gradient's norm {float(norm):g}")
    optimizer.step()
