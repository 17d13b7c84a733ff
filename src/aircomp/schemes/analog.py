r"""Uncoded analog transmission: every device sends its message as it is, and the air adds the messages up.

    base station: own energy of every layer ──► gains (announced)
    devices:      messages [K_a, W] · gain of the layer · common scale ──► spread over slots (`encode/carrier.py`)
    base station: pilots ──► K̂ and noise;  slots ──► sums, undo gains ──► mean

The schemes differ in how loud they send:

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

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.encode.carrier import Carrier, chosen_parameters, make_rotation, put, take
from aircomp.encode.energy import limited, scale_to_one
from aircomp.quantize.levels import layer_gains, layer_means
from aircomp.schemes.base import (
    LARGEST_ENERGY,
    MEAN_ENERGY,
    Broadcast,
    MeanScheme,
    Memory,
    Private,
    SchemeContext,
    Sent,
    in_phase,
    new_seed,
)
from aircomp.schemes.outputs import Mean
from aircomp.schemes.piloted import carrier_of, hear_devices, plan_round
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import AnalogSettings, SchemeSettings, UncodedSettings

LEAST_DEVICES = 0.5
"""The least number of devices that a sum is divided by; fewer would round to none."""


@dataclass(frozen=True)
class AnalogRound:
    """What both sides derive from the broadcast."""

    chosen: Int[Tensor, " chosen"] | None
    """The parameters of the round; None: all."""
    layers: Int[Tensor, " chosen"]
    gains: Float[Tensor, " chosen"]
    carrier: Carrier


class Uncoded(MeanScheme):
    """Analog transmission of whole messages.

    Args:
        settings: Its options.
        context: What the link is made for.
    """

    settings_class: type[SchemeSettings] = UncodedSettings
    side_information = MEAN_ENERGY
    capped = False
    """Whether the device with the most energy sets the common scale."""

    def __init__(self, settings: UncodedSettings, context: SchemeContext | None = None):
        self.settings, self.context = settings, context or SchemeContext()
        self.rotation = make_rotation(settings.codeword_length, self.context.seed, self.context.device)

    def broadcast(
        self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator
    ) -> tuple[Broadcast, Private]:
        """Announce how loud each layer is to be sent."""
        size, length = base_update.numel(), self.settings.fragment_length
        air = plan_round(size, self.settings, self.context)
        seed = new_seed(rng)
        chosen = chosen_parameters(seed, size, air.room)
        layers = take(self.context.parameter_layers(size, length).to(base_update.device), chosen)
        gains = self._gains(take(base_update, chosen), layers)
        values = {} if gains is None else {"gains": gains.float()}
        values |= {} if chosen is None else {"seed": seed}
        return Broadcast(size, air.num_uses, values), base_update

    def _gains(self, own: Float[Tensor, " chosen"], layers: Int[Tensor, " chosen"]) -> Float[Tensor, " layers"] | None:
        """Return the gain of every layer; None: one for all."""
        return None

    def _round(self, broadcast: Broadcast) -> AnalogRound:
        """Return what both sides derive from the broadcast."""
        size, gains = broadcast.num_params, broadcast.values.get("gains")
        air = plan_round(size, self.settings, self.context)
        chosen = chosen_parameters(broadcast.values.get("seed"), size, air.room)
        layers = self.context.parameter_layers(size, self.settings.fragment_length).to(self.rotation.device)
        layers = take(layers, chosen)
        loud = torch.ones(len(layers), device=layers.device) if gains is None else gains[layers]
        return AnalogRound(chosen, layers, loud.double(), carrier_of(self, air, len(layers)))

    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Scale the parameters, limit the energy of slots, and spread them; what is cut off or silent counts as not sent."""
        of_round = self._round(broadcast)
        carrier, air = of_round.carrier, of_round.carrier.air
        values = take(messages, of_round.chosen)
        slots = carrier.slots_of(values.double() * of_round.gains)
        wanted = slots.square().sum(dim=2)
        scale = self._scale(csi.as_reported(slots).square().sum(dim=2))
        share = (
            limited(wanted, scale, self.settings.peak) / (wanted * scale).clamp(min=torch.finfo(wanted.dtype).tiny)
        ).sqrt()
        signal = carrier.send((slots * (share * scale**0.5)[:, :, None]).to(messages))
        speaking = csi.speaking(air.slots, air.uses)
        if speaking is not None:
            share = share * speaking[:, air.rows].to(share)
        arrives = carrier.of_slots(share)
        return Sent(
            signal,
            put((values * arrives).to(messages), of_round.chosen, broadcast.num_params),
            speaking,
            pilot_uses=air.pilot_uses,
            agreed={"scale": torch.tensor(scale, dtype=torch.float64)},
            capped=self.capped,
        )

    def _scale(self, wanted: Float[Tensor, "devices slots"]) -> float:
        """Return the factor of all energies: their mean is one, or that of the device with the most."""
        if not self.capped or not len(wanted):
            return scale_to_one(wanted.flatten(), torch.ones_like(wanted).flatten(), self.settings.peak)
        longest = wanted[wanted.sum(dim=1).argmax()]
        return scale_to_one(longest, torch.ones_like(longest), self.settings.peak)

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], broadcast: Broadcast, private: Private, csi: AtReceiver
    ) -> tuple[Mean, Memory]:
        """Collect what the first antenna heard, undo the gains, and divide by the number of devices that the pilots tell."""
        of_round = self._round(broadcast)
        carrier, air, heard = of_round.carrier, of_round.carrier.air, in_phase(received)
        told = hear_devices(heard, air, csi)
        sums = carrier.numbers_of(carrier.hear(heard))
        devices = carrier.of_slots(told.in_slots[air.rows].clamp(min=LEAST_DEVICES))
        loud = (of_round.gains * float(broadcast.agreed["scale"]) ** 0.5).to(sums)
        if self.settings.estimate == "lmmse":
            sums = sums * _signal_share(sums, of_round.layers, told.noise_var)
        total = torch.where(loud > 0, sums / loud, 0.0)
        if self.context.include_base_station:
            total, devices = total + take(private, of_round.chosen).to(total), devices + 1
        mean = put(total / devices, of_round.chosen, broadcast.num_params)
        return Mean(mean=mean, num_active_hat=told.num_active), {}


