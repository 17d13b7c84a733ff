r"""Nomographic networks (Bouzinis et al. 2024): trained functions before and behind the sum of the air.

    base station: scale of every layer (announced)
    devices:      messages [K_a, W] / limit of the layer ──► own network, which sees the own SNR ──► uses of a fixed norm
    base station: uses ──► own network, which sees nothing else ──► mean · limit

The networks are `layer/nomographic.py`. They are trained together, once, and used apart (`tools/train_nomographic.py`).
The first device of a round has the first network. There are no pilots, and the base station is not told how many devices
send, nor the noise: what the receiver makes of a sum is learned. Uses have a fixed norm, so devices need not agree on a
scale.

Networks approximate, so a mean is not exact without noise. `learned-analog` is this package's own: its receiver knows the
noise, the number of devices and the base station's own fragment.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.channel.signal import Symbols
from aircomp.encode.carrier import chosen_parameters, put, take
from aircomp.errors import ConfigError
from aircomp.layer.nomographic import NomographicCode
from aircomp.quantize.fragment import num_slots
from aircomp.quantize.levels import SMALLEST, layer_scales
from aircomp.schemes.base import (
    Broadcast,
    MeanScheme,
    Memory,
    Private,
    SchemeContext,
    Sent,
    in_phase,
    new_seed,
    slot_snr,
)
from aircomp.schemes.outputs import Mean
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import NomographicUplinkSettings


@dataclass(frozen=True)
class NomographicRound:
    """What both sides derive from the broadcast."""

    chosen: Int[Tensor, " chosen"] | None
    limits: Float[Tensor, " chosen"]
    slots: int
    groups: int
    """How many times the devices' networks are used; each takes some parameters."""


@scheme(
    "nomographic",
    sends="its update, through a trained network of its own",
    needs="in phase",
    source="Bouzinis et al. 2024",
    checked="derived",
    against="the error of four functions over their variance",
)
class Nomographic(MeanScheme):
    """A network for each device, and one for the base station.

    Args:
        settings: Its options.
        context: What the link is made for.
        code: The networks of both sides; by default those that the settings name.
    """

    settings_class = NomographicUplinkSettings
    estimates_num_active = False
    side_information = ("which device has which network",)
    for_more_devices = "train networks for more devices"

    def __init__(
        self,
        settings: NomographicUplinkSettings,
        context: SchemeContext | None = None,
        code: NomographicCode | None = None,
    ):
        self.settings, self.context, self.uses = settings, context or SchemeContext(), settings.codeword_length
        self.code = (code or NomographicCode.load(settings.layer, device=self.context.device)).networks
        form = self.code.settings
        if form.function != "mean":
            raise ConfigError(
                f"uplink.layer has networks for the {form.function}, but an update is a mean; train them for that"
            )
        self.most_devices, self.fewest_devices = (None, 1) if form.shared else (form.devices, form.fewest)

    def _room(self, slots: int) -> int:
        """Return how many parameters a round carries."""
        room = slots * self.uses // self.code.settings.uses * self.code.settings.inputs
        if not room:
            raise ConfigError(
                f"the networks of uplink = {self.name!r} make {self.code.settings.uses} channel uses, but the round has "
                f"{slots * self.uses}; use a larger model, or a longer uplink.codeword_length"
            )
        return room

    def broadcast(
        self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator
    ) -> tuple[Broadcast, Private]:
        """Announce the limit of every layer."""
        size, seed = base_update.numel(), new_seed(rng)
        slots = num_slots(size, self.settings.fragment_length)
        self._room(slots)
        layers = self.context.parameter_layers(size, self.settings.fragment_length).to(base_update.device)
        values = {"scales": layer_scales(base_update, layers) * self.settings.clip, "seed": seed}
        return Broadcast(size, slots * self.uses, values), base_update

    def _round(self, broadcast: Broadcast) -> NomographicRound:
        """Return what both sides derive from the broadcast."""
        size, slots = broadcast.num_params, broadcast.num_uses // self.uses
        chosen = chosen_parameters(broadcast.values["seed"], size, self._room(slots))
        scales = broadcast.values["scales"].clamp(min=SMALLEST)
        layers = take(self.context.parameter_layers(size, self.settings.fragment_length).to(scales.device), chosen)
        return NomographicRound(chosen, scales[layers], slots, -(-len(layers) // self.code.settings.inputs))

    def _amplitude(self, of_round: NomographicRound) -> float:
        """Return the amplitude of a network's uses with which slots have the mean energy one."""
        return (of_round.slots / of_round.groups) ** 0.5

    @torch.no_grad()
    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Let every device's network make uses of its parameters."""
        of_round, form = self._round(broadcast), self.code.settings
        values = (take(messages, of_round.chosen) / of_round.limits).clamp(-1, 1)
        missing = of_round.groups * form.inputs - values.shape[1]
        numbers = torch.nn.functional.pad(values, (0, missing)).unflatten(1, (of_round.groups, form.inputs))
        slot = torch.arange(of_round.groups) * form.uses // self.uses  # in which a network's first use lies
        snr = slot_snr(csi, of_round.slots, self.uses, self.name)
        snr = snr if snr.shape[1] == 1 else snr[:, slot]
        signal = self._amplitude(of_round) * self.code.send(numbers, snr.to(numbers))
        signal = torch.nn.functional.pad(
            signal.flatten(1), (0, of_round.slots * self.uses - of_round.groups * form.uses)
        )
        speaking = csi.speaking(of_round.slots, self.uses)
        arrives = values * of_round.limits
        if speaking is not None:  # a network's uses may lie in two slots
            last = (torch.arange(of_round.groups) * form.uses + form.uses - 1) // self.uses
            spoken = (speaking[:, slot] & speaking[:, last]).repeat_interleave(form.inputs, dim=1)
            arrives = arrives * spoken[:, : arrives.shape[1]].to(arrives)
        return Sent(
            Symbols(signal.unflatten(1, (of_round.slots, self.uses)), 1 / self.uses),
            put(arrives.to(messages), of_round.chosen, broadcast.num_params),
            speaking,
        )

    @torch.no_grad()
    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], broadcast: Broadcast, private: Private, csi: AtReceiver
    ) -> tuple[Mean, Memory]:
        """Let the base station's network find the mean."""
        of_round, form = self._round(broadcast), self.code.settings
        heard = in_phase(received).flatten()[: of_round.groups * form.uses].unflatten(0, (of_round.groups, form.uses))
        mean = self.code.hear(heard / self._amplitude(of_round)).flatten()[: len(of_round.limits)]
        mean = (
            mean.clamp(-1, 1) * of_round.limits
        )  # as all numbers are; in more noise than that of training it may be far off
        if self.context.include_base_station:
            # the number of devices is not known: the middle of what the networks were trained for
            devices = (form.fewest + form.devices) / 2
            mean = (mean * devices + take(private, of_round.chosen).to(mean)) / (devices + 1)
        return Mean(mean=put(mean, of_round.chosen, broadcast.num_params)), {}
