"""The signal of devices that do not share the air: each slot is the turn of one of them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from aircomp.encode.pilots import pilot_sequence
from aircomp.encode.signal import SlotGains


def take_turns(num_devices: int, slots: int, peak: float) -> Float[Tensor, "devices slots"]:
    """Return the energy of each device in each slot: the round's energy goes into its own slots, at most `peak` into one.

    >>> take_turns(2, 4, peak=36.0)
    tensor([[2., 0., 2., 0.],
            [0., 2., 0., 2.]])
    """
    turn = torch.arange(slots) % max(num_devices, 1) == torch.arange(num_devices)[:, None]
    own = turn.sum(dim=1, keepdim=True).clamp(min=1)
    return turn * (slots / own).clamp(max=peak)


@dataclass(frozen=True)
class OwnSlots(ABC):
    """What devices send that do not share slots. Only energies matter here, so all symbols of a slot are alike."""

    energies: Float[Tensor, "devices slots"]
    """Zero in the slots of other devices."""
    uses: int

    is_complex = False

    @property
    def power(self) -> float:
        """Mean power per channel use: a slot has energy one on average."""
        return 1 / self.uses

    def superpose(self, gains: SlotGains | None) -> Inexact[Tensor, "antennas slots uses"]:
        """Return what the antennas hear: in each slot, one device."""
        amplitudes = self.energies.sqrt()
        if gains is None:
            total = amplitudes.sum(dim=0)[None]
        else:
            heard = gains.of_slots(self.energies.shape[1], self.uses)
            total = torch.einsum("ksa,ks->as", heard, amplitudes.to(heard))
        return total[:, :, None] * pilot_sequence(self.uses).to(total)

    def each(self) -> Iterator[Float[Tensor, "slots uses"]]:
        """Return the symbols of one device after the other."""
        for own in self.energies.sqrt():
            yield own[:, None] * pilot_sequence(self.uses).to(own)

    def slot_energy(self) -> Float[Tensor, "devices slots"]:
        """Return the energy that each device spends in each slot."""
        return self.energies.double()

    @abstractmethod
    def slot_peak(self) -> Float[Tensor, "devices slots"]:
        """Return the largest energy of one channel use."""


class Turns(OwnSlots):
    """What devices send that take turns: all symbols have the same size."""

    def slot_peak(self) -> Float[Tensor, "devices slots"]:
        """Return the largest energy of one channel use."""
        return self.energies.double() / self.uses
