"""Training codebook and decoder end to end (Sec. III-E, Hyper-parameters): `aircomp pretrain`.

The loop is `train/loop.py`, a step of it `train/step.py`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aircomp.common import rng as rngs
from aircomp.common.memory import check_memory
from aircomp.common.results import Row
from aircomp.common.tensors import moved
from aircomp.errors import ConfigError
from aircomp.layer.communication import CommunicationLayer
from aircomp.train import loss as losses
from aircomp.train.batches import Batch, blocks, choose_slots, draw, make_batch, vary
from aircomp.train.entry import train_on
from aircomp.train.held_out import measure_layer
from aircomp.train.loop import Record, Training
from aircomp.train.recipe import PRESETS, PretrainSettings
from aircomp.train.rounds import Split, load_rounds
from aircomp.train.step import LayerModel, batch_loss, train_step

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
        split = load_rounds(paths, settings.data, seed=settings.seed)
        if settings.loss.quantization and any(r.mean_fragments is None for r in [*split.train, *split.validation]):
            raise ConfigError("loss.quantization needs raw fragments, which some rounds lack; collect with --raw")
        check_memory(settings.memory_needs(split.num_codewords))
        return _Training(settings, split, **parts)

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


class _Training(Training[LayerModel, CommunicationLayer, Batch]):
    """The training of a communication layer."""

    Terms = losses.Terms

    def __init__(self, settings: PretrainSettings, split: Split, **options: Any):
        self.settings, self.split = settings, split
        data = settings.data
        rng = rngs.generator(settings.seed, "training slots")
        super().__init__(
            settings,
            LayerModel(settings, split.num_codewords),
            choose_slots(split.train, data.train_samples, data.batch_slots, rng=rng),
            data.batch_slots,
            validation_batches(split, settings),
            [r.popularity for r in [*split.train, *split.validation]],
            **options,
        )

    def step(self, number: int, slots: Tensor, rng: torch.Generator) -> losses.Terms:
        batch = moved(draw(self.split.train[number], slots, self.settings.data, rng=rng), self.device)
        return train_step(self.model, self.optimizer, batch, self.settings, rng=rng, gradients=self.gradients)

    def judge(self, batch: Batch, rng: torch.Generator) -> losses.Terms:
        return batch_loss(self.model, moved(batch, self.device), self.settings.loss, rng=rng)

    def make_layer(self, parameters: dict[str, Tensor], training: dict[str, Any]) -> CommunicationLayer:
        model = LayerModel(self.settings, self.split.num_codewords).to(self.device)
        model.load_state_dict(parameters)
        model.eval().requires_grad_(False)
        config = self.settings.model_dump(mode="json")
        return CommunicationLayer(model.codebook(), model.net, config=config, training=training)

    def test(self, layer: CommunicationLayer) -> list[Row]:
        data = self.settings.data
        # one noise variance for the round only where it was trained so; ten devices where it was trained for any number
        reference = "round" if data.snr_reference == "round" else "slot"
        devices = None if data.devices_high is None else TESTED_DEVICES
        return measure_layer(
            layer, self.split.test, data.test_samples, reference, seed=self.settings.seed, num_devices=devices
        )

    @property
    def trained_on(self) -> dict[str, Any]:
        return {"num_active": self.split.num_active(self.settings.data), "rounds": self.split.names}


def validation_batches(split: Split, settings: PretrainSettings) -> list[Batch]:
    """Make the batches that every epoch is judged by: slots drawn once, SNRs spread evenly over the range."""
    data = settings.data
    rng = rngs.generator(settings.seed, "validation slots")
    slots = choose_slots(split.validation, data.validation_samples, data.batch_slots, rng=rng)
    plan = blocks(slots, data.batch_slots, rng=rng)
    found = []
    for place, (number, chosen) in enumerate(plan):
        reference = data.snr_reference
        if reference == "mixed":
            reference = "slot" if place % 2 else "round"
        snr_db = data.snr_db((place + 0.5) / len(plan))
        found.append(make_batch(*vary(split.validation[number], chosen, data, rng=rng), snr_db, reference))
    return found
