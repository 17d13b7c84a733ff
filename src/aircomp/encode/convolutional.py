r"""The convolutional code of rate one half and memory six (generators 133 and 171, octal), and a check of its blocks.

A block of bits is followed by a parity word and six zeros, which bring the encoder back to its first state. Every bit
becomes two symbols of ±1. The parity word is the product of the bits with a random binary matrix, which both sides know.
A wrong block passes this check with probability $2^{-16}$. `decoders/viterbi.py` is the receiver.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aircomp.common import rng as rngs

GENERATORS = (0o133, 0o171)
MEMORY = 6
PARITY = 16
"""Bits of the parity word."""


def taps() -> Bool[Tensor, "outputs register"]:
    """Return which of the last seven bits each output adds up, the newest first."""
    return torch.tensor([[bool(g >> (MEMORY - i) & 1) for i in range(MEMORY + 1)] for g in GENERATORS])


def parity(bits: Bool[Tensor, "*batch bits"]) -> Bool[Tensor, "*batch parity"]:
    """Return the parity word of every block."""
    matrix = torch.randint(2, (bits.shape[-1], PARITY), generator=rngs.fixed_generator("parity")).to(bits.device)
    return (bits.float() @ matrix.float()).remainder(2).bool()


def encode(bits: Bool[Tensor, "*batch bits"]) -> Float[Tensor, "*batch symbols"]:
    """Return the symbols of blocks, parity word and last zeros included; a zero bit that nothing is added to is +1.

    >>> encode(torch.zeros(3, dtype=torch.bool)).shape  # 2 · (3 + 16 + 6)
    torch.Size([50])
    """
    whole = torch.nn.functional.pad(torch.cat([bits, parity(bits)], dim=-1).float(), (MEMORY, MEMORY))
    windows = whole.unfold(-1, MEMORY + 1, 1).flip(-1)  # the newest bit first
    coded = (windows @ taps().float().to(bits.device).T).remainder(2)
    return 1 - 2 * coded.flatten(-2)


def num_symbols(num_bits: int) -> int:
    """Return how many symbols a block of so many bits has."""
    return len(GENERATORS) * (num_bits + PARITY + MEMORY)
