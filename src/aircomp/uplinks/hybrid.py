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
from jaxtyping import Float, Inexact
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.decode.heard_pilots import in_phase
from aircomp.encode.carrier import Carrier, chosen_parameters, make_rotation, put, take
from aircomp.quantize.levels import layer_gains
from aircomp.quantize.remainder import MOST_OF_ENERGY, choose_step, divided
from aircomp.uplinks.analog import LEAST_DEVICES
from aircomp.uplinks.base import NOISE_VAR, Announced, MeanScheme, Memory, Sent, UplinkContext, new_seed, remembered
from aircomp.uplinks.outputs import Mean
from aircomp.uplinks.piloted import check_pilots, hear_devices, plan_round

NAME = "hybrid"
LENGTH = "length"
"""What the link remembers beside the noise: the length of devices' updates over that of the base station's own."""


@dataclass(frozen=True)
class Kept:
    """What the base station keeps of a round that it announced."""

    update: Float[Tensor, " params"]
    gains: Float[Tensor, " chosen"]
    chosen: Tensor | None
    """The parameters of the round; None: all."""
    carrier: Carrier
    step: float
    """Infinite: no whole numbers are sent."""
    unit: float
    """The amplitude with which a whole number of one arrives."""


class HybridUplink(MeanScheme):
    """Whole numbers and remainders of whole messages.

    Args:
        fragment_length: Parameters that the digital link puts into a slot.
        uses: Channel uses of a slot.
        pilots: How many slots carry pilots; None: `plan_air` decides.
        context: What the link is made for.
    """

    name = NAME
    side_information = ("the mean energies of devices' messages, whole numbers and remainders, which set their scales",)

    def __init__(
        self, *, fragment_length: int, uses: int, pilots: int | None = None, context: UplinkContext | None = None
    ):
        check_pilots(NAME, pilots)
        self.context, self.pilots, self.fragment_length = context or UplinkContext(), pilots, fragment_length
        self.rotation = make_rotation(uses, self.context.seed, self.context.device)

    def broadcast(self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator) -> Announced:
        """Announce how loud each layer is to be sent, and the step."""
        size, noise_var, length = base_update.numel(), remembered(memory, NOISE_VAR), remembered(memory, LENGTH)
        air = plan_round(size, self.fragment_length, len(self.rotation), self.pilots, self.context)
        seed = new_seed(rng)
        chosen = chosen_parameters(seed, size, air.room)
        layers = take(self.context.parameter_layers(size, self.fragment_length).to(base_update.device), chosen)
        own = take(base_update, chosen)
        loud = layer_gains(own, layers)
        step, margin = math.inf, 0.0
        if noise_var is not None and length and 2 * len(own) <= air.room and not self.context.block_uses:
            step, margin = choose_step(own.double() * loud[layers] * length, noise_var, len(air.rows))
        carrier = Carrier(air, len(own) if step == math.inf else 2 * len(own), self.rotation)
        kept = Kept(base_update, loud[layers], chosen, carrier, step, 2 * margin * math.sqrt(noise_var or 0.0))
        downlink = {"gains": loud.float(), "step": torch.tensor([step, kept.unit], dtype=torch.float32)}
        return Announced(size, air.num_uses, downlink | ({} if chosen is None else {"seed": seed}), kept)

    def encode(
        self, messages: Float[Tensor, "devices params"], announced: Announced, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Divide messages into whole numbers and remainders, scale both to a mean energy of one, and spread them."""
        kept: Kept = announced.kept
        carrier, air = kept.carrier, kept.carrier.air
        values = take(messages, kept.chosen)
        wanted = values.double() * kept.gains
        whole, rest = divided(wanted, kept.step)
        slots = max(len(messages) * len(air.rows), 1)
        most = MOST_OF_ENERGY * slots / max(float(whole.square().sum()), 1e-300)
        unit = min(kept.unit, math.sqrt(most))
        left = 1 - unit**2 * float(whole.square().sum()) / slots
        energy = float(rest.square().sum()) / slots
        amplitude = math.sqrt(left / energy) if energy > 0 else 0.0
        numbers = amplitude * rest if kept.step == math.inf else torch.cat([unit * whole, amplitude * rest], dim=1)
        speaking, sent = csi.speaking(air.slots, air.uses), values
        if speaking is not None:  # a message arrives where both of its parts do
            spoken = carrier.of_slots(speaking[:, air.rows])
            sent = values * (spoken[:, : values.shape[1]] & spoken[:, -values.shape[1] :]).to(values)
        return Sent(
            carrier.send(carrier.slots_of(numbers).to(messages)),
            put(sent, kept.chosen, announced.num_params),
            speaking,
            pilot_uses=air.pilot_uses,
            agreed={
                "scales": torch.tensor([unit, amplitude, float(wanted.square().sum()) / slots], dtype=torch.float64)
            },
        )

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], announced: Announced, csi: AtReceiver
    ) -> tuple[Mean, Memory]:
        """Round the sums of whole numbers, add those of remainders, undo the gains, divide by the number of devices."""
        kept: Kept = announced.kept
        carrier, air, heard = kept.carrier, kept.carrier.air, in_phase(received)
        told = hear_devices(heard, air, csi)
        sums = carrier.numbers_of(carrier.hear(heard)).double()
        devices = carrier.of_slots(told.in_slots[air.rows].clamp(min=LEAST_DEVICES))[: len(kept.gains)]
        unit, amplitude, energy = announced.agreed["scales"].tolist()
        total = sums[-len(kept.gains) :] / amplitude if amplitude > 0 else torch.zeros_like(kept.gains)
        if kept.step < math.inf:
            total = total + kept.step * (sums[: len(kept.gains)] / unit).round()
        total = (total / kept.gains.to(total)).to(heard)
        if self.context.include_base_station:
            total, devices = total + take(kept.update, kept.chosen).to(total), devices + 1
        mean = put(total / devices, kept.chosen, announced.num_params)
        own = float((take(kept.update, kept.chosen).double() * kept.gains).square().sum()) / len(air.rows)
        length = math.sqrt(energy / own) if own > 0 else 0.0
        memory = {NOISE_VAR: told.noise_var, LENGTH: length}
        found = Mean(mean=mean, num_active_hat=told.num_active)
        return found, {name: torch.tensor(value, dtype=torch.float64) for name, value in memory.items()}
