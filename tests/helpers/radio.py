"""Slots of specs' measurements: random QPSK codewords of 32 complex uses, Zipf popularity, ten devices."""

import math

import torch

from aircomp.common.packing import pack
from aircomp.encode.codebook import count, make_codebook
from helpers.draws import draw_indices

NUM_CODEWORDS, USES, DEVICES = 128, 32, 10
POPULARITY = torch.arange(1.0, NUM_CODEWORDS + 1).reciprocal()
POPULARITY /= POPULARITY.sum()


def qpsk(rng):
    return pack(make_codebook("bernoulli", NUM_CODEWORDS, 2 * USES, rng=rng))


def normal(*shape, rng):
    return torch.view_as_complex(torch.randn(*shape, 2, generator=rng)) / math.sqrt(2)


def hear(gains, codebook, snr_db, *, rng, level=1.0):
    """Send a codeword a device and slot.

    Args:
        gains: [antennas, devices, slots], zero where a device is silent.
        codebook: Complex codewords.
        snr_db: Total SNR at equal mean transmit energy.
        rng: Where choices and noise come from.
        level: What gains were divided by.

    Returns:
        What the antennas hear, the counts of those that send, the noise variance of a complex use, everybody's choice.
    """
    antennas, devices, slots = gains.shape
    indices = draw_indices(POPULARITY, slots, devices, rng=rng)
    heard = torch.einsum("aks,ksu->asu", gains, codebook[indices])
    noise_var = devices / (USES * 10 ** (snr_db / 10)) / level**2
    counts = count(indices.where(gains[0] != 0, NUM_CODEWORDS), NUM_CODEWORDS + 1)[:, :NUM_CODEWORDS]
    return heard + math.sqrt(noise_var) * normal(antennas, slots, USES, rng=rng), counts, noise_var, indices
