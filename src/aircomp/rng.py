"""Randomness: one generator for each (seed, purpose, round, device), never a global one.

Deriving instead of drawing in sequence is what makes results independent of the number of workers,
of their order, and of where a run was interrupted.
"""

import hashlib

import torch


def derive_seed(seed: int, purpose: str, *indices: int) -> int:
    """Hash (seed, purpose, indices) to a 63-bit seed; equal inputs give equal seeds on every machine."""
    key = "/".join([str(seed), purpose, *(str(i) for i in indices)])
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little") >> 1


def generator(seed: int, purpose: str, *indices: int, device: str | torch.device = "cpu") -> torch.Generator:
    """Return the generator that belongs to `purpose` at `indices` (a round, a device, …).

    >>> a, b = generator(0, "local", 3, 7), generator(0, "local", 3, 7)
    >>> bool(torch.rand(1, generator=a) == torch.rand(1, generator=b))
    True
    """
    return torch.Generator(device).manual_seed(derive_seed(seed, purpose, *indices))
