r"""A hybrid of digital and analog: every parameter is a whole number of steps, and a remainder that is sent as it is.

    devices:      message · gain of its layer = x = Δa + r ──► a loud enough to be counted; r with all energy that is left
    base station: pilots ──► K̂ and noise;  Σa ──► rounded;  Δ Σa + Σr ──► undo gains ──► mean

Plain analog transmission of $x$ leaves the noise $\sigma^2 E_x$ in a sum, where a slot of mean energy one carries parameters
of energy $E_x$. Here the sum of whole numbers is rounded. It is right if their unit arrives with an amplitude of
$2z\sigma$, with probability $1 - 2Q(z)$, and costs the energy $4z^2\sigma^2 E_a$ a slot. The remainder is sent with what is
left:

$$\sigma^2 \frac{E_r}{1 - 4z^2\sigma^2 E_a} + 2Q(z)\Delta^2$$

The base station chooses the step Δ and $z$ that make this least, for the noise of the last round, and for its own update
made as long as those of devices were then. In much noise no step is better than none: everything is remainder, which is
`analog`. So it is in the first round, in fading, and where a parameter has fewer than two channel uses.

Nothing is quantised away: both parts add up to the message, so error feedback has nothing to keep.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.encode.carrier import Carrier, chosen_parameters, make_rotation, put, take
from aircomp.quantize.levels import layer_gains
from aircomp.quantize.remainder import MOST_OF_ENERGY, choose_step, divided
from aircomp.schemes.analog import LEAST_DEVICES
from aircomp.schemes.base import (
    NOISE_VAR,
    Broadcast,
    MeanScheme,
    Memory,
    Private,
    SchemeContext,
    Sent,
    in_phase,
    new_seed,
    remembered,
)
from aircomp.schemes.outputs import Mean
from aircomp.schemes.piloted import carrier_of, hear_devices, plan_round
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import PilotedSettings

LENGTH = "length"
"""What the link remembers beside the noise: the length of devices' updates over that of the base station's own."""


@dataclass(frozen=True)
class HybridRound:
    """What both sides derive from the broadcast."""

    chosen: Tensor | None
    """The parameters of the round; None: all."""
    gains: Float[Tensor, " chosen"]
    carrier: Carrier
    step: float
    """Infinite: no whole numbers are sent."""
    unit: float
    """The amplitude with which a whole number of one arrives."""


@scheme(
    "hybrid",
    sends="its update, as whole numbers and uncoded remainders",
    needs="in phase",
    source="this package",
    ours=True,
)
class Hybrid(MeanScheme):
    """Whole numbers and remainders of whole messages.

    Args:
        settings: Its options.
        context: What the link is made for.
    """

    settings_class = PilotedSettings
    side_information = ("the mean energies of devices' messages, whole numbers and remainders, which set their scales",)

    def __init__(self, settings: PilotedSettings, context: SchemeContext | None = None):
        self.settings, self.context = settings, context or SchemeContext()
        self.rotation = make_rotation(settings.codeword_length, self.context.seed, self.context.device)

    def broadcast(
        self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator
    ) -> tuple[Broadcast, Private]:
        """Announce how loud each layer is to be sent, and the step."""
        size, noise_var, length = base_update.numel(), remembered(memory, NOISE_VAR), remembered(memory, LENGTH)
        air = plan_round(size, self.settings, self.context)
        seed = new_seed(rng)
        chosen = chosen_parameters(seed, size, air.room)
        layers = take(self._layers(size), chosen)
        own = take(base_update, chosen)
        gains = layer_gains(own, layers).float()
        step, margin = math.inf, 0.0
        if noise_var is not None and length and 2 * len(own) <= air.room and not self.context.block_uses:
            step, margin = choose_step(own.double() * gains.double()[layers] * length, noise_var, len(air.rows))
        unit = 2 * margin * math.sqrt(noise_var or 0.0)
        values = {"gains": gains, "step": torch.tensor([step, unit], dtype=torch.float32)}
        return Broadcast(size, air.num_uses, values | ({} if chosen is None else {"seed": seed})), base_update

    def _layers(self, num_params: int) -> Int[Tensor, " params"]:
        return self.context.parameter_layers(num_params, self.settings.fragment_length).to(self.rotation.device)

    def _round(self, broadcast: Broadcast) -> HybridRound:
        """Return what both sides derive from the broadcast."""
        size, (step, unit) = broadcast.num_params, broadcast.values["step"].tolist()
        air = plan_round(size, self.settings, self.context)
        chosen = chosen_parameters(broadcast.values.get("seed"), size, air.room)
        gains = broadcast.values["gains"].double()[take(self._layers(size), chosen)]
        carrier = carrier_of(self, air, len(gains) if step == math.inf else 2 * len(gains))
        return HybridRound(chosen, gains, carrier, step, unit)

    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Divide messages into whole numbers and remainders, scale both to a mean energy of one, and spread them."""
        of_round = self._round(broadcast)
        carrier, air = of_round.carrier, of_round.carrier.air
        values = take(messages, of_round.chosen)
        wanted = values.double() * of_round.gains
        whole, rest = divided(wanted, of_round.step)
        told = [csi.as_reported(each) for each in (whole, rest, wanted)]
        slots = max(len(told[0]) * len(air.rows), 1)
        of_whole, energy, of_messages = (float(each.square().sum()) / slots for each in told)
        unit = min(of_round.unit, math.sqrt(MOST_OF_ENERGY / max(of_whole, 1e-300)))
        left = 1 - unit**2 * of_whole
        amplitude = math.sqrt(left / energy) if energy > 0 else 0.0
        numbers = amplitude * rest if of_round.step == math.inf else torch.cat([unit * whole, amplitude * rest], dim=1)
        speaking, sent = csi.speaking(air.slots, air.uses), values
        if speaking is not None:  # a message arrives where both of its parts do
            spoken = carrier.of_slots(speaking[:, air.rows])
            sent = values * (spoken[:, : values.shape[1]] & spoken[:, -values.shape[1] :]).to(values)
        return Sent(
            carrier.send(carrier.slots_of(numbers).to(messages)),
            put(sent, of_round.chosen, broadcast.num_params),
            speaking,
            pilot_uses=air.pilot_uses,
            agreed={"scales": torch.tensor([unit, amplitude, of_messages], dtype=torch.float64)},
        )

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], broadcast: Broadcast, private: Private, csi: AtReceiver
    ) -> tuple[Mean, Memory]:
        """Round the sums of whole numbers, add those of remainders, undo the gains, divide by the number of devices."""
        of_round = self._round(broadcast)
        carrier, air, heard = of_round.carrier, of_round.carrier.air, in_phase(received)
        told = hear_devices(heard, air, csi)
        sums = carrier.numbers_of(carrier.hear(heard)).double()
        devices = carrier.of_slots(told.in_slots[air.rows].clamp(min=LEAST_DEVICES))[: len(of_round.gains)]
        unit, amplitude, energy = broadcast.agreed["scales"].tolist()
        total = sums[-len(of_round.gains) :] / amplitude if amplitude > 0 else torch.zeros_like(of_round.gains)
        if of_round.step < math.inf:
            total = total + of_round.step * (sums[: len(of_round.gains)] / unit).round()
        total = (total / of_round.gains.to(total)).to(heard)
        if self.context.include_base_station:
            total, devices = total + take(private, of_round.chosen).to(total), devices + 1
        mean = put(total / devices, of_round.chosen, broadcast.num_params)
        own = float((take(private, of_round.chosen).double() * of_round.gains).square().sum()) / len(air.rows)
        length = math.sqrt(energy / own) if own > 0 else 0.0
        memory = {NOISE_VAR: told.noise_var, LENGTH: length}
        found = Mean(mean=mean, num_active_hat=told.num_active)
        return found, {name: torch.tensor(value, dtype=torch.float64) for name, value in memory.items()}
