"""An analog signal: fragments as they are, each spread over the channel uses of a slot."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from aircomp.encode.signal import SlotGains


@dataclass(frozen=True)
class Spread:
    """What the devices of a round send: numbers, of which those of a slot share its channel uses."""

    values: Float[Tensor, "devices slots fragment"]
    basis: Float[Tensor, "fragment uses"]
    """Orthonormal rows: a slot has the energy of its fragment."""

    is_complex = False

    @property
    def power(self) -> float:
        """Mean power per channel use, where a slot has an energy of one on average."""
        return 1 / self.basis.shape[1]

    def superpose(self, gains: SlotGains | None) -> Inexact[Tensor, "antennas slots uses"]:
        """Add fragments up first, then spread their sum."""
        if gains is None:
            return (self.values.sum(dim=0) @ self.basis)[None]
        per_slot = gains.of_slots(self.values.shape[1], self.basis.shape[1]).to(self.values.device)
        kind = torch.promote_types(per_slot.dtype, self.values.dtype)
        return torch.einsum("ksa,ksf->asf", per_slot.to(kind), self.values.to(kind)) @ self.basis.to(kind)

    def each(self) -> Iterator[Float[Tensor, "slots uses"]]:
        """Return one device's symbols after the other's."""
        for own in self.values:
            yield own @ self.basis

    def slot_energy(self) -> Float[Tensor, "devices slots"]:
        """Return the energy that each device spends in each slot."""
        return self.values.double().square().sum(dim=2)

    def slot_peak(self) -> Float[Tensor, "devices slots"]:
        """Return the largest energy of one channel use."""
        return torch.stack([own.double().square().amax(dim=1) for own in self.each()])
