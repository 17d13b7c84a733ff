r"""A bound for lattice codes that let the base station decode sums (compute-and-forward, Nazer and Gastpar 2011).

    devices:      messages [K_a, W] ──► whole numbers 0 … q − 1 ──► one lattice code for all
    base station: the sum of the devices' numbers, without error ──► mean

`lattice-ldpc` is a real code of this kind. A sum must not wrap, so a parameter
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
from aircomp.schemes.base import Broadcast, MeanScheme, Memory, Private, SchemeContext, Sent, new_seed
from aircomp.schemes.outputs import Mean
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import ComputationRateSettings

MOST_LEVELS = 2**16
"""More are finer than noise ever is."""


@dataclass(frozen=True)
class SumsOfDevices:
    """What arrives without error."""

    sums: Float[Tensor, " params"]
    devices: Float[Tensor, " params"]
    """How many devices a sum has."""
    number: int
    """How many devices send."""


@scheme(
    "computation-rate",
    sends="whole numbers, of which sums arrive",
    needs="in phase",
    source="bound: Nazer and Gastpar 2011",
    checked="derived",
    against="½ log2((1 + Γ)/K) bits a channel use",
)
class ComputationRate(MeanScheme):
    """Sums of whole numbers, error-free at the rate of compute-and-forward.

    Args:
        settings: Its options.
        context: What the link is made for.
    """

    settings_class = ComputationRateSettings
    estimates_num_active = False
    side_information = ("the compute-and-forward rate of the channel", "error-free sums at that rate: a bound")

    def __init__(self, settings: ComputationRateSettings, context: SchemeContext | None = None):
        self.settings, self.context, self.uses = settings, context or SchemeContext(), settings.codeword_length

    def broadcast(
        self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator
    ) -> tuple[Broadcast, Private]:
        """Announce the scale of every layer, and a seed."""
        size, length = base_update.numel(), self.settings.fragment_length
        layers = self.context.parameter_layers(size, length).to(base_update.device)
        values = {"scales": layer_scales(base_update, layers) * self.settings.clip, "seed": new_seed(rng)}
        return Broadcast(size, num_slots(size, length) * self.uses, values), base_update

    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Round as many parameters as the rate allows to as many levels; in a slot its silent devices are missing."""
        size, number, slots = broadcast.num_params, len(messages), broadcast.num_uses // self.uses
        levels, sent = best_levels(self._bits(slots, csi), size, number, self.settings.clip)
        chosen = chosen_parameters(broadcast.values["seed"], size, sent)
        layers = take(self.context.parameter_layers(size, self.settings.fragment_length).to(messages.device), chosen)
        drawn = rngs.generator(int(broadcast.values["seed"]), "dither")
        quantizer = Levels(
            levels, broadcast.values["scales"], layers, torch.rand(len(layers), generator=drawn).to(messages)
        )
        values = quantizer.values(quantizer.quantize(take(messages, chosen)))
        speaking = csi.speaking(slots, self.uses)
        spoken = torch.ones_like(values)
        if speaking is not None:  # parameters go through the slots in order
            place = torch.arange(len(layers)) * slots // max(len(layers), 1)
            spoken = speaking[:, place].to(values)
        sums, devices = (put(part.sum(dim=0), chosen, size) for part in (values * spoken, spoken))
        return Sent(
            Turns(torch.ones(number, slots), self.uses),
            put(values * spoken, chosen, size),
            speaking,
            payload=SumsOfDevices(sums, devices, number),
        )

    def _bits(self, slots: int, csi: AtDevices) -> float:
        """Return how many bits the round carries."""
        if csi.over_noise is None:
            raise ConfigError(
                f"uplink = {self.name!r} is a bound by the devices' gains over the noise, which this channel does not tell; "
                "give its AtDevices the field over_noise, or use another uplink"
            )
        rate = sum_rate(csi.over_noise).double()
        if len(rate) > 1:
            rate = rate[slot_blocks(slots, self.uses, csi.block_uses)]
        return float((self.uses * rate.expand(slots)).sum())

    def decode(
        self, received: SumsOfDevices, broadcast: Broadcast, private: Private, csi: AtReceiver
    ) -> tuple[Mean, Memory]:
        """Take the sums as they are."""
        total, devices = received.sums, received.devices
        if self.context.include_base_station:
            total, devices = total + private.to(total), devices + 1
        return Mean(mean=total / devices.clamp(min=1), num_active_hat=float(received.number)), {}


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
