"""Pilots by which a base station tells devices apart: each device has a sequence of its own, at the start of every block."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Complex, Float, Inexact, Int
from torch import Tensor

from aircomp.encode.pilots import Rows, data_slots, put_between
from aircomp.encode.signal import Codewords, SlotGains
from aircomp.encode.spread import Spread


def own_sequences(pairs: int, energy: float = 1.0) -> Complex[Tensor, "sequences pairs"]:
    """Return as many orthogonal sequences as they have complex uses, all uses alike in power: rows of a Fourier matrix."""
    turns = torch.outer(torch.arange(pairs), torch.arange(pairs)) % pairs * (2 * torch.pi / pairs)
    return torch.polar(torch.full_like(turns, (energy / pairs) ** 0.5), turns)


def first_of_blocks(slots: int, uses: int, pilots: int, block_uses: int) -> Int[Tensor, " places"]:
    """Return the first slots of every coherence block.

    >>> first_of_blocks(10, 64, 2, 4 * 64)
    tensor([0, 1, 4, 5, 8, 9])

    Args:
        slots: Of the round.
        uses: Channel uses of a slot.
        pilots: Slots of every block, fewer where a block ends before.
        block_uses: Channel uses of a block; 0: the round is one.
    """
    block = torch.arange(slots) * uses // (block_uses or max(slots * uses, 1))
    return (torch.arange(slots) - torch.searchsorted(block, block) < pilots).nonzero()[:, 0]


@dataclass(frozen=True)
class WithOwnPilots:
    """Codewords, and pilots between their slots that differ from device to device."""

    data: Codewords
    pilots: Spread
    """One row of values for each pilot slot."""
    places: Int[Tensor, " pilots"]
    """The slots of the round that carry pilots, ascending; data has the others in order."""

    is_complex = False

    @property
    def power(self) -> float:
        """That of the data, which pilots have too."""
        return self.data.power

    @cached_property
    def rows(self) -> Int[Tensor, " data"]:
        """The slots with data."""
        return data_slots(self.data.indices.shape[1] * self.data.repeat + len(self.places), self.places)

    @property
    def _slots(self) -> int:
        return len(self.rows) + len(self.places)

    def superpose(self, gains: SlotGains | None) -> Inexact[Tensor, "antennas slots uses"]:
        """Add up data and pilots, each under the gains of their slots."""
        under = [None if gains is None else Rows(gains, self._slots, rows) for rows in (self.rows, self.places)]
        return self._together(self.data.superpose(under[0]), self.pilots.superpose(under[1]))

    def each(self) -> Iterator[Float[Tensor, "slots uses"]]:
        """Return one device's signal after the other."""
        for own, pilots in zip(self.data.each(), self.pilots.each(), strict=True):
            yield self._together(own[None], pilots[None])[0]

    def slot_energy(self) -> Float[Tensor, "devices slots"]:
        """Return the energy that each device spends in each slot."""
        return self._together(self.data.slot_energy(), self.pilots.slot_energy())

    def slot_peak(self) -> Float[Tensor, "devices slots"]:
        """Return the largest energy of one channel use."""
        return self._together(self.data.slot_peak(), self.pilots.slot_peak())

    def _together(self, data: Tensor, pilots: Tensor) -> Tensor:
        return put_between(data, pilots, self.rows, self.places)
