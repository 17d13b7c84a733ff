"""What a receiver is: what several antennas heard under unknown gains in, counts of every coherence block out.

A `Decoder` knows one antenna and gains of one; a `Receiver` gets complex numbers of all antennas, and is told which slots
share their gains. Rows of counts sum to the number of devices of their block.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from aircomp.common.radio import GainModel
from aircomp.common.tensors import all_finite
from aircomp.decoders.base import (
    MAX_DEVICES,
    Decoded,
    check_groups,
    check_num_active,
    check_popularity,
    check_unit_norm,
)
from aircomp.decoders.rounding import conclude
from aircomp.decoders.side import FIRST_ITERATIONS, slot_rates
from aircomp.errors import ConfigError, ShapeError

CHUNK = 256
"""Slots decoded at a time: bounds the temporaries, changes nothing else."""
MIN_RATE = 1e-6
"""Expected devices on a codeword, at least: what the base station never chose may still be sent."""

Run = Callable[[Tensor, Float[Tensor, "#slots codewords"], int], Float[Tensor, "slots codewords"]]
"""Soft counts of some slots from what was heard in them, what is expected there, and a number of iterations."""


@dataclass(frozen=True)
class Reception:
    """All that the base station has when it decodes a round."""

    received: Complex[Tensor, "antennas slots uses"]
    popularity: Float[Tensor, " codewords"]
    """The base station's estimate of how often each codeword is chosen."""
    blocks: tuple[slice, ...] = ()
    """The slots of every coherence block, in order; none: the round is one."""
    gain_model: GainModel = field(default_factory=GainModel.unknown_phase)
    """How gains are spread."""
    num_active: float | None = None
    """Number of devices in every block, estimated if not given."""
    noise_var: float | None = None
    """Noise variance per complex use and antenna, estimated if not given."""
    bs_indices: Int[Tensor, " slots"] | None = None
    """The base station's own codeword of each slot (side information)."""
    slot_layers: Int[Tensor, " slots"] | None = None
    """The parameter tensor each slot belongs to (side information)."""

    @property
    def all_blocks(self) -> tuple[slice, ...]:
        """The slots of every coherence block."""
        return self.blocks or (slice(0, self.received.shape[1]),)


@runtime_checkable
class Receiver(Protocol):
    """Anything with these is a receiver."""

    @property
    def side_information(self) -> tuple[str, ...]:
        """What it is told outside the radio, in words."""
        ...

    def receive(self, seen: Reception) -> list[Decoded]:
        """Estimate the counts of every block; every finite signal has a finite result."""
        ...


def check_reception(seen: Reception, codebook: Complex[Tensor, "codewords uses"]) -> Reception:
    """Check what a receiver is given, and bring it into range: the popularity sums to one, no slot exceeds `MAX_DEVICES`.

    Raises:
        ShapeError: If shapes do not fit, the signal is not finite, or the popularity is no distribution.
        ConfigError: If `num_active` is no number of devices.
    """
    received, popularity = seen.received, seen.popularity
    n, uses = codebook.shape
    if not received.is_complex() or received.ndim != 3 or received.shape[2] != uses or received.shape[0] == 0:
        raise ShapeError(
            f"received is {received.dtype} {list(received.shape)}; expected complex [antennas, slots, {uses}]"
        )
    if not all_finite(torch.view_as_real(received)):
        raise ShapeError("received holds values that are not finite; check the channel before decoding")
    popularity = check_popularity(popularity, n).float()
    if seen.num_active is not None:
        check_num_active(seen.num_active)
    for name, groups in (("slot_layers", seen.slot_layers), ("bs_indices", seen.bs_indices)):
        if groups is not None:
            check_groups(groups, received.shape[1], name)
    peak = float(received.abs().max()) * math.sqrt(uses) if received.numel() else 0.0
    if peak > MAX_DEVICES:  # no sum of codewords: all that matters is that results stay finite
        received = received * (MAX_DEVICES / peak)
    return replace(seen, received=received.to(torch.complex64), popularity=popularity)


