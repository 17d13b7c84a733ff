"""Numbers as energies: each has two tones, one for either sign, and all of its energy is on the tone of its sign.

A tone is a complex channel use. Its phase is random, so nobody needs to know a channel, and several devices add up in power.
"""

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from aircomp.common.packing import pack, unpack

TONES = 2
"""Complex uses of a number."""
USES = 2 * TONES
"""Real uses of a number."""


def to_tones(
    amplitudes: Float[Tensor, "devices slots numbers"], uses: int, rng: torch.Generator
) -> Float[Tensor, "devices slots uses"]:
    """Put every number on the tone of its sign, in a random phase.

    Args:
        amplitudes: With the sign of what they stand for.
        uses: Channel uses of a slot; those behind the last tone stay empty.
        rng: Where phases come from.
    """
    turns = 2 * torch.pi * torch.rand(amplitudes.shape, generator=rng).to(amplitudes.device)
    phase = torch.polar(torch.ones_like(turns), turns)
    tones = torch.stack([amplitudes.clamp(min=0) * phase, amplitudes.clamp(max=0) * phase], dim=3).flatten(2)
    return torch.nn.functional.pad(unpack(tones, 2 * tones.shape[2]), (0, uses - 2 * tones.shape[2]))


def compare_tones(received: Inexact[Tensor, "antennas slots uses"], numbers: int) -> Float[Tensor, "slots numbers"]:
    """Return by how much the energy on the tone for plus exceeds that on the other, on all antennas together.

    Args:
        received: What the antennas heard.
        numbers: Of a slot.
    """
    pairs = received if received.is_complex() else pack(received)
    energy = pairs[:, :, : TONES * numbers].unflatten(2, (-1, TONES)).abs().square().sum(dim=0)
    return energy[..., 0] - energy[..., 1]
