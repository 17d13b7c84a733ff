r"""Training the paper's layer as published (Sec. III-E): `aircomp pretrain FRAGMENTS… --preset paper`, or `--preset authors`.

    block of a round ── 64 slots ── counts · C + noise ─┐
                     ── 64 slots ── counts · C + noise ─┼─► AmpDaNet, EM by 64 slots ──► loss ──► one step of Adam
                     ── …                               ─┘

An epoch has one block for every training round, and one step of Adam for every block: the gradients of its batches are
accumulated, here by sending them through the network at once (what is left of a block over whole batches is left out).
Samples are drawn once. Each batch draws its SNR.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from aircomp.common import rng as rngs
from aircomp.common.results import Row
from aircomp.decoders.net.amp_da_net import AmpDaNet, NetOutput
from aircomp.encode.learned import LearnedCodebook
from aircomp.errors import ConfigError
from aircomp.layer.communication import CommunicationLayer
from aircomp.train import loss as losses
from aircomp.train.batches import Batch, choose_slots, make_batch
from aircomp.train.entry import RunOptions, train_on
from aircomp.train.held_out import measure_layer
from aircomp.train.loop import Training
from aircomp.train.recipe import PAPER_PRESETS as PRESETS
from aircomp.train.recipe import (
    PaperLossSettings,
    PaperTrainingSettings,
)
from aircomp.train.rounds import TrainingRound, load_fitting, training_files
from aircomp.train.step import send


@dataclass(frozen=True)
class Block:
    """Batches of one round: what one step is taken on."""

    batches: list[Batch]


@dataclass(frozen=True)
class BlockTerms:
    """The terms of a block, unweighted, and their weighted sum."""

    total: Float[Tensor, ""]
    counts: Float[Tensor, ""]
    sparsity: Float[Tensor, ""]
    orthogonality: Float[Tensor, ""]
    activity: Float[Tensor, ""]
    quantization: Float[Tensor, ""]


class PaperModel(nn.Module):
    """Codebook and decoder as one module with all that is learned."""

    def __init__(self, settings: PaperTrainingSettings, num_codewords: int):
        super().__init__()
        rng = rngs.generator(settings.seed, "learned codebook")
        self.codebook = LearnedCodebook(settings.codebook, num_codewords, settings.codeword_length, rng=rng)
        self.net = AmpDaNet(settings.net, rng=rngs.generator(settings.seed, "decoder weights"))
        self.batch_slots, self.noise_follows = settings.data.batch_slots, settings.codebook.noise_follows

    def forward(self, block: Block, *, rng: torch.Generator) -> NetOutput:
        """Send the batches of a block, each at its SNR, and decode them."""
        codebook = self.codebook()
        received = [send(batch, codebook, noise_follows=self.noise_follows, rng=rng) for batch in block.batches]
        return self.net(torch.cat(received), codebook, block.batches[0].popularity, batch_slots=self.batch_slots)


def block_loss(model: PaperModel, block: Block, weights: PaperLossSettings, *, rng: torch.Generator) -> BlockTerms:
    """Send, decode and compare one block (Sec. III-E, Loss Function)."""
    out = model(block, rng=rng)
    counts = torch.cat([batch.counts for batch in block.batches])
    first = block.batches[0]
    error, sparsity = losses.count_error(out.mean, counts), losses.sparsity(out.mean, counts)
    orthogonality = model.codebook.orthogonality()
    activity = (out.total - first.num_active).square().mean()
    left = error.new_zeros(())
    if weights.quantization:
        left = torch.cat([_distortion(batch) for batch in block.batches]).mean()
    total = error + weights.sparsity * sparsity + weights.orthogonality * orthogonality
    total = total + weights.activity * activity + weights.quantization * left
    return BlockTerms(total, error, sparsity, orthogonality, activity, left)


def _distortion(batch: Batch) -> Float[Tensor, " slots"]:
    if batch.distortion is None:
        raise ConfigError("loss.quantization needs raw fragments, which a round lacks; collect with --raw")
    return batch.distortion


def pretrain_paper(
    directories: Sequence[str | Path],
    settings: PaperTrainingSettings,
    out: str | Path,
    **options: Unpack[RunOptions],
) -> CommunicationLayer:
    """Train the paper's layer on fragments directories and write it to `out`; options as of `aircomp.train.fit.pretrain`."""

    def make(paths: list[Path], **parts: Any) -> _Training:
        files = training_files(paths)
        if len(files) < settings.data.min_rounds:
            raise ConfigError(
                f"{len(files)} rounds were given, but data.min_rounds = {settings.data.min_rounds}; collect more rounds, "
                "or lower it"
            )
        return _Training(settings, load_fitting(paths, settings), **parts)

    return train_on(directories, settings, out, PRESETS, make, **options)


def _whole_batches(slots: Int[Tensor, " slots"], size: int) -> list[Int[Tensor, " batch"]]:
    """Cut slots into batches; what does not fill the last one is left out, unless it is the only one."""
    whole = max(len(slots) // size * size, size)
    return list(slots[:whole].split(size)) if len(slots) else []


class _Training(Training[PaperModel, CommunicationLayer, Block, TrainingRound]):
    """The training of the paper's layer."""

    Terms = BlockTerms

    def untrained(self) -> PaperModel:
        return PaperModel(self.settings, len(self.rounds.train[0].popularity))

    def told(self, saved: TrainingRound) -> Tensor:
        return saved.popularity

    def step_slots(self) -> int:
        data = self.settings.data
        return max(map(len, self.slots)) if data.block_batches is None else data.block_batches * data.batch_slots

    def validation_batches(self, *, rng: torch.Generator) -> list[Block]:
        """Draw slots once, and spread SNRs evenly over the range."""
        data, rounds = self.settings.data, self.rounds.validation
        slots = choose_slots(rounds, data.validation_samples, data.batch_slots, rng=rng)
        found, place, total = [], 0, sum(len(_whole_batches(chosen, data.batch_slots)) for chosen in slots)
        for saved, chosen in zip(rounds, slots, strict=True):
            batches = []
            for batch in _whole_batches(chosen, data.batch_slots):
                batches.append(make_batch(saved, batch, data.snr_db((place + 0.5) / total), "slot"))
                place += 1
            found += [Block(batches)] if batches else []
        return found

    def draw(self, rounds: Sequence[TrainingRound], number: int, slots: Tensor, rng: torch.Generator) -> Block:
        data, saved = self.settings.data, rounds[number]
        cut = _whole_batches(slots, data.batch_slots)
        shares = torch.rand(len(cut), generator=rng, dtype=torch.float64).tolist()
        return Block([make_batch(saved, s, data.snr_db(share), "slot") for s, share in zip(cut, shares, strict=True)])

    def loss(self, batch: Block, rng: torch.Generator) -> BlockTerms:
        return block_loss(self.model, batch, self.settings.loss, rng=rng)

    def wrap(self, model: PaperModel, config: dict[str, Any], training: dict[str, Any]) -> CommunicationLayer:
        return CommunicationLayer(model.codebook(), model.net, snr_reference="slot", config=config, training=training)

    def test(self, layer: CommunicationLayer) -> list[Row]:
        data = self.settings.data
        return measure_layer(layer, self.rounds.test, data.test_samples, "slot", seed=self.settings.seed)

    @property
    def trained_on(self) -> dict[str, Any]:
        numbers = [len(r.indices) for r in self.rounds.train]
        return {"num_active": [min(numbers), max(numbers)]} | super().trained_on
