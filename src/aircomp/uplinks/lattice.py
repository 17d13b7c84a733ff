r"""A bound for lattice codes that let the base station decode sums (compute-and-forward, Nazer and Gastpar 2011).

    devices:      messages [K_a, W] ──► whole numbers 0 … q − 1 ──► one lattice code for all
    base station: the sum of the devices' numbers, without error ──► mean

Non-binary LDPC codes with lattice modulation (Xie et al. 2023) sum numbers in this way. A sum must not wrap, so a parameter
is an element of a field with at least $K(q-1)+1$ of them and takes $\log_2(K(q-1)+1)$ bits. At most
$\tfrac12\log_2((1+\Gamma)/K)$ bits go through a channel use (`channel/capacity.py`). This scheme has exactly these and makes
no error. It chooses the number of levels that catches the most energy, and sends as many parameters as the bits allow; error
feedback keeps the others. Below $\Gamma = K - 1$ nothing arrives.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.channel.capacity import sum_rate
from aircomp.channel.signal import slot_blocks
from aircomp.common import rng as rngs
from aircomp.encode.carrier import chosen_parameters, put, take
from aircomp.encode.turns import Turns
from aircomp.errors import ConfigError
from aircomp.quantize.fragment import num_slots
from aircomp.quantize.levels import Levels, layer_scales
from aircomp.uplinks.base import Announced, MeanScheme, Memory, Sent, UplinkContext, new_seed
from aircomp.uplinks.outputs import Mean

NAME = "compute-forward"
MOST_LEVELS = 2**16
"""More are finer than noise ever is."""


@dataclass(frozen=True)
class Kept:
    """What the base station keeps of a round that it announced."""

    update: Float[Tensor, " params"]
    scales: Float[Tensor, " layers"]
    slots: int


class LatticeUplink(MeanScheme):
    """Sums of whole numbers, error-free at the rate of compute-and-forward.

    Args:
        clip: The largest number, over the root mean square of its layer in the base station's own update.
        fragment_length: Parameters that the digital link puts into a slot.
        uses: Channel uses of a slot.
        context: What the link is made for.
    """

    name = NAME
    estimates_num_active = False
    side_information = ("the compute-and-forward rate of the channel", "error-free sums at that rate: a bound")

    def __init__(self, clip: float, *, fragment_length: int, uses: int, context: UplinkContext | None = None):
        self.clip, self.fragment_length, self.uses = clip, fragment_length, uses
        self.context = context or UplinkContext()

    def broadcast(self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator) -> Announced:
        """Announce the scale of every layer, and a seed."""
        size, slots = base_update.numel(), num_slots(base_update.numel(), self.fragment_length)
        layers = self.context.parameter_layers(size, self.fragment_length).to(base_update.device)
        scales = layer_scales(base_update, layers) * self.clip
        downlink = {"scales": scales, "seed": new_seed(rng)}
        return Announced(size, slots * self.uses, downlink, Kept(base_update, scales, slots))

    def encode(
        self, messages: Float[Tensor, "devices params"], announced: Announced, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Round as many parameters as the rate allows to as many levels; in a slot its silent devices are missing."""
        kept: Kept = announced.kept
        size, number = announced.num_params, len(messages)
        levels, sent = best_levels(self._bits(kept.slots, csi), size, number, self.clip)
        chosen = chosen_parameters(announced.downlink["seed"], size, sent)
        layers = take(self.context.parameter_layers(size, self.fragment_length).to(messages.device), chosen)
        drawn = rngs.generator(int(announced.downlink["seed"]), "dither")
        quantizer = Levels(levels, 1, kept.scales, layers, torch.rand(len(layers), generator=drawn).to(messages))
        values = quantizer.values(quantizer.quantize(take(messages, chosen)))
        speaking = csi.speaking(kept.slots, self.uses)
        spoken = torch.ones_like(values)
        if speaking is not None:  # parameters go through the slots in order
            place = torch.arange(len(layers)) * kept.slots // max(len(layers), 1)
            spoken = speaking[:, place].to(values)
        sums, devices = (put(part.sum(dim=0), chosen, size) for part in (values * spoken, spoken))
        return Sent(
            Turns(torch.ones(number, kept.slots), self.uses),
            put(values * spoken, chosen, size),
            speaking,
            agreed={"sums": sums, "devices": devices, "number": torch.tensor(number)},
        )

    def _bits(self, slots: int, csi: AtDevices) -> float:
        """Return how many bits the round carries."""
        if csi.over_noise is None:
            raise ConfigError(
                f"uplink = {NAME!r} is a bound by the devices' gains over the noise, which this channel does not tell; give "
                "its AtDevices the field over_noise, or use another uplink"
            )
        rate = sum_rate(csi.over_noise).double()
        if len(rate) > 1:
            rate = rate[slot_blocks(slots, self.uses, csi.block_uses)]
        return float((self.uses * rate.expand(slots)).sum())

    def decode(self, received: Tensor, announced: Announced, csi: AtReceiver) -> tuple[Mean, Memory]:
        """Take the sums as they are."""
        total, devices = announced.agreed["sums"], announced.agreed["devices"]
        if self.context.include_base_station:
            total, devices = total + announced.kept.update.to(total), devices + 1
        mean = total / devices.clamp(min=1)
        return Mean(mean=mean, num_active_hat=float(announced.agreed["number"])), {}


def best_levels(bits: float, num_params: int, num_devices: int, clip: float) -> tuple[int, int]:
    r"""Return how many levels a parameter has, and how many parameters are sent: those that catch the most energy.

    Numbers of variance one between $\pm c$ lose $\Delta^2/12$ with levels that are $\Delta = 2c/(q-1)$ apart.

    Args:
        bits: Of the round, the same for every device.
        num_params: Parameters of the update.
        num_devices: Whose sum must not wrap.
        clip: The largest number, $c$.
    """
    best, found = 0.0, (2, 0)
    for exponent in range(1, int(math.log2(MOST_LEVELS)) * 4 + 1):
        levels = round(2 ** (exponent / 4)) + 1
        sent = int(min(num_params, bits / math.log2(num_devices * (levels - 1) + 1))) if num_devices else 0
        caught = sent * (1 - (2 * clip / (levels - 1)) ** 2 / 12)
        if caught > best:
            best, found = caught, (levels, sent)
    return found
