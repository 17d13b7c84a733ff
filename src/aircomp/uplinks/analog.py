r"""Uncoded analog transmission: every device sends its message as it is, and the air adds the messages up.

    base station: own energy of every layer ──► gains (announced)
    devices:      messages [K_a, W] · gain of the layer · common scale ──► spread over slots (`encode/carrier.py`)
    base station: pilots ──► K̂ and noise;  slots ──► sums, undo gains ──► mean

The four schemes differ in how loud they send:

| scheme   | gain of a layer           | the common scale follows         | from                        |
|----------|---------------------------|----------------------------------|-----------------------------|
| `analog` | $g_i \propto E_i^{-1/4}$  | the mean energy of all devices   | this package                |
| `baa`    | the same for all layers   | the mean energy of all devices   | Zhu, Wang and Huang (2020)  |
| `cotaf`  | the same for all layers   | the device with the most energy  | Sery et al. (2021)          |
| `fed-ota` | the same for all layers  | the mean energy of all devices   | Yang et al. (2020)          |

`fed-ota` is `baa` behind a beam that the base station forms, which leaves weak devices out. Power control has all of the
difference (`channel/beams.py`), and every scheme for signals in phase works behind that beam.

Here $E_i$ is the mean square of the parameters of layer $i$. With the gain $g_i$ they cost the energy $g_i^2 E_i$, and their
noise is divided by $g_i^2$. At a given energy, $g_i^2 \propto E_i^{-1/2}$ leaves the least noise in the mean. A layer with
small updates is then amplified, but still arrives weaker than the others.

Messages are not quantised. A slot above the peak limit is sent at the limit. The error memory keeps the rest of it.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.common.settings import Settings
from aircomp.decode.heard_pilots import in_phase
from aircomp.encode.carrier import Carrier, chosen_parameters, make_rotation, put, take
from aircomp.encode.energy import limited, scale_to_one
from aircomp.quantize.levels import layer_gains, layer_means
from aircomp.uplinks.base import (
    LARGEST_ENERGY,
    MEAN_ENERGY,
    Announced,
    MeanScheme,
    Memory,
    Sent,
    UplinkContext,
    new_seed,
)
from aircomp.uplinks.outputs import Mean
from aircomp.uplinks.piloted import check_pilots, hear_devices, plan_round

NO_PEAK = 1e12
"""A limit that no slot reaches, not even if all energy of ten thousand devices and ten million slots were in one."""
LEAST_DEVICES = 0.5
"""The least number of devices that a sum is divided by; fewer would round to none."""
KINDS = ("analog", "baa", "cotaf", "fed-ota")


class AnalogSettings(Settings):
    """Options of analog transmission."""

    gains: Literal["layer", "equal"] = "layer"
    """layer: layers with small updates are sent louder. equal: all layers have the same gain."""
    estimate: Literal["unbiased", "lmmse"] = "unbiased"
    """unbiased: the received mean is taken as it is. lmmse: each layer is shrunk by its share of noise."""


@dataclass(frozen=True)
class Kept:
    """What the base station keeps of a round that it announced."""

    update: Float[Tensor, " params"]
    layers: Int[Tensor, " chosen"]
    gains: Float[Tensor, " chosen"]
    chosen: Int[Tensor, " chosen"] | None
    """The parameters of the round; None: all."""
    carrier: Carrier


class AnalogUplink(MeanScheme):
    """Analog transmission of whole messages.

    Args:
        name: One of `KINDS`.
        settings: Its options.
        fragment_length: Parameters that the digital link puts into a slot.
        uses: Channel uses of a slot.
        peak: The most energy of a device in a slot; the mean is one.
        pilots: How many slots carry pilots; None: `plan_air` decides.
        context: What the link is made for.
    """

    def __init__(
        self,
        name: str,
        settings: AnalogSettings,
        *,
        fragment_length: int,
        uses: int,
        peak: float,
        pilots: int | None = None,
        context: UplinkContext | None = None,
    ):
        check_pilots(name, pilots)
        self.name, self.capped = name, name == "cotaf"
        self.side_information = LARGEST_ENERGY if self.capped else MEAN_ENERGY
        self.by_layer = name == "analog" and settings.gains == "layer"
        self.settings, self.context, self.peak, self.pilots = settings, context or UplinkContext(), peak, pilots
        self.fragment_length = fragment_length
        self.rotation = make_rotation(uses, self.context.seed, self.context.device)

    def broadcast(self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator) -> Announced:
        """Announce how loud each layer is to be sent."""
        size = base_update.numel()
        air = plan_round(size, self.fragment_length, len(self.rotation), self.pilots, self.context)
        seed = new_seed(rng)
        chosen = chosen_parameters(seed, size, air.room)
        layers = take(self.context.parameter_layers(size, self.fragment_length).to(base_update.device), chosen)
        own = take(base_update, chosen)
        loud = layer_gains(own, layers)
        if not self.by_layer:
            loud = torch.ones_like(loud)
        kept = Kept(base_update, layers, loud[layers], chosen, Carrier(air, len(own), self.rotation))
        downlink = {"gains": loud.float()} | ({} if chosen is None else {"seed": seed})
        return Announced(size, air.num_uses, downlink, kept)

    def encode(
        self, messages: Float[Tensor, "devices params"], announced: Announced, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Scale the parameters, limit the energy of slots, and spread them; what is cut off or silent counts as not sent."""
        kept: Kept = announced.kept
        carrier, air = kept.carrier, kept.carrier.air
        values = take(messages, kept.chosen)
        slots = carrier.slots_of(values.double() * kept.gains)
        wanted = slots.square().sum(dim=2)
        scale = self._scale(wanted)
        share = (limited(wanted, scale, self.peak) / (wanted * scale).clamp(min=torch.finfo(wanted.dtype).tiny)).sqrt()
        signal = carrier.send((slots * (share * scale**0.5)[:, :, None]).to(messages))
        speaking = csi.speaking(air.slots, air.uses)
        if speaking is not None:
            share = share * speaking[:, air.rows].to(share)
        arrives = carrier.of_slots(share)
        return Sent(
            signal,
            put((values * arrives).to(messages), kept.chosen, announced.num_params),
            speaking,
            pilot_uses=air.pilot_uses,
            agreed={"scale": torch.tensor(scale, dtype=torch.float64)},
            capped=self.capped,
        )

    def _scale(self, wanted: Float[Tensor, "devices slots"]) -> float:
        """Return the factor of all energies: their mean is one, or that of the device with the most."""
        if not self.capped or not len(wanted):
            return scale_to_one(wanted.flatten(), torch.ones_like(wanted).flatten(), self.peak)
        longest = wanted[wanted.sum(dim=1).argmax()]
        return scale_to_one(longest, torch.ones_like(longest), self.peak)

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], announced: Announced, csi: AtReceiver
    ) -> tuple[Mean, Memory]:
        """Collect what the first antenna heard, undo the gains, and divide by the number of devices that the pilots tell."""
        kept: Kept = announced.kept
        carrier, air, heard = kept.carrier, kept.carrier.air, in_phase(received)
        told = hear_devices(heard, air, csi)
        sums = carrier.numbers_of(carrier.hear(heard))
        devices = carrier.of_slots(told.in_slots[air.rows].clamp(min=LEAST_DEVICES))
        loud = (kept.gains * float(announced.agreed["scale"]) ** 0.5).to(sums)
        if self.settings.estimate == "lmmse":
            sums = sums * _signal_share(sums, kept.layers, told.noise_var)
        total = torch.where(loud > 0, sums / loud, 0.0)
        if self.context.include_base_station:
            total, devices = total + take(kept.update, kept.chosen).to(total), devices + 1
        mean = put(total / devices, kept.chosen, announced.num_params)
        return Mean(mean=mean, num_active_hat=told.num_active), {}


def _signal_share(
    sums: Float[Tensor, " numbers"], layers: Int[Tensor, " numbers"], noise_var: float
) -> Float[Tensor, " numbers"]:
    """Return the share of each layer's received power that is not noise."""
    power = layer_means(sums.double().square(), layers.to(sums.device))
    share = 1 - noise_var / power.clamp(min=torch.finfo(power.dtype).tiny)
    return share.clamp(min=0.0)[layers.to(sums.device)].to(sums)
