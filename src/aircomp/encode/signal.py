"""The digital link's signal: one codeword in every slot, each slot sent one or several times (Sec. III-B)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Inexact, Integer
from torch import Tensor

from aircomp.encode.codebook import count


@runtime_checkable
class SlotGains(Protocol):
    """What the channel does to every device's signal."""

    def of_slots(self, num_slots: int, uses: int) -> Inexact[Tensor, "devices slots antennas"]:
        """Return the gains of every slot."""
        ...


@dataclass(frozen=True)
class Codewords:
    """What the devices of a round send: which codeword each chose in each slot."""

    indices: Integer[Tensor, "devices slots"]
    codebook: Float[Tensor, "codewords uses"]
    repeat: int = 1
    """How often each slot is sent, one copy behind the other."""

    @property
    def power(self) -> float:
        """Mean power per channel use of codewords of energy one."""
        return 1 / self.codebook.shape[1]

    @property
    def is_complex(self) -> bool:
        """Whether the codewords are."""
        return self.codebook.is_complex()

    def superpose(self, gains: SlotGains | None) -> Inexact[Tensor, "antennas slots uses"]:
        """Add codewords up: the gains of those who chose a codeword first, then one product with the codebook."""
        if gains is None:
            counted = count(self.indices, len(self.codebook)).to(self.codebook.dtype)
            return (counted @ self.codebook).repeat_interleave(self.repeat, dim=0)[None]
        slots, uses = self.indices.shape[1], self.codebook.shape[1]
        per_slot = gains.of_slots(slots * self.repeat, uses).to(self.codebook.device)
        chosen = self.indices.long().repeat_interleave(self.repeat, dim=1)
        return torch.stack([self._weighted(chosen, heard) for heard in per_slot.unbind(2)])

    def _weighted(
        self, chosen: Integer[Tensor, "devices sent"], gains: Inexact[Tensor, "devices sent"]
    ) -> Inexact[Tensor, "sent uses"]:
        """Return what one antenna hears; complex gains of a real codebook go part by part, which halves the work."""
        weights = gains.new_zeros(chosen.shape[1], len(self.codebook)).scatter_add_(1, chosen.T, gains.T)
        if weights.is_complex() and not self.codebook.is_complex():
            return torch.complex(weights.real @ self.codebook, weights.imag @ self.codebook)
        return weights @ self.codebook.to(gains.dtype)

    def each(self) -> Iterator[Float[Tensor, "slots uses"]]:
        """Return one device's codewords after the other's."""
        for chosen in self.indices.long():
            yield self.codebook[chosen].repeat_interleave(self.repeat, dim=0)

    def slot_energy(self) -> Float[Tensor, "devices slots"]:
        """Return the energy of each device's codeword in each slot."""
        return self._of_chosen(self.codebook.double().square().sum(dim=1))

    def slot_peak(self) -> Float[Tensor, "devices slots"]:
        """Return the largest energy of one channel use of it."""
        return self._of_chosen(self.codebook.double().square().amax(dim=1))

    def _of_chosen(self, values: Float[Tensor, " codewords"]) -> Float[Tensor, "devices slots"]:
        return values[self.indices.long()].repeat_interleave(self.repeat, dim=1)
