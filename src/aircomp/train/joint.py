r"""Training a joint code on saved rounds: `aircomp pretrain FRAGMENTS… --preset joint-net`.

    Q, popularity ──► JointCode ──► counts · C + noise ──► GAMP in the leading basis ──► error of the mean ──► Adam
    noise, devices ─┘

The loss is the logarithm of the error's energy over that of the mean, so that every SNR weighs the same; errors below
`NEGLIGIBLE` do not count. The channel is that of the scheme: noise by the SNR reference `transmit`, and energies scaled such
that what devices chose has mean one. The decoder is GAMP with a Poisson prior, as it is deployed but for two things: it knows
the number of devices and the rates, and choices are independent. Nothing of it is learned.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.channel.awgn import add_noise, superpose
from aircomp.common import rng as rngs
from aircomp.common.results import Row
from aircomp.common.tensors import moved
from aircomp.decoders.amp.basis import leading_basis
from aircomp.decoders.amp.steps import MIN_NOISE, PreparedCodebook, output_block, pseudo_channel, replace, start
from aircomp.decoders.base import MAX_DEVICES
from aircomp.decoders.net.tempered import CountTable, tempered_posterior
from aircomp.encode.codebook import make_codebook, random_rotation
from aircomp.encode.energy import PEAK
from aircomp.encode.joint_code import JointCode, mean_one
from aircomp.layer.joint_code import JointLayer, untrained
from aircomp.train.batches import Batch, draw, make_batch
from aircomp.train.entry import RunOptions, train_on
from aircomp.train.loop import Loss, Training
from aircomp.train.recipe import JOINT_PRESETS as PRESETS
from aircomp.train.recipe import JointTrainingSettings
from aircomp.train.rounds import TrainingRound, load_rounds, trained_numbers

SNR_DB = (-10.0, -5.0, 0.0, 5.0, 10.0)
"""At which held-out rounds are measured."""
NEGLIGIBLE = 1e-3
"""Of the energy of the mean."""
REMEMBERED = 0.1
"""Standard deviation of the logarithm of the noise by which the code is made, which is that of the round before."""
ITERATIONS, REACH = 10, 12
"""Of message passing, and the counts that it weighs either side of the mode."""
MOST_TESTED = 2_048
"""Slots of a held-out round that are measured."""


def pretrain_joint(
    directories: Sequence[str | Path], settings: JointTrainingSettings, out: str | Path, **options: Unpack[RunOptions]
) -> JointLayer:
    """Train a joint code on fragments directories, and write it to `out`.

    The arguments are those of `aircomp.train.fit.pretrain`, and so are the files in `out`.

    Raises:
        TrainingDiverged: If the loss stops being finite; the best code so far is kept.
    """

    def make(paths: list[Path], **parts: Any) -> _JointTraining:
        return _JointTraining(settings, load_rounds(paths, settings.data, seed=settings.seed), **parts)

    return train_on(directories, settings, out, PRESETS, make, **options)


class _JointTraining(Training[JointCode, JointLayer, Batch, TrainingRound]):
    """The training of a joint code; its loss is the logarithm of the normalised error of the mean."""

    def untrained(self) -> JointCode:
        return untrained(self.settings.joint, self.settings.seed)

    def told(self, saved: TrainingRound) -> Tensor:
        return saved.popularity

    def draw(self, rounds: Sequence[TrainingRound], number: int, slots: Tensor, rng: torch.Generator) -> Batch:
        return draw(rounds[number], slots, self.settings.data, rng=rng)

    def loss(self, batch: Batch, rng: torch.Generator) -> Loss:
        return Loss((error_of_batch(self.model, batch, self.settings.codeword_length, rng=rng) + NEGLIGIBLE).log())

    def wrap(self, model: JointCode, config: dict[str, Any], training: dict[str, Any]) -> JointLayer:
        return JointLayer(model, config=config, training=training)

    def test(self, layer: JointLayer) -> list[Row]:
        return [self._measured(layer, snr_db) for snr_db in SNR_DB]

    @torch.no_grad()
    def _measured(self, layer: JointLayer, snr_db: float) -> Row:
        errors = []
        for number, saved in enumerate(self.rounds.test):
            batch = make_batch(saved, torch.arange(min(saved.num_slots, MOST_TESTED)), snr_db, "round")
            rng = rngs.fixed_generator("test noise", number)
            errors.append(
                float(error_of_batch(layer.code, moved(batch, self.device), self.settings.codeword_length, rng=rng))
            )
        row: Row = {"snr_db": snr_db, "snr_reference": "transmit", "rounds": len(errors)}
        return row | {"update_nmse": sum(errors) / len(errors)}

    @property
    def trained_on(self) -> dict[str, Any]:
        return {"num_active": trained_numbers(self.rounds, self.settings.data)} | super().trained_on


def error_of_batch(code: JointCode, batch: Batch, uses: int, *, rng: torch.Generator) -> Float[Tensor, ""]:
    """Send a batch and estimate the mean; return the energy of its error over that of the mean."""
    words, popularity, num_active = batch.quant_codebook, batch.popularity, batch.num_active
    noise_var = num_active / uses * 10 ** (-batch.snr_db / 10)
    before = noise_var * math.exp(REMEMBERED * float(torch.randn((), generator=rng)))
    base, spread = _drawn(len(words), words.shape[1], uses, rng=rng)
    shaped = code(words, popularity, before, num_active, PEAK, base.to(words), spread.to(words))
    energies = mean_one(shaped.energies, batch.counts.sum(0), PEAK).to(words)
    rows = shaped.directions * energies.sqrt()[:, None]
    received = add_noise(superpose(batch.counts, rows), words.new_full((len(batch.counts),), noise_var), rng=rng)
    if shaped.leaning:
        turn = leading_basis(rows.detach(), popularity, words.shape[1] + 1)
        received, rows = received @ turn, rows @ turn
    found = decode(received, rows, noise_var, expected_counts(batch))
    error = ((found - batch.counts) @ words).square().sum()
    return error / (batch.counts @ words).square().sum().clamp(min=torch.finfo(error.dtype).tiny)


def _drawn(number: int, length: int, uses: int, *, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw the directions of a link: no network gets to know a certain one."""
    return make_codebook("two-bases", number, uses, rng=rng), random_rotation(uses, rng)[:length]


def expected_counts(batch: Batch) -> Float[Tensor, "slots codewords"]:
    """Return what a decoder expects of every slot: how devices chose, and what side information tells of the slot."""
    shares = batch.counts.sum(0) + 1
    ratio = 0.0 if batch.log_ratio is None else batch.log_ratio
    return batch.num_active * torch.softmax(shares.log() + ratio, dim=-1).expand_as(batch.counts)


def decode(
    received: Float[Tensor, "slots uses"],
    codebook: Float[Tensor, "codewords uses"],
    noise_var: float,
    rate: Float[Tensor, "slots codewords"],
) -> Float[Tensor, "slots codewords"]:
    """Return the soft counts of GAMP, with gradients."""
    book, noise = PreparedCodebook.of(codebook), received.new_full((len(received), 1), max(noise_var, MIN_NOISE))
    table = CountTable.of(REACH, max(2 * REACH, math.ceil(4 * float(rate[0].sum()))), received)
    one, s = received.new_ones(()), start(received, rate)
    for _ in range(ITERATIONS):
        s = output_block(s, received, book, noise)
        R, V = pseudo_channel(s, received, book, noise)
        post = tempered_posterior(R.clamp(max=MAX_DEVICES), V, rate.log(), one, table)
        s = replace(s, x_hat=post.mean, nu=post.var)
    return s.x_hat
