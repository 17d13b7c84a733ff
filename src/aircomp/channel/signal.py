r"""What the devices send in a round: one value for all of them, which knows how to add itself up.

Slots and channel uses are counted as they are sent: slot $i$ of a signal with $l$ uses a slot begins at use $i l$. A
coherence block is a number of uses, so schemes with slots of different lengths meet the same gains at the same time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Inexact, Int
from torch import Tensor

THROUGHOUT = 2**62
"""Channel uses of a block that no round outlasts."""


@dataclass(frozen=True)
class Gains:
    """What the air, and power control before it, do to every device's signal."""

    values: Inexact[Tensor, "devices blocks antennas"]
    block_uses: int
    """Channel uses of a coherence block; the last one may be cut short."""

    def of_slots(self, num_slots: int, uses: int) -> Inexact[Tensor, "devices slots antennas"]:
        """Return the gains of every slot."""
        return self.values[:, slot_blocks(num_slots, uses, self.block_uses)]


def slot_blocks(num_slots: int, uses: int, block_uses: int) -> Int[Tensor, " slots"]:
    """Return the coherence block that every slot begins in."""
    return torch.arange(num_slots) * uses // block_uses


@runtime_checkable
class Signal(Protocol):
    """What a scheme's devices send, real or complex."""

    @property
    def power(self) -> float:
        """What a device is meant to spend per channel use on average.

        The noise under the SNR reference `transmit` follows it, and the meter compares it with what was sent.
        """
        ...

    @property
    def is_complex(self) -> bool:
        """Whether a channel use carries two real numbers."""
        ...

    def superpose(self, gains: Gains | None) -> Inexact[Tensor, "antennas slots uses"]:
        """Add the devices up as every antenna hears them; None means one antenna and gains of one."""
        ...

    def each(self) -> Iterator[Inexact[Tensor, "slots uses"]]:
        """Return one device's signal after the other."""
        ...

    def slot_energy(self) -> Float[Tensor, "devices slots"]:
        """Return the energy that each device spends in each slot, with a gain of one."""
        ...

    def slot_peak(self) -> Float[Tensor, "devices slots"]:
        """Return the largest energy of one channel use, for each device and slot."""
        ...


@dataclass(frozen=True)
class Louder:
    """A signal that all devices send louder, or more quietly, by one factor; what they are meant to spend stays."""

    signal: Signal
    amplitude: float

    @property
    def power(self) -> float:
        """As meant, whatever is sent: the noise must not follow it."""
        return self.signal.power

    @property
    def is_complex(self) -> bool:
        """As the signal."""
        return self.signal.is_complex

    def superpose(self, gains: Gains | None) -> Inexact[Tensor, "antennas slots uses"]:
        """Add up the signal."""
        return self.amplitude * self.signal.superpose(gains)

    def each(self) -> Iterator[Inexact[Tensor, "slots uses"]]:
        """Return one device's signal after the other."""
        return (self.amplitude * own for own in self.signal.each())

    def slot_energy(self) -> Float[Tensor, "devices slots"]:
        """Return the energy that each device spends in each slot."""
        return self.amplitude**2 * self.signal.slot_energy()

    def slot_peak(self) -> Float[Tensor, "devices slots"]:
        """Return the largest energy of one channel use."""
        return self.amplitude**2 * self.signal.slot_peak()


@dataclass(frozen=True)
class InUnits(Louder):
    """A signal in other units of amplitude: what devices are meant to spend, and so the noise, follows it."""

    @property
    def power(self) -> float:
        """In the new units."""
        return self.amplitude**2 * self.signal.power


@dataclass(frozen=True)
class Jammed:
    """A signal in which some devices send something else in place of it."""

    signal: Signal
    jam: "Symbols"
    """Of all devices; zero but for those who jam."""
    devices: Bool[Tensor, " devices"]
    """Who jams."""

    @property
    def power(self) -> float:
        """As the signal."""
        return self.signal.power

    @property
    def is_complex(self) -> bool:
        """As the signal."""
        return self.signal.is_complex

    def superpose(self, gains: Gains | None) -> Inexact[Tensor, "antennas slots uses"]:
        """Add up the signals of those who do not jam, and what the others send."""
        if gains is None:
            gains = Gains(torch.ones(len(self.devices), 1, 1), THROUGHOUT)
        quiet = Gains(
            gains.values.masked_fill(self.devices[:, None, None].to(gains.values.device), 0), gains.block_uses
        )
        return self.signal.superpose(quiet) + self.jam.superpose(gains)

    def each(self) -> Iterator[Inexact[Tensor, "slots uses"]]:
        """Return one device's signal after the other."""
        pairs = zip(self.devices.tolist(), self.signal.each(), self.jam.each(), strict=True)
        return (other if jams else own for jams, own, other in pairs)

    def slot_energy(self) -> Float[Tensor, "devices slots"]:
        """Return the energy that each device spends in each slot."""
        return self._chosen(self.jam.slot_energy(), self.signal.slot_energy())

    def slot_peak(self) -> Float[Tensor, "devices slots"]:
        """Return the largest energy of one channel use."""
        return self._chosen(self.jam.slot_peak(), self.signal.slot_peak())

    def _chosen(self, jam: Tensor, own: Tensor) -> Float[Tensor, "devices slots"]:
        return torch.where(self.devices[:, None].to(own.device), jam.to(own), own)


@dataclass(frozen=True)
class Symbols:
    """A signal of plain symbols, for schemes without a faster way to add up."""

    values: Inexact[Tensor, "devices slots uses"]
    power: float

    @property
    def is_complex(self) -> bool:
        """Whether the symbols are."""
        return self.values.is_complex()

    def superpose(self, gains: Gains | None) -> Inexact[Tensor, "antennas slots uses"]:
        """Add the devices up as every antenna hears them."""
        if gains is None:
            return self.values.sum(dim=0, keepdim=True)
        per_slot = gains.of_slots(*self.values.shape[1:]).to(self.values.device)
        kind = torch.promote_types(per_slot.dtype, self.values.dtype)
        return torch.einsum("ksa,ksu->asu", per_slot.to(kind), self.values.to(kind))

    def each(self) -> Iterator[Inexact[Tensor, "slots uses"]]:
        """Return one device's symbols after the other's."""
        yield from self.values

    def slot_energy(self) -> Float[Tensor, "devices slots"]:
        """Return the energy that each device spends in each slot."""
        return self.values.abs().double().square().sum(dim=2)

    def slot_peak(self) -> Float[Tensor, "devices slots"]:
        """Return the largest energy of one channel use."""
        return self.values.abs().double().square().amax(dim=2)
