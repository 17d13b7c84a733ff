r"""A learned analog code: trained networks make channel uses of fragments, and sums of fragments of what arrives.

    base station: gain of every layer, fragments that find no room (announced)
    devices:      fragments [K_a, J, d] · gain · common scale ──► shared network ──► l uses a fragment, of mean energy one
    base station: pilots ──► K̂ and noise;  slots, own fragments ──► network ──► sums, undo gains ──► mean

Gains of layers are those of `analog`. The networks are `encode/analog_code.py` and `decoders/analog_code.py`. The code comes
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
from aircomp.decoders.analog_code import Heard
from aircomp.decoders.estimate.heard_pilots import PilotEstimate
from aircomp.encode.carrier import Air, amplitude_of_one, make_rotation, plan_air
from aircomp.encode.pilots import WithPilots, data_slots, pilot_sequence
from aircomp.encode.spread import Spread
from aircomp.layer.analog_code import AnalogCode
from aircomp.quantize.fragment import join, num_slots, put_slots, split, take_slots
from aircomp.quantize.levels import layer_energies, layer_gains
from aircomp.schemes.analog import LEAST_DEVICES
from aircomp.schemes.base import Broadcast, MeanScheme, Memory, Private, SchemeContext, Sent, in_phase, slot_snr
from aircomp.schemes.outputs import Mean
from aircomp.schemes.piloted import hear_devices
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import LearnedAnalogSettings


@dataclass(frozen=True)
class LearnedRound:
    """What both sides derive from the broadcast."""

    asked: Int[Tensor, " asked"]
    """The fragments that are sent, one in each slot with data."""
    gains: Float[Tensor, " asked"]
    air: Air


@scheme(
    "learned-analog",
    sends="its update, through a trained network",
    needs="in phase",
    source="this package; nomographic networks: Bouzinis et al. 2024",
    ours=True,
)
class LearnedAnalog(MeanScheme):
    """Analog transmission by trained networks.

    Args:
        settings: Its options.
        context: What the link is made for.
        code: The networks of both sides; by default those that the settings name.
    """

    settings_class = LearnedAnalogSettings
    for_more_devices = "train a code of more code.devices"
    side_information = (
        "the mean energy of devices' messages and of what they want to send, which set their common scales",
    )

    def __init__(
        self, settings: LearnedAnalogSettings, context: SchemeContext | None = None, code: AnalogCode | None = None
    ):
        self.settings, self.context = settings, context or SchemeContext()
        self.code = (code or AnalogCode.load(settings.layer, device=self.context.device)).networks
        self.most_devices = self.code.settings.devices
        self.rotation = make_rotation(self.code.uses, self.context.seed, self.context.device)

    def _air(self, num_params: int) -> Air:
        """Return the slots of a round, of which pilots have some."""
        slots = num_slots(num_params, self.settings.quantize.fragment_length)
        return plan_air(slots, self.code.uses, pilots=self.settings.pilots, block_uses=self.context.block_uses)

    def broadcast(
        self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator
    ) -> tuple[Broadcast, Private]:
        """Announce how loud each layer is to be sent, and which fragments are not."""
        size, air, own = (
            base_update.numel(),
            self._air(base_update.numel()),
            split(base_update, self.code.fragment_length),
        )
        energy = own.double().square().sum(dim=1)
        left = energy.sort(stable=True).indices[: max(len(own) - len(air.rows), 0)].sort().values
        asked = data_slots(len(own), left.cpu()).to(own.device)
        gains = layer_gains(energy[asked].sqrt(), self._layers(size)[asked])
        values = {"gains": gains.float()} | ({"left_out": left} if len(left) else {})
        return Broadcast(size, air.num_uses, values), base_update

    def _layers(self, num_params: int) -> Int[Tensor, " fragments"]:
        """Return the layer of every fragment of the code."""
        layers = self.context.parameter_layers(num_params, self.settings.quantize.fragment_length)
        return layers[:: self.code.fragment_length].to(self.rotation.device)

    def _round(self, broadcast: Broadcast) -> LearnedRound:
        """Return what both sides derive from the broadcast."""
        size, gains = broadcast.num_params, broadcast.values["gains"]
        left = broadcast.values.get("left_out", torch.empty(0, dtype=torch.int64))
        asked = data_slots(num_slots(size, self.code.fragment_length), left.cpu()).to(gains.device)
        return LearnedRound(asked, gains[self._layers(size)[asked]], self._air(size))

    @torch.no_grad()
    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Let the devices' network make channel uses of the fragments, of mean energy one."""
        of_round = self._round(broadcast)
        air, length = of_round.air, self.code.fragment_length
        fragments = take_slots(split(messages, length), of_round.asked)
        loud = fragments * of_round.gains[:, None]
        scale = amplitude_of_one(csi.as_reported(loud))
        signal = self.code.encoder(loud * scale, layer_energies(of_round.gains), self._snr(csi, of_round))
        signal = torch.nn.functional.pad(signal, (0, 0, 0, len(air.rows) - len(of_round.asked)))
        amplitude = amplitude_of_one(csi.as_reported(signal))
        speaking = csi.speaking(air.slots, air.uses)
        if speaking is not None:
            fragments = fragments * speaking[:, air.rows[: len(of_round.asked)], None].to(fragments)
        spread = Spread(signal * amplitude, self.rotation.to(signal))
        arrives = put_slots(fragments, of_round.asked, num_slots(broadcast.num_params, length))
        return Sent(
            WithPilots(spread, pilot_sequence(air.uses), air.places),
            join(arrives, broadcast.num_params),
            speaking,
            pilot_uses=air.pilot_uses,
            agreed={"scale": torch.tensor(scale), "amplitude": torch.tensor(amplitude)},
        )

    def _snr(self, csi: AtDevices, of_round: LearnedRound) -> Float[Tensor, "devices told"] | None:
        """Return what devices with networks of their own see of their channels."""
        if self.most_devices is None:
            return None
        snr = slot_snr(csi, of_round.air.slots, of_round.air.uses, self.name)
        return snr if snr.shape[1] == 1 else snr[:, of_round.air.rows[: len(of_round.asked)]]

    @torch.no_grad()
    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], broadcast: Broadcast, private: Private, csi: AtReceiver
    ) -> tuple[Mean, Memory]:
        """Let the base station's network estimate sums, and divide them by the number of devices that the pilots tell."""
        of_round = self._round(broadcast)
        heard, length, scale = in_phase(received), self.code.fragment_length, float(broadcast.agreed["scale"])
        told = hear_devices(heard, of_round.air, csi)
        rows = of_round.air.rows[: len(of_round.asked)].to(heard.device)
        devices = told.in_slots[rows].clamp(min=LEAST_DEVICES)[:, None]
        own = split(private, length)[of_round.asked].to(heard)
        total = torch.zeros_like(own)
        if scale > 0:
            loud = of_round.gains[:, None].to(heard) * scale
            amplitude = float(broadcast.agreed["amplitude"])
            total = self._sums(heard[rows] / amplitude, told, amplitude, devices[:, 0], own * loud, of_round) / loud
        if self.context.include_base_station:
            total, devices = total + own, devices + 1
        mean = put_slots(total / devices, of_round.asked, num_slots(broadcast.num_params, length))
        return Mean(mean=join(mean, broadcast.num_params), num_active_hat=told.num_active), {}

    def _sums(
        self, slots: Tensor, told: PilotEstimate, amplitude: float, devices: Tensor, own: Tensor, of_round: LearnedRound
    ) -> Float[Tensor, "asked fragment"]:
        noise = torch.full_like(devices, told.noise_var / amplitude**2)
        turned = slots @ self.rotation.T.to(slots)
        return self.code.estimator(Heard(turned, noise, devices, own, layer_energies(of_round.gains).to(slots)))