@scheme(
    "analog",
    sends="its update, uncoded; layers with small updates louder",
    needs="in phase",
    source="this package",
    ours=True,
)
class Analog(Uncoded):
    """A gain for every layer of the model."""

    settings_class = AnalogSettings
    settings: AnalogSettings

    def _gains(self, own: Float[Tensor, " chosen"], layers: Int[Tensor, " chosen"]) -> Float[Tensor, " layers"] | None:
        return layer_gains(own, layers) if self.settings.gains == "layer" else None


@scheme(
    "baa",
    sends="its update, uncoded",
    needs="in phase",
    source="Zhu et al. 2020",
    checked="recalled",
    against="the error of the mean is 1/(RΓ)",
)
class Baa(Uncoded):
    """Broadband analog aggregation: one gain for all."""

    settings_class = UncodedSettings


@scheme(
    "cotaf",
    sends="its update, uncoded; the longest update sets the scale",
    needs="in phase",
    source="Sery et al. 2021",
    checked="recalled",
    against="the longest update spends the nominal energy",
)
class Cotaf(Uncoded):
    """The device with the most energy spends the nominal one."""

    settings_class = UncodedSettings
    capped, side_information = True, LARGEST_ENERGY


@scheme(
    "fed-ota",
    sends="its update, uncoded",
    needs="in phase, behind a beam",
    source="Yang et al. 2020",
    checked="recalled",
    against="the beam between two devices of one strength takes the middle",
)
class FedOta(Uncoded):
    """`baa` behind a beam of the base station."""

    settings_class = UncodedSettings
    power_control = ("beamforming", "baa")


def _signal_share(
    sums: Float[Tensor, " numbers"], layers: Int[Tensor, " numbers"], noise_var: float
) -> Float[Tensor, " numbers"]:
    """Return the share of each layer's received power that is not noise."""
    power = layer_means(sums.double().square(), layers.to(sums.device))
    share = 1 - noise_var / power.clamp(min=torch.finfo(power.dtype).tiny)
    return share.clamp(min=0.0)[layers.to(sums.device)].to(sums)
