"""Shared pilots: slots of a round in which every device sends the same known sequence."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Inexact, Int, Shaped
from torch import Tensor

from aircomp.encode.signal import Codewords, SlotGains
from aircomp.encode.spread import Spread

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


def last_slots(data: int, pilots: int) -> Int[Tensor, " pilots"]:
    """Return the places of pilots behind the data."""
    return torch.arange(data, data + pilots)


def spread_slots(slots: int, pilots: int) -> Int[Tensor, " pilots"]:
    """Return the places of pilots that lie evenly between the data, so that every part of a round has its own.

    >>> spread_slots(100, 4)
    tensor([12, 37, 62, 87])
    """
    return (2 * torch.arange(pilots) + 1) * slots // (2 * max(pilots, 1))


@dataclass(frozen=True)
class WithPilots:
    """A signal and the pilots between its slots."""

    data: Codewords | Spread
    sequence: Float[Tensor, " uses"]
    """Of energy one: what a device spends on a slot on average."""
    places: Int[Tensor, " pilots"]
    """The slots of the round that carry pilots, ascending; data has the others in order."""
    amplitudes: Float[Tensor, " devices"] | None = None
    """What each device multiplies the sequence with; None: one."""

    @property
    def power(self) -> float:
        """That of the data, which pilots have too."""
        return self.data.power

    @property
    def is_complex(self) -> bool:
        """As the data."""
        return self.data.is_complex

    @cached_property
    def _energy(self) -> Float[Tensor, "devices data"]:
        return self.data.slot_energy()

    @property
    def _rows(self) -> Int[Tensor, " data"]:
        return data_slots(self._energy.shape[1] + len(self.places), self.places)

    @property
    def _loud(self) -> Float[Tensor, " devices"]:
        return torch.ones(len(self._energy)) if self.amplitudes is None else self.amplitudes.cpu()

    def superpose(self, gains: SlotGains | None) -> Inexact[Tensor, "antennas slots uses"]:
        """Add up data and pilots."""
        rows = self._rows
        slots = len(rows) + len(self.places)
        data = self.data.superpose(None if gains is None else Rows(gains, slots, rows))
        if gains is None:
            total = self._loud.sum().expand(1, len(self.places))
        else:
            heard = gains.of_slots(slots, len(self.sequence))[:, self.places]
            total = torch.einsum("kpa,k->ap", heard, self._loud.to(heard))
        return self._put(data, total.to(data)[:, :, None] * self.sequence.to(data))

    def each(self) -> Iterator[Inexact[Tensor, "slots uses"]]:
        """Return one device's signal after the other."""
        for own, loud in zip(self.data.each(), self._loud.tolist(), strict=True):
            pilots = (loud * self.sequence.to(own)).expand(len(self.places), -1)
            yield self._put(own[None], pilots[None])[0]

    def slot_energy(self) -> Float[Tensor, "devices slots"]:
        """Return the energy that each device spends in each slot."""
        return self._between(self._energy, float(self.sequence.double().square().sum()))

    def slot_peak(self) -> Float[Tensor, "devices slots"]:
        """Return the largest energy of one channel use."""
        return self._between(self.data.slot_peak(), float(self.sequence.double().square().max()))

    def _between(self, of_data: Tensor, of_pilot: float) -> Tensor:
        pilots = (self._loud.to(of_data).square() * of_pilot)[:, None].expand(-1, len(self.places))
        return self._put(of_data, pilots)

    def _put(self, data: Tensor, pilots: Tensor) -> Tensor:
        return put_between(data, pilots, self._rows, self.places)


def data_slots(slots: int, places: Int[Tensor, " pilots"]) -> Int[Tensor, " data"]:
    """Return the slots of a round that carry no pilots."""
    free = torch.ones(slots, dtype=torch.bool)
    free[places] = False
    return free.nonzero()[:, 0]


def put_between(
    data: Shaped[Tensor, "first data *rest"],
    pilots: Shaped[Tensor, "first pilots *rest"],
    rows: Int[Tensor, " data"],
    places: Int[Tensor, " pilots"],
) -> Shaped[Tensor, "first slots *rest"]:
    """Put pilots into their places, and data into the rows that are left."""
    together = data.new_empty(len(data), len(rows) + len(places), *data.shape[2:])
    together[:, rows], together[:, places] = data, pilots
    return together


@dataclass(frozen=True)
class Rows:
    """Gains of some slots of a round, for a signal that is sent in these."""

    gains: SlotGains
    slots: int
    rows: Int[Tensor, " data"]

    def of_slots(self, num_slots: int, uses: int) -> Inexact[Tensor, "devices data antennas"]:
        """Return the gains of these slots."""
        return self.gains.of_slots(self.slots, uses)[:, self.rows]
