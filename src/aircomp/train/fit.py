"""Training codebook and decoder end to end (Sec. III-E, Hyper-parameters): `aircomp pretrain`.

An epoch is a number of optimiser steps (`train/step.py`) and one validation; after each, everything is on disk.
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

from aircomp import artefact, results
from aircomp import rng as rngs
from aircomp.errors import ArtefactError, ConfigError, TrainingDiverged
from aircomp.fl.journal import Journal, open_run, read_metrics
from aircomp.layer import CommunicationLayer
from aircomp.train import loss as losses
from aircomp.train.held_out import measure_layer
from aircomp.train.recipe import PretrainSettings, read_toml
from aircomp.train.rounds import Batch, Split, blocks, choose_slots, draw, load_rounds, make_batch
from aircomp.train.state import Progress, TrainingState, load_checkpoint, save_checkpoint
from aircomp.train.step import LayerModel, batch_loss, train_step

Record = dict[str, Any]


def pretrain(
    directories: Sequence[str | Path],
    settings: PretrainSettings,
    out: str | Path,
    *,
    on_epoch: Callable[[Record], None] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "cpu",
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

    Raises:
        TrainingDiverged: If the loss stops being finite; the best layer so far is kept.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device = 'cuda', but this machine or this build of torch has none; use --device cpu")
    directory = Path(out)
    split = load_rounds([Path(d) for d in directories], settings.data, seed=settings.seed)
    if settings.loss.quantization and any(r.mean_fragments is None for r in [*split.train, *split.validation]):
        raise ConfigError("loss.quantization needs raw fragments, which some rounds lack; collect with --raw")
    if (directory / "layer.json").exists() and not (directory / "config.toml").exists() and not overwrite:
        raise ArtefactError(
            f"{directory} holds a communication layer; replace it with --overwrite or choose another --out"
        )
    training = _Training(settings, split, directory, device, on_epoch)
    with open_run(directory, settings, resume=resume, overwrite=overwrite, read=read_toml):
        if not resume:
            for name in ("layer.json", "layer.safetensors"):  # they belong to what is replaced
                (directory / name).unlink(missing_ok=True)
        return training.run(resume=resume)


@dataclass
class _Training:
    """One training's parts, so that `run` reads as the loop that it is."""

    settings: PretrainSettings
    split: Split
    out: Path
    device: str
    on_epoch: Callable[[Record], None] | None

    def __post_init__(self) -> None:
        settings, data = self.settings, self.settings.data
        self.model = LayerModel(settings, self.split.num_codewords).to(self.device)
        learned = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(learned, lr=settings.learning_rate)
        rng = rngs.generator(settings.seed, "training slots")
        self.slots = choose_slots(self.split.train, data.train_samples, data.batch_slots, rng=rng)
        self.validation = validation_batches(self.split, settings)
        self.checkpoint = self.out / "checkpoint" / "training.safetensors"
        popularities = [r.popularity for r in [*self.split.train, *self.split.validation]]
        self.identity = artefact.config_hash([settings.identity, artefact.tensor_hash(*popularities)])

    def run(self, *, resume: bool) -> CommunicationLayer:
        state = load_checkpoint(self.checkpoint, self.model, self.optimizer, self.identity) if resume else None
        if state is None:
            state = TrainingState(Progress(self.settings.learning_rate), {}, {})
        journal = Journal(
            self.out, read_metrics(self.out / "metrics.jsonl", state.progress.epoch, step="epoch"), step="epoch"
        )
        try:
            while state.progress.ended(self.settings) is None:
                state = self._epoch(state, journal)
        except TrainingDiverged as error:
            raise self._diverged(error, state.progress) from None
        finally:  # the end, Ctrl-C or an error
            journal.close()
            if state.progress.epoch:
                self._layer(state.progress, state.last).save(self.out / "last")
        return self._finish(state)

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
        seconds = time.perf_counter() - begun
        after = progress.advance(validated["loss"], seconds, self.settings)
        last = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        best = last if after.best_epoch == number else state.best
        record: Record = {"epoch": number, "learning_rate": progress.learning_rate}
        record |= {f"train_{k}": v for k, v in trained.items() if k != "samples"}
        record |= {f"validation_{k}": v for k, v in validated.items() if k != "samples"}
        record |= {
            "best_epoch": after.best_epoch,
            "seconds": seconds,
            "seconds_left": after.seconds_left(self.settings),
        }
        record["samples_per_second"] = trained["samples"] / seconds_training
        journal.add(record)
        after_epoch = TrainingState(after, best, last)
        save_checkpoint(self.checkpoint, after_epoch, self.optimizer, self.identity)
        if after.best_epoch == number:
            self._layer(after, best).save(self.out)
        if self.on_epoch:
            self.on_epoch(record)
        return after_epoch

    def _train(self, epoch: int) -> dict[str, float]:
        settings, data = self.settings, self.settings.data
        plan = blocks(self.slots, data.batch_slots, rng=rngs.generator(settings.seed, "batches", epoch))
        if settings.samples_per_epoch is not None:
            plan = plan[: -(-settings.samples_per_epoch // data.batch_slots)]
        self.model.train()
        found = []
        for step, (number, slots) in enumerate(plan):
            rng = rngs.generator(settings.seed, "training channel", epoch, step)
            batch = draw(self.split.train[number], slots, data, rng=rng).to(self.device)
            found.append(_numbers(train_step(self.model, self.optimizer, batch, settings, rng=rng)))
        return _mean(found) | {"samples": sum(len(slots) for _, slots in plan)}

    @torch.no_grad()
    def _validate(self) -> dict[str, float]:
        self.model.eval()
        found = []
        for number, batch in enumerate(self.validation):
            rng = rngs.generator(self.settings.seed, "validation noise", number)
            found.append(_numbers(batch_loss(self.model, batch.to(self.device), self.settings.loss, rng=rng)))
        return _mean(found)

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
            "rounds": self.split.names,
        }
        config = self.settings.model_dump(mode="json")
        return CommunicationLayer(model.codebook(), model.net, config=config, training=training)

    def _finish(self, state: TrainingState) -> CommunicationLayer:
        """Measure the best layer on the held-out rounds, and write it with what was found."""
        layer = self._layer(state.progress, state.best)
        rows = measure_layer(layer, self.split.test, self.settings.data, seed=self.settings.seed)
        layer.training["test"] = rows
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


def _numbers(terms: losses.Terms) -> dict[str, float]:
    numbers = {f.name: float(getattr(terms, f.name).detach()) for f in fields(terms)}
    return {"loss": numbers.pop("total"), **numbers}


def _mean(found: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.fmean(each[name] for each in found) for name in found[0]}
