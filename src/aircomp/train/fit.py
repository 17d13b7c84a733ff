"""Training codebook and decoder end to end (Sec. III-E, Hyper-parameters): `aircomp pretrain`.

An epoch is a number of optimiser steps (`train/step.py`) and one validation; after each, everything is on disk. Under
torchrun several processes share the batches of every step (`train/distributed.py`).
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aircomp.common import artefact, results
from aircomp.common import rng as rngs
from aircomp.common.checks import check_callable, check_device, check_number, check_path, check_type
from aircomp.common.interrupt import deferred
from aircomp.common.memory import check_memory
from aircomp.common.outdir import as_directory
from aircomp.errors import AirCompError, ConfigError, TrainingDiverged
from aircomp.fl.journal import Journal, open_run, read_metrics
from aircomp.layer import CommunicationLayer
from aircomp.train import loss as losses
from aircomp.train.distributed import Gradients, Team, team
from aircomp.train.held_out import measure_layer
from aircomp.train.recipe import PretrainSettings, read_toml
from aircomp.train.rounds import Batch, Split, blocks, choose_slots, draw, load_rounds, make_batch
from aircomp.train.state import Progress, TrainingState, load_checkpoint, save_checkpoint
from aircomp.train.step import LayerModel, batch_loss, train_step

Record = dict[str, Any]
TERMS = [field.name for field in fields(losses.Terms)]


def pretrain(
    directories: Sequence[str | Path],
    settings: PretrainSettings,
    out: str | Path,
    *,
    on_epoch: Callable[[Record], None] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "cpu",
    batches_per_step: int | None = None,
) -> CommunicationLayer:
    """Train a communication layer on fragments directories and write it to `out`.

    At any time `out` holds the best layer so far; `out/last` holds the last one when training ends.

    Args:
        directories: One or more fragments directories.
        settings: The recipe; `aircomp.train.recipe.load_preset` has some.
        out: The layer directory, with config.toml, metrics.jsonl, checkpoint and result.json beside the layer.
        on_epoch: Called with each epoch's record.
        resume: Continue an interrupted training; it ends with the same bits as an uninterrupted one.
        overwrite: Replace what is in `out`.
        device: Where to compute.
        batches_per_step: Batches whose mean gradient a step of the optimiser follows (paper: 1); by default one for each
            process that torchrun started. The same number gives the same training on any number of processes.

    Raises:
        TrainingDiverged: If the loss stops being finite; the best layer so far is kept.
    """
    check_type("directories", directories, (list, tuple), "a list of fragments directories")
    if not directories:
        raise ConfigError("directories is empty; expected at least one fragments directory")
    for path in directories:
        check_path("directories", path)
    check_path("out", out)
    check_type("settings", settings, PretrainSettings, "PretrainSettings, such as load_preset('short')")
    check_device("device", device)
    if batches_per_step is not None:
        check_number("batches_per_step", batches_per_step, low=1, high=65_536, integer=True)
    if on_epoch is not None:
        check_callable("on_epoch", on_epoch, "of a record")
    with team() as processes:
        directory = as_directory(out)
        split = load_rounds([Path(d) for d in directories], settings.data, seed=settings.seed)
        if settings.loss.quantization and any(r.mean_fragments is None for r in [*split.train, *split.validation]):
            raise ConfigError("loss.quantization needs raw fragments, which some rounds lack; collect with --raw")
        check_memory(settings.memory_needs(split.num_codewords))
        if batches_per_step is None:
            batches_per_step = processes.size
        training = _Training(settings, split, directory, device, on_epoch, batches_per_step, processes)
        if not processes.leads:
            return training.run(resume=resume)
        with open_run(directory, settings, command="pretrain", resume=resume, overwrite=overwrite, read=read_toml):
            return training.run(resume=resume)


@dataclass
class _Training:
    """One training's parts, so that `run` reads as the loop that it is."""

    settings: PretrainSettings
    split: Split
    out: Path
    device: str
    on_epoch: Callable[[Record], None] | None
    batches_per_step: int
    team: Team

    def __post_init__(self) -> None:
        settings, data = self.settings, self.settings.data
        self.device = self.team.device(self.device)
        self.model = LayerModel(settings, self.split.num_codewords).to(self.device)
        learned = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(learned, lr=settings.learning_rate)
        self.gradients = Gradients(learned, self.batches_per_step, self.team)
        rng = rngs.generator(settings.seed, "training slots")
        self.slots = choose_slots(self.split.train, data.train_samples, data.batch_slots, rng=rng)
        self.validation = validation_batches(self.split, settings)
        self.checkpoint = self.out / "checkpoint" / "training.safetensors"
        popularities = [r.popularity for r in [*self.split.train, *self.split.validation]]
        identity = [settings.identity, artefact.tensor_hash(*popularities)]
        # steps of one batch, the usual ones, do not say so: trainings begun before there were others can be resumed
        identity += [self.batches_per_step] if self.batches_per_step > 1 else []
        self.identity = artefact.config_hash(identity)
        if not self._plan(epoch=1):
            raise ConfigError(
                f"batches_per_step = {self.batches_per_step}, but an epoch has fewer batches; lower it or data.batch_slots"
            )

    def run(self, *, resume: bool) -> CommunicationLayer:
        state = load_checkpoint(self.checkpoint, self.model, self.optimizer, self.identity) if resume else None
        if state is None:
            state = TrainingState(Progress(self.settings.rate(1)), {}, {})
        self._check_replicas(state.progress, f"not all processes see {self.out}; put --out where they all can read it")
        journal = self._journal(state.progress)
        try:
            while state.progress.ended(self.settings) is None:
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
            if not self.team.agrees(artefact.tensor_hash(epoch, *self.model.state_dict().values())):
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
        after = progress.advance(validated["loss"], seconds, self.settings)
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
            "seconds_left": after.seconds_left(self.settings),
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
        data = self.settings.data
        plan = blocks(self.slots, data.batch_slots, rng=rngs.generator(self.settings.seed, "batches", epoch))
        if self.settings.samples_per_epoch is not None:
            plan = plan[: -(-self.settings.samples_per_epoch // data.batch_slots)]
        return plan[: len(plan) // self.batches_per_step * self.batches_per_step]

    def _train(self, epoch: int) -> dict[str, float]:
        settings, plan = self.settings, self._plan(epoch)
        self.model.train()
        found = []
        for place, (number, slots) in self.team.share(list(enumerate(plan))):
            rng = rngs.generator(settings.seed, "training channel", epoch, place)
            batch = draw(self.split.train[number], slots, settings.data, rng=rng).to(self.device)
            terms = train_step(self.model, self.optimizer, batch, settings, rng=rng, gradients=self.gradients)
            found.append(_numbers(terms))
        return self._mean(found, len(plan)) | {"samples": sum(len(slots) for _, slots in plan)}

    @torch.no_grad()
    def _validate(self) -> dict[str, float]:
        self.model.eval()
        found = []
        for place, batch in self.team.share(list(enumerate(self.validation))):
            rng = rngs.generator(self.settings.seed, "validation noise", place)
            found.append(_numbers(batch_loss(self.model, batch.to(self.device), self.settings.loss, rng=rng)))
        return self._mean(found, len(self.validation))

    def _mean(self, found: Sequence[list[float]], total: int) -> dict[str, float]:
        """Average every term over the batches of all processes."""
        mine = torch.tensor(found, dtype=torch.float64).view(len(found), len(TERMS))
        means = {
            name: statistics.fmean(c)
            for name, c in zip(TERMS, self.team.interleave(mine, total).T.tolist(), strict=True)
        }
        return {"loss": means.pop("total"), **means}

    def _layer(self, progress: Progress, parameters: dict[str, Tensor]) -> CommunicationLayer:
        """Make a layer of some parameters."""
        model = LayerModel(self.settings, self.split.num_codewords).to(self.device)
        model.load_state_dict(parameters)
        model.eval().requires_grad_(False)
        training = {
            "epochs": progress.epoch,
            "best_epoch": progress.best_epoch,
            "validation_loss": progress.best_loss,
            "seconds": round(progress.seconds, 1),
            "ended": progress.ended(self.settings),
            "batches_per_step": self.batches_per_step,
            "num_active": self.split.num_active,
            "rounds": self.split.names,
        }
        config = self.settings.model_dump(mode="json")
        return CommunicationLayer(model.codebook(), model.net, config=config, training=training)

    def _finish(self, state: TrainingState) -> CommunicationLayer:
        """Measure the best layer on the held-out rounds, and write it with what was found."""
        layer = self._layer(state.progress, state.best)
        rows = measure_layer(layer, self.split.test, self.settings.data, seed=self.settings.seed)
        layer.training["test"] = rows
        if self.team.leads:
            layer.save(self.out)
            config = self.settings.model_dump(mode="json")
            results.write_result(self.out / "result.json", "pretrain", config, self.settings.seed, rows)
        return layer

    def _diverged(self, error: TrainingDiverged, progress: Progress) -> TrainingDiverged:
        kept = f"the best layer, of epoch {progress.best_epoch}, is kept in {self.out}"
        if progress.best_epoch == 0:
            kept = "no epoch had ended, so there is no layer"
        return TrainingDiverged(
            f"training diverged in epoch {progress.epoch + 1} ({error}); {kept}; lower learning_rate or set clip_norm"
        )


def validation_batches(split: Split, settings: PretrainSettings) -> list[Batch]:
    """Make the batches that every epoch is judged by: slots drawn once, SNRs spread evenly over the range."""
    data = settings.data
    rng = rngs.generator(settings.seed, "validation slots")
    slots = choose_slots(split.validation, data.validation_samples, data.batch_slots, rng=rng)
    plan = blocks(slots, data.batch_slots, rng=rng)
    found = []
    for place, (number, chosen) in enumerate(plan):
        share = (place + 0.5) / len(plan)
        reference = data.snr_reference
        if reference == "mixed":
            reference = "slot" if place % 2 else "round"
        snr_db = data.snr_db_low + share * (data.snr_db_high - data.snr_db_low)
        found.append(make_batch(split.validation[number], chosen, snr_db, reference))
    return found


def _numbers(terms: losses.Terms) -> list[float]:
    return [float(getattr(terms, name).detach()) for name in TERMS]
