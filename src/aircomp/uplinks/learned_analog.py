r"""A learned analog code: trained networks make channel uses of fragments, and sums of fragments of what arrives.

    base station: gain of every layer, fragments that find no room (announced)
    devices:      fragments [K_a, J, d] · gain · common scale ──► shared network ──► l uses a fragment, of mean energy one
    base station: pilots ──► K̂ and noise;  slots, own fragments ──► network ──► sums, undo gains ──► mean

Gains of layers are those of `analog`. The networks are `encode/analog_code.py` and `decode/analog_code.py`. The code comes
with the package or from `aircomp pretrain FRAGMENTS… --preset learned-analog`. The preset `nomographic` trains nomographic
networks (Bouzinis et al. 2024): one for each device, which sees its SNR. The first device of a round has the first network.

A slot carries one fragment, and pilots take the place of some slots. The fragments in which the base station's own update
has least energy find no room, and error feedback keeps them. Uses are turned by an orthonormal matrix, so that all of
them carry the same power.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.decode.analog_code import Heard
from aircomp.decode.heard_pilots import PilotEstimate, in_phase
from aircomp.encode.carrier import Air, amplitude_of_one, make_rotation
from aircomp.encode.pilots import WithPilots, data_slots, pilot_sequence
from aircomp.encode.schedule import put_slots, take_slots
from aircomp.encode.spread import Spread
from aircomp.layer.analog_code import AnalogCode
from aircomp.quantize.fragment import join, num_slots, split
from aircomp.quantize.levels import layer_energies, layer_gains
from aircomp.uplinks.analog import LEAST_DEVICES
from aircomp.uplinks.base import Announced, MeanScheme, Memory, Sent, UplinkContext, slot_snr
from aircomp.uplinks.outputs import Mean
from aircomp.uplinks.piloted import check_pilots, hear_devices, plan_round

NAME = "learned-analog"


@dataclass(frozen=True)
class Kept:
    """What the base station keeps of a round that it announced."""

    update: Float[Tensor, " params"]
    asked: Int[Tensor, " asked"]
    """The fragments that are sent, one in each slot with data."""
    gains: Float[Tensor, " asked"]
    air: Air


class LearnedAnalogUplink(MeanScheme):
    """Analog transmission by trained networks.

    Args:
        code: The networks of both sides.
        fragment_length: Parameters that the digital link puts into a slot: how many slots the round has.
        pilots: How many slots carry pilots; None: `plan_air` decides.
        context: What the link is made for.
    """

    name = NAME
    for_more_devices = "train a code of more code.devices"
    side_information = (
        "the mean energy of devices' messages and of what they want to send, which set their common scales",
    )

    def __init__(
        self,
        code: AnalogCode,
        *,
        fragment_length: int,
        pilots: int | None = None,
        context: UplinkContext | None = None,
    ):
        check_pilots(self.name, pilots)
        self.code, self.context, self.pilots = code.networks, context or UplinkContext(), pilots
        self.fragment_length, self.most_devices = fragment_length, self.code.settings.devices
        self.rotation = make_rotation(self.code.uses, self.context.seed, self.context.device)

    def broadcast(self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator) -> Announced:
        """Announce how loud each layer is to be sent, and which fragments are not."""
        size, length = base_update.numel(), self.code.fragment_length
        air = plan_round(size, self.fragment_length, self.code.uses, self.pilots, self.context)
        own = split(base_update, length)
        energy = own.double().square().sum(dim=1)
        left = energy.sort(stable=True).indices[: max(len(own) - len(air.rows), 0)].sort().values
        asked = data_slots(len(own), left.cpu()).to(own.device)
        layers = self.context.parameter_layers(size, self.fragment_length)[::length].to(own.device)[asked]
        gains = layer_gains(energy[asked].sqrt(), layers)
        kept = Kept(base_update, asked, gains[layers].to(own), air)
        downlink = {"gains": gains.float()} | ({"left_out": left} if len(left) else {})
        return Announced(size, air.num_uses, downlink, kept)

    @torch.no_grad()
    def encode(
        self, messages: Float[Tensor, "devices params"], announced: Announced, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Let the devices' network make channel uses of the fragments, of mean energy one."""
        kept: Kept = announced.kept
        air, length = kept.air, self.code.fragment_length
        fragments = take_slots(split(messages, length), kept.asked)
        loud = fragments * kept.gains[:, None]
        scale = amplitude_of_one(loud)
        signal = self.code.encoder(loud * scale, layer_energies(kept.gains), self._snr(csi, kept))
        signal = torch.nn.functional.pad(signal, (0, 0, 0, len(air.rows) - len(kept.asked)))
        amplitude = amplitude_of_one(signal)
        speaking = csi.speaking(air.slots, air.uses)
        if speaking is not None:
            fragments = fragments * speaking[:, air.rows[: len(kept.asked)], None].to(fragments)
        spread = Spread(signal * amplitude, self.rotation.to(signal))
        arrives = put_slots(fragments, kept.asked, num_slots(announced.num_params, length))
        return Sent(
            WithPilots(spread, pilot_sequence(air.uses), air.places),
            join(arrives, announced.num_params),
            speaking,
            pilot_uses=air.pilot_uses,
            agreed={"scale": torch.tensor(scale), "amplitude": torch.tensor(amplitude)},
        )

    def _snr(self, csi: AtDevices, kept: Kept) -> Float[Tensor, "devices told"] | None:
        """Return what devices with networks of their own see of their channels."""
        if self.most_devices is None:
            return None
        snr = slot_snr(csi, kept.air.slots, kept.air.uses, NAME)
        return snr if snr.shape[1] == 1 else snr[:, kept.air.rows[: len(kept.asked)]]

    @torch.no_grad()
    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], announced: Announced, csi: AtReceiver
    ) -> tuple[Mean, Memory]:
        """Let the base station's network estimate sums, and divide them by the number of devices that the pilots tell."""
        kept: Kept = announced.kept
        heard, length, scale = in_phase(received), self.code.fragment_length, float(announced.agreed["scale"])
        told = hear_devices(heard, kept.air, csi)
        rows = kept.air.rows[: len(kept.asked)].to(heard.device)
        devices = told.in_slots[rows].clamp(min=LEAST_DEVICES)[:, None]
        own = split(kept.update, length)[kept.asked].to(heard)
        total = torch.zeros_like(own)
        if scale > 0:
            loud = kept.gains[:, None].to(heard) * scale
            amplitude = float(announced.agreed["amplitude"])
            total = self._sums(heard[rows] / amplitude, told, amplitude, devices[:, 0], own * loud, kept) / loud
        if self.context.include_base_station:
            total, devices = total + own, devices + 1
        mean = put_slots(total / devices, kept.asked, num_slots(announced.num_params, length))
        return Mean(mean=join(mean, announced.num_params), num_active_hat=told.num_active), {}

    def _sums(
        self, slots: Tensor, told: PilotEstimate, amplitude: float, devices: Tensor, own: Tensor, kept: Kept
    ) -> Float[Tensor, "asked fragment"]:
        noise = torch.full_like(devices, told.noise_var / amplitude**2)
        turned = slots @ self.rotation.T.to(slots)
        return self.code.estimator(Heard(turned, noise, devices, own, layer_energies(kept.gains).to(slots)))
