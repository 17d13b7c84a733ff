"""Shared pilots: slots behind those of the round in which every device sends the same known sequence."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from aircomp.encode.signal import Codewords, SlotGains
from aircomp.encode.spread import Spread


@dataclass(frozen=True)
class WithPilots:
    """A signal and the pilots behind it."""

    data: Codewords | Spread
    sequence: Float[Tensor, " uses"]
    """Of energy one: what a device spends on a slot on average."""
    number: int
    """Slots that it is sent in."""

    @property
    def power(self) -> float:
        """That of the data, which pilots have too."""
        return self.data.power

    @property
    def is_complex(self) -> bool:
        """As the data."""
        return self.data.is_complex

    def superpose(self, gains: SlotGains | None) -> Inexact[Tensor, "antennas slots uses"]:
        """Add up data and pilots."""
        data = self.data.superpose(gains)
        devices, slots = self.data.slot_energy().shape
        if gains is None:
            total = data.new_full((1, self.number), devices)
        else:
            total = gains.of_slots(slots + self.number, len(self.sequence))[:, slots:].sum(dim=0).T.to(data)
        return torch.cat([data, total[:, :, None] * self.sequence.to(data)], dim=1)

    def each(self) -> Iterator[Inexact[Tensor, "slots uses"]]:
        """Return one device's signal after the other."""
        for own in self.data.each():
            yield torch.cat([own, self.sequence.to(own).expand(self.number, -1)])

    def slot_energy(self) -> Float[Tensor, "devices slots"]:
        """Return the energy that each device spends in each slot."""
        return self._behind(self.data.slot_energy(), float(self.sequence.double().square().sum()))

    def slot_peak(self) -> Float[Tensor, "devices slots"]:
        """Return the largest energy of one channel use."""
        return self._behind(self.data.slot_peak(), float(self.sequence.double().square().max()))

    def _behind(self, of_data: Tensor, of_pilot: float) -> Tensor:
        return torch.cat([of_data, of_data.new_full((len(of_data), self.number), of_pilot)], dim=1)


SHARE, FEWEST, MOST = 50, 4, 64
"""Pilots are one slot in fifty, within these bounds: at 0 dB of ten devices, four tell their number to a fifth of one."""


def num_pilots(slots: int) -> int:
    """Return how many slots of a round carry pilots where nobody says how many.

    >>> num_pilots(305), num_pilots(13_487)
    (6, 64)
    """
    return min(max(slots // SHARE, FEWEST), MOST)


def pilot_sequence(uses: int) -> Float[Tensor, " uses"]:
    """Return the pilot: every channel use alike, of energy one together."""
    return torch.full((uses,), uses**-0.5)
