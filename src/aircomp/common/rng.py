"""Randomness: one generator for each (seed, purpose, round, device). No other file makes one (`tests/common/test_rng.py`).

Global generators are used only for code that is not ours. Because generators are derived, not drawn from in sequence,
results do not depend on the number of workers, on their order, or on where a run was interrupted.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

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


def fixed_generator(purpose: str, *indices: int) -> torch.Generator:
    """Return a generator for what is the same in every run whatever its seed: a dataset's split, a table, a test's input."""
    return generator(0, purpose, *indices)


@contextmanager
def global_state(seed: int, purpose: str, *indices: int, device: str | torch.device = "cpu") -> Iterator[None]:
    """Seed torch's global generators from (seed, purpose, indices) inside the block, and restore them after it.

    For code that is not ours and draws from them: the dropout of a user's model, a user's own channel.

    >>> with global_state(0, "dropout", 3):
    ...     first = torch.rand(1)
    >>> with global_state(0, "dropout", 3):
    ...     bool(first == torch.rand(1))
    True
    """
    derived = derive_seed(seed, purpose, *indices)
    place = torch.device(device)
    used = [torch.cuda.current_device() if place.index is None else place.index] if place.type == "cuda" else []
    with torch.random.fork_rng(devices=used):
        # not torch.manual_seed, which would seed every GPU, also those that nobody puts back
        torch.default_generator.manual_seed(derived)
        for index in used:
            torch.cuda.default_generators[index].manual_seed(derived)
        yield


@contextmanager
def as_global(rng: torch.Generator) -> Iterator[None]:
    """Let torch's global generator of `rng`'s device be `rng` inside the block.

    For public functions of torch that take no generator. What they draw, `rng` has drawn.

    >>> rng, again = generator(0, "gamma"), generator(0, "gamma")
    >>> with as_global(rng):
    ...     first = torch.rand(1)
    >>> bool(first == torch.rand(1, generator=again)) and torch.equal(rng.get_state(), again.get_state())
    True
    """
    used = [rng.device.index] if rng.device.type == "cuda" else []
    default = torch.cuda.default_generators[rng.device.index] if used else torch.default_generator
    with torch.random.fork_rng(devices=used):
        default.set_state(rng.get_state())
        yield
        rng.set_state(default.get_state())