def expected_counts(num_active: float, popularity: Float[Tensor, " codewords"]) -> Float[Tensor, "1 codewords"]:
    """Return what to expect of every slot."""
    return (num_active * popularity).clamp(min=MIN_RATE)[None]


def soft_counts(
    run: Run,
    heard: Tensor,
    rate: Float[Tensor, "1 codewords"],
    iterations: int,
    *groupings: Int[Tensor, " slots"] | None,
    chunk: int | None = None,
) -> Float[Tensor, "slots codewords"]:
    """Decode all slots, a chunk at a time; with side information twice, the second time with rates from the first.

    Args:
        run: Decodes some slots.
        heard: What was heard, one slot a row.
        rate: What to expect of every slot.
        iterations: Of decoding.
        *groupings: The group of every slot by one property; None is skipped.
        chunk: Slots at a time; by default `CHUNK`.
    """
    size = CHUNK if chunk is None else chunk
    if any(groups is not None for groups in groupings):
        first = _in_chunks(run, heard, rate, min(FIRST_ITERATIONS, iterations), size)
        rate = slot_rates(first, rate[0], *groupings)
    return _in_chunks(run, heard, rate, iterations, size)


def _in_chunks(run: Run, heard: Tensor, rate: Tensor, iterations: int, size: int) -> Tensor:
    mean = rate.new_zeros(len(heard), rate.shape[1])
    for first in range(0, len(heard), size):
        rows = slice(first, first + size)
        mean[rows] = run(heard[rows], rate if len(rate) == 1 else rate[rows], iterations)
    return mean


def check_phase(seen: Reception, name: str) -> None:
    """Check that devices' gains have a common phase, for a receiver that needs one.

    Raises:
        ConfigError: If they have not.
    """
    if seen.gain_model.mean <= 0:
        raise ConfigError(
            f"the receiver {name!r} needs gains of a common phase; use power.control = 'inversion' or 'phase', "
            "or the uplink 'blind'"
        )


def conclude_blocks(
    mean: Float[Tensor, "slots codewords"],
    noise_var: float,
    num_active: Sequence[float | None],
    blocks: tuple[slice, ...],
) -> list[Decoded]:
    """Round the soft counts of every block to its number of devices; None: to what they add up to."""
    noise = mean.new_full((len(mean),), noise_var)
    return [conclude(mean[rows], noise[rows], k) for rows, k in zip(blocks, num_active, strict=True)]


def joined(blocks: list[Decoded]) -> Decoded:
    """Put the blocks of a round together.

    The number of devices is the mean over slots. Soft counts of every block are scaled to that over the blocks in which
    somebody spoke, because their sum says how many devices spoke in the block, not how much the block weighs; the integers
    stay as they are.
    """
    if len(blocks) == 1:
        return blocks[0]
    slots = sum(len(block.mean) for block in blocks)
    devices = sum(block.num_active_hat * len(block.mean) for block in blocks) / max(slots, 1)
    spoken = sum(len(block.mean) for block in blocks if block.num_active_hat >= 0.5)
    each = devices * (slots / max(spoken, 1))
    scaled = [block.mean * (each / block.num_active_hat if block.num_active_hat > 0 else 0) for block in blocks]
    return Decoded(
        counts=torch.cat([block.counts for block in blocks]),
        mean=torch.cat(scaled),
        num_active_hat=devices,
        noise_var=torch.cat([block.noise_var for block in blocks]),
    )


def check_complex_codebook(codebook: Tensor) -> Complex[Tensor, "codewords uses"]:
    """Check that a codebook is a finite complex matrix with unit-norm rows.

    Raises:
        ShapeError: If it is not.
    """
    if not isinstance(codebook, Tensor) or not codebook.is_complex() or codebook.ndim != 2 or codebook.numel() == 0:
        given = f"{codebook.dtype} {list(codebook.shape)}" if isinstance(codebook, Tensor) else type(codebook).__name__
        raise ShapeError(f"codebook is {given}; expected a complex matrix [codewords, uses], such as pack(codebook)")
    check_unit_norm(codebook)
    return codebook
