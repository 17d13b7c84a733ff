r"""Type-based multiple access with rounding to the lattice of counts (Martinez-Gost, Pérez-Neira and Lagunas 2026).

    base station: scale of every layer (announced)
    devices:      messages [K_a, W] ──► nearest of q levels ──► the orthogonal waveform of that level, all at once
    base station: pilots ──► K̂;  what each waveform holds = count + noise ──► nearest counts of sum K̂

Every level of a parameter has a waveform of its own, so the air adds up the type $n$ of the parameter: how many devices have
each level. Counts are non-negative integers that sum to $K$, so they are points of a lattice in a simplex. The nearest of
them to the noisy type is taken. No prior is used, and every symmetric rule follows from the type.

Neighbours in the lattice differ by one device with another level, which is a distance of $\sqrt 2$. Where no edge is near,
types are wrong with the probability

$$q = 2:\; 2\,Q\!\Big(\frac{1}{\sqrt 2\,\sigma}\Big), \qquad
q = 3:\; \frac{6}{\pi} \int_0^{\pi/6} \exp\Big(-\frac{1}{4\sigma^2\cos^2\theta}\Big)\, d\theta, \qquad
\text{any } q:\; \le q(q - 1)\, Q\!\Big(\frac{1}{\sqrt 2\,\sigma}\Big),$$

which falls exponentially with the SNR. The abstract names the lattice that superposition makes, the projection on its nearest
point, and that fall in place of the inverse of the SNR, without a prior. The rest is derived here: the sum of the counts as a
constraint, $K$ from pilots, evenly spaced levels, and waveforms that are spread over the uses of a slot. A parameter takes
$q$ channel uses, so three levels are what the budget of 3.2 uses a parameter has room for.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.decoders.rounding import nearest_of_sum
from aircomp.encode.carrier import Carrier, chosen_parameters, make_rotation, put, take
from aircomp.encode.codebook import count
from aircomp.errors import ConfigError
from aircomp.quantize.levels import SMALLEST, layer_scales, nearest_level
from aircomp.schemes.base import (
    Broadcast,
    Memory,
    Private,
    Scheme,
    SchemeContext,
    Sent,
    error_of_mean,
    in_phase,
    new_seed,
)
from aircomp.schemes.outputs import Counts
from aircomp.schemes.piloted import carrier_of, hear_devices, plan_round
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import TbmaLatticeSettings


@dataclass(frozen=True)
class TbmaRound:
    """What both sides derive from the broadcast."""

    chosen: Int[Tensor, " chosen"] | None
    limits: Float[Tensor, " chosen"]
    """The outermost levels of every parameter."""
    carrier: Carrier

    @property
    def amplitude(self) -> float:
        """Of a waveform: a device sends one for each parameter, so this gives a slot energy one on average."""
        return math.sqrt(len(self.carrier.air.rows) / max(len(self.limits), 1))


@scheme(
    "tbma-lattice",
    sends="the waveform of every parameter's level",
    needs="in phase",
    source="Martinez-Gost et al. 2026",
    checked="derived",
    against="types of two levels err by 2Q(1/(√2 σ)), of three as the cells of a triangular lattice say",
)
class TbmaLattice(Scheme):
    """Levels with waveforms of their own, and the nearest counts.

    Args:
        settings: Its options.
        context: What the link is made for.
    """

    settings_class = TbmaLatticeSettings
    offers = Counts

    def __init__(self, settings: TbmaLatticeSettings, context: SchemeContext | None = None):
        self.settings, self.context = settings, context or SchemeContext()
        self.levels = torch.linspace(-1, 1, settings.levels)
        self.rotation = make_rotation(settings.codeword_length, self.context.seed, self.context.device)

    def broadcast(
        self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator
    ) -> tuple[Broadcast, Private]:
        """Announce the scale of every layer."""
        size, number = base_update.numel(), len(self.levels)
        air = plan_round(size, self.settings, self.context)
        if air.room < number:
            raise ConfigError(
                f"{self.name} has {number} levels for a parameter, but the round room for {air.room}; use a larger model, a "
                "longer uplink.codeword_length or fewer uplink.levels"
            )
        scales = layer_scales(base_update, self._layers(size).to(base_update.device)) * self.settings.clip
        return Broadcast(size, air.num_uses, {"scales": scales, "seed": new_seed(rng)}), base_update

    def _layers(self, num_params: int) -> Int[Tensor, " params"]:
        return self.context.parameter_layers(num_params, self.settings.fragment_length).to(self.rotation.device)

    def _round(self, broadcast: Broadcast) -> TbmaRound:
        """Return what both sides derive from the broadcast."""
        size, number = broadcast.num_params, len(self.levels)
        air = plan_round(size, self.settings, self.context)
        chosen = chosen_parameters(broadcast.values["seed"], size, air.room // number)
        limits = broadcast.values["scales"].clamp(min=SMALLEST)[take(self._layers(size), chosen)]
        return TbmaRound(chosen, limits, carrier_of(self, air, number * len(limits), number))

    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Send the waveform of every parameter's level."""
        of_round, number = self._round(broadcast), len(self.levels)
        carrier, air = of_round.carrier, of_round.carrier.air
        chosen = nearest_level(take(messages, of_round.chosen) / of_round.limits, number)
        waveforms = torch.nn.functional.one_hot(chosen, number).to(messages).flatten(1)
        speaking = csi.speaking(air.slots, air.uses)
        values = carrier.arrived(self.levels.to(messages)[chosen] * of_round.limits, speaking)
        return Sent(
            carrier.send(carrier.slots_of(waveforms) * of_round.amplitude),
            put(values, of_round.chosen, broadcast.num_params),
            speaking,
            pilot_uses=air.pilot_uses,
        )

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], broadcast: Broadcast, private: Private, csi: AtReceiver
    ) -> tuple[Counts, Memory]:
        """Round the noisy type of every parameter to the nearest counts of its number of devices."""
        of_round, number = self._round(broadcast), len(self.levels)
        carrier, air, heard = of_round.carrier, of_round.carrier.air, in_phase(received)
        told = hear_devices(heard, air, csi)
        devices = carrier.of_slots(told.in_slots[air.rows].round())[::number].long()
        noisy = carrier.numbers_of(carrier.hear(heard)).unflatten(0, (-1, number)) / of_round.amplitude
        counts = torch.zeros_like(noisy, dtype=torch.int64)
        for total in devices.unique().tolist():
            counts[devices == total] = nearest_of_sum(noisy[devices == total], total)
        output = Counts(
            counts=counts,
            codewords=self.levels.to(noisy)[:, None],
            num_params=broadcast.num_params,
            num_active_hat=told.num_active,
            asked=None if of_round.chosen is None else of_round.chosen.to(counts.device),
            scales=of_round.limits,
            own=self._own(private, of_round) if self.context.include_base_station else None,
        )
        return output, {}

    def _own(self, update: Float[Tensor, " params"], of_round: TbmaRound) -> Int[Tensor, "params levels"]:
        """Return the base station's own levels."""
        number = len(self.levels)
        return count(nearest_level(take(update, of_round.chosen) / of_round.limits, number)[None], number)

    def diagnose(self, sent: Sent, broadcast: Broadcast, output: Counts) -> dict[str, float]:
        """Compare with the mean of what devices sent."""
        return error_of_mean(sent, output.aggregate("mean", 1.0, "integers", None))
