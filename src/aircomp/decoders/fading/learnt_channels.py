r"""Channels from pilots: each device has a sequence of its own, so the base station hears them apart.

    pilots of a block ──► matched filters ──► noise (from sequences that nobody has) ──► who is silent ──► LMMSE ──► labels ─┐
                                                                                                        ▲         │
                                                                    least squares with labels and pilots └────────┘

What the matched filter of device $k$ gives is its channel and noise of the variance $s$. With the mean power $v_k$ of its
gains the linear estimate of least error is $\hat h_k v_k/(v_k + s)$, which leaves an error of variance
$v_k s/(v_k + s)$ on every antenna. Counting takes that of all devices for noise. The codewords that it finds are pilots in
their turn, and improve the channels. Powers and noise are estimated.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Complex, Float
from torch import Tensor

from aircomp.common.rng import generator
from aircomp.decoders.base import Decoded
from aircomp.decoders.fading.labels import MIN_NOISE, Sampler, least_squares, log_shares
from aircomp.decoders.fading.receiver import check_complex_codebook, conclude_blocks

SILENT, FALLEN = 0.1, 1e-6
"""Probability that a device is silent in a block, where power control lets devices be silent and where it does not."""
SAMPLES = 4
"""Gains of the round's mean power that a device is given beforehand: with few blocks and antennas its own tell little."""
MIN_POWER = 1e-12
"""Of noise and gains: divisions stay finite."""


@dataclass(frozen=True)
class Learnt:
    """What the pilots of a round tell."""

    channels: Complex[Tensor, "devices blocks antennas"]
    """Zero where a device is silent."""
    speaking: Bool[Tensor, "devices blocks"]
    left: Float[Tensor, "devices blocks"]
    """Variance of the error of each gain."""
    noise_var: float
    """Per complex use and antenna."""


def learn_channels(
    heard: Complex[Tensor, "antennas blocks pairs"],
    sequences: Complex[Tensor, "sequences pairs"],
    num_devices: int,
    *,
    silence: bool,
) -> Learnt:
    """Estimate the channel of every device in every block.

    Args:
        heard: What the antennas heard of each block's pilots.
        sequences: Orthogonal and of equal energy; device k has row k, and at least one row is nobody's.
        num_devices: How many devices there are.
        silence: Whether power control lets devices be silent.
    """
    energy = float(sequences[0].abs().double().square().sum())
    matched = torch.einsum("abu,ku->kba", heard, sequences.conj().to(heard)).to(torch.complex128) / energy
    found, nobody = matched[:num_devices], matched[num_devices:]
    error = max(float(nobody.abs().square().mean()), MIN_POWER)
    power = found.abs().square()
    usual = max(float(power.mean()) - error, MIN_POWER) if power.numel() else MIN_POWER
    speaking = _speaking(power, usual, error, SILENT if silence else FALLEN)
    own = ((power - error) * speaking[:, :, None]).sum((1, 2)).clamp(min=0) + SAMPLES * usual
    own = (own / (speaking.sum(1) * heard.shape[0] + SAMPLES))[:, None] * speaking
    kept = own / (own + error)
    return Learnt((kept[:, :, None] * found).to(heard), speaking, kept * error, energy * error)


def _speaking(
    power: Float[Tensor, "devices blocks antennas"], usual: float, error: float, silent: float
) -> Bool[Tensor, "devices blocks"]:
    """Tell who is more likely to speak than to be silent, for gains of the usual power."""
    antennas, total = power.shape[2], power.sum(2) / error
    log_odds = total * (usual / (usual + error)) - antennas * math.log1p(usual / error) - math.log(silent)
    return log_odds + math.log1p(-silent) > 0


class LearntChannels:
    """Counts by labels, with channels from pilots, which the labels then improve.

    Args:
        codebook: Unit-norm complex codewords, one a row.
        passes: How often channels are improved by the codewords that were found, and codewords found anew.
    """

    def __init__(self, codebook: Complex[Tensor, "codewords pairs"], passes: int):
        self.codebook, self.passes = check_complex_codebook(codebook), passes

    @torch.no_grad()
    def receive(
        self,
        learnt: Learnt,
        received: Sequence[Complex[Tensor, "antennas _ pairs"]],
        popularity: Float[Tensor, " codewords"],
    ) -> list[Decoded]:
        """Count the codewords of every block.

        Args:
            learnt: From the pilots.
            received: The slots of every block that carry none.
            popularity: How often each codeword is chosen, as the base station expects.
        """
        shares, decoded = log_shares(popularity), []
        for index, block in enumerate(received):
            noise_var = max(learnt.noise_var + float(learnt.left[:, index].sum()) / self.codebook.shape[1], MIN_NOISE)
            heard, rng = block.transpose(0, 1), generator(0, "labels", index)
            mean = self._count(Sampler(heard, self.codebook, shares, noise_var, rng), learnt, index)
            number = float(learnt.speaking[:, index].sum())
            decoded += conclude_blocks(mean, learnt.noise_var, [number], (slice(0, len(mean)),))
        return decoded

    def _count(self, sampler: Sampler, learnt: Learnt, index: int) -> Float[Tensor, "slots codewords"]:
        """Find codewords with the channels of the pilots, then improve both in turn."""
        speaking = learnt.speaking[:, index]
        if not speaking.any():
            return sampler.log_share.new_zeros(len(sampler.received), len(self.codebook))
        known, left = learnt.channels[speaking, index], learnt.left[speaking, index]
        noise_var, channels = max(learnt.noise_var, MIN_NOISE), known
        labels = sampler.find(channels)
        for _ in range(self.passes):
            sampler = replace(sampler, noise_var=noise_var)  # the error of the channels is nearly gone
            channels = least_squares(sampler.received, self.codebook, labels.chosen, known, noise_var / left)
            labels = sampler.anneal(sampler.settle(labels.chosen, channels), channels)
        return sampler.expected_counts(labels, channels)
