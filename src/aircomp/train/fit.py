"""Training codebook and decoder end to end (Sec. III-E, Hyper-parameters): `aircomp pretrain`.

The loop is `train/loop.py`, a step of it `train/step.py`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aircomp.common.results import Row
from aircomp.layer.communication import CommunicationLayer
from aircomp.train import loss as losses
from aircomp.train.batches import Batch, blocks, choose_slots, draw, make_batch, vary
from aircomp.train.entry import train_on
from aircomp.train.held_out import measure_layer
from aircomp.train.loop import Record, Training
from aircomp.train.recipe import PRESETS, PretrainSettings, RoundsSettings
from aircomp.train.rounds import TrainingRound, load_fitting, trained_numbers
from aircomp.train.step import LayerModel, batch_loss

TESTED_DEVICES = 10


def pretrain(
    directories: Sequence[str | Path],
    settings: PretrainSettings,
    out: str | Path,
    *,
    on_epoch: Callable[[Record], None] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    other_arithmetic: bool = False,
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
        other_arithmetic: Continue it also where other kernels or another torch compute than before.
        device: Where to compute.
        batches_per_step: Batches whose mean gradient a step of the optimiser follows (paper: 1); by default one for each
            process that torchrun started. The same number gives the same training on any number of processes.

    Raises:
        TrainingDiverged: If the loss stops being finite; the best layer so far is kept.
    """

    def make(paths: list[Path], **parts: Any) -> _Training:
        return _Training(settings, load_fitting(paths, settings), **parts)

    return train_on(
        directories,
        settings,
        out,
        PRESETS,
        make,
        on_epoch=on_epoch,
        resume=resume,
        other_arithmetic=other_arithmetic,
        overwrite=overwrite,
        device=device,
        batches_per_step=batches_per_step,
    )


class _Training(Training[LayerModel, CommunicationLayer, Batch, TrainingRound]):
    """The training of a communication layer."""

    Terms = losses.Terms

    def untrained(self) -> LayerModel:
        return LayerModel(self.settings, len(self.rounds.train[0].popularity))

    def told(self, saved: TrainingRound) -> Tensor:
        return saved.popularity

    def draw(self, rounds: Sequence[TrainingRound], number: int, slots: Tensor, rng: torch.Generator) -> Batch:
        return draw(rounds[number], slots, self.settings.data, rng=rng)

    def validation_batches(self, *, rng: torch.Generator) -> list[Batch]:
        return validation_batches(self.rounds.validation, self.settings.data, rng=rng)

    def loss(self, batch: Batch, rng: torch.Generator) -> losses.Terms:
        return batch_loss(self.model, batch, self.settings.loss, rng=rng)

    def wrap(self, model: LayerModel, config: dict[str, Any], training: dict[str, Any]) -> CommunicationLayer:
        return CommunicationLayer(model.codebook(), model.net, config=config, training=training)

    def test(self, layer: CommunicationLayer) -> list[Row]:
        data = self.settings.data
        # one noise variance for the round only where it was trained so; ten devices where it was trained for any number
        reference = "round" if data.snr_reference == "round" else "slot"
        devices = None if data.devices_high is None else TESTED_DEVICES
        return measure_layer(
            layer, self.rounds.test, data.test_samples, reference, seed=self.settings.seed, num_devices=devices
        )

    @property
    def trained_on(self) -> dict[str, Any]:
        return {"num_active": trained_numbers(self.rounds, self.settings.data)} | super().trained_on


def validation_batches(rounds: Sequence[TrainingRound], data: RoundsSettings, *, rng: torch.Generator) -> list[Batch]:
    """Make the batches that every epoch is judged by: slots drawn once, SNRs spread evenly over the range."""
    slots = choose_slots(rounds, data.validation_samples, data.batch_slots, rng=rng)
    plan = blocks(slots, data.batch_slots, rng=rng)
    found = []
    for place, (number, chosen) in enumerate(plan):
        reference = data.snr_reference
        if reference == "mixed":
            reference = "slot" if place % 2 else "round"
        snr_db = data.snr_db((place + 0.5) / len(plan))
        found.append(make_batch(*vary(rounds[number], chosen, data, rng=rng), snr_db, reference))
    return found
