r"""The signal of devices that share the air by frequency: each has subcarriers of its own, all of the time.

A slot stands for the uses of some subcarriers, so gains that differ from block to block are those of frequencies. A device
divides its energy over its own slots by water-filling: $e_i = \max(0, \mu - 1/\gamma_i)$ maximises $\sum_i \log(1 + e_i
\gamma_i)$ for a given sum of energies, with the level $\mu$ that the sum sets.

The sum of many subcarriers has peaks in time. With $N$ independent samples the peak of a symbol over the mean power exceeds
$z$ with probability $1 - (1 - e^{-z})^N$.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.common import rng as rngs
from aircomp.encode.turns import OwnSlots


def share_slots(snr: Float[Tensor, "devices slots"]) -> Int[Tensor, " slots"]:
    """Return the device that has each slot: in turn, each takes the slot with its best SNR among those that are left.

    Slots of equal SNR go to the devices one after the other.

    >>> share_slots(torch.tensor([[1.0, 9.0, 1.0, 2.0], [1.0, 9.0, 3.0, 1.0]])).tolist()
    [1, 0, 1, 0]
    """
    devices, slots = snr.shape
    owner = torch.full((slots,), -1)
    wishes, place = [own.argsort(descending=True, stable=True).tolist() for own in snr], [0] * devices
    taken = [False] * slots
    for turn in range(slots if devices else 0):
        device = turn % devices
        while taken[wishes[device][place[device]]]:
            place[device] += 1
        slot = wishes[device][place[device]]
        taken[slot], owner[slot] = True, device
    return owner


def fill(snr: Float[Tensor, "devices slots"], energy: float) -> Float[Tensor, "devices slots"]:
    """Return the energies of the most bits, where each device has so much for all of its slots; none at an SNR of zero."""
    inverse = torch.where(snr > 0, 1 / snr.double().clamp(min=1e-300), torch.inf)
    ordered = inverse.sort(dim=1).values
    number = torch.arange(1, snr.shape[1] + 1, dtype=torch.float64, device=snr.device)
    finite = ordered.isfinite()
    level = (energy + ordered.where(finite, 0.0).cumsum(dim=1)) / number
    # the water stands in as many of the best slots as lie below its level
    used = (finite & (level > ordered)).sum(dim=1, keepdim=True)
    top = level.gather(1, (used - 1).clamp(min=0))
    return (top - inverse).clamp(min=0.0) * (used > 0)


def crest(carriers: Int[Tensor, " own"], number: int, symbols: int, rng: torch.Generator) -> Float[Tensor, " symbols"]:
    """Return the peak of random symbols in time over their mean power.

    Args:
        carriers: Those that the device has.
        number: Of all devices.
        symbols: How many are drawn, of four phases on every carrier.
        rng: Where they come from.
    """
    spectrum = torch.zeros(symbols, number, dtype=torch.complex64)
    quarter = torch.randint(4, (symbols, len(carriers)), generator=rng)
    spectrum[:, carriers] = torch.exp(0.5j * torch.pi * quarter)
    power = torch.fft.ifft(spectrum).abs().square()
    return power.amax(dim=1) / power.mean(dim=1).clamp(min=1e-30)


@dataclass(frozen=True)
class Subcarriers(OwnSlots):
    """What devices send that have subcarriers of their own, each a slot."""

    crests: Float[Tensor, " devices"]
    """The peak of each device in time over its mean power."""

    def slot_peak(self) -> Float[Tensor, "devices slots"]:
        """Return the largest energy of one channel use: in time, where a device sends on all of its subcarriers at once."""
        mean = self.energies.double().mean(dim=1) / self.uses
        return (mean * self.crests.double())[:, None].expand(self.energies.shape)


def draw_crests(owner: Int[Tensor, " slots"], devices: int, carriers: int, symbols: int) -> Float[Tensor, " devices"]:
    """Return the largest crest of each device over some symbols, with the share of the carriers that it has of slots."""
    rng = rngs.fixed_generator("subcarriers", carriers)
    lot = owner[torch.arange(carriers) * len(owner) // carriers] if len(owner) else owner
    found = torch.ones(devices)
    for device in range(devices):
        own = (lot == device).nonzero()[:, 0]
        if len(own):
            found[device] = crest(own, carriers, symbols, rng).amax()
    return found
