r"""ChannelComp (Razavikia et al. 2024): constellations whose sum tells the function that is to be computed.

    base station: scale of every layer, how often each level occurs (announced)
    devices:      messages [K_a, W] ──► nearest of q levels ──► a point of the plane (`encode/constellation.py`)
    base station: pilots ──► K̂;  noisy sums of points ──► types (`decoders/types.py`) ──► counts of levels

With `function = "type"` the sum tells how many devices have each level. Every symmetric rule follows from it, so it
offers counts. With `mean`, `median` or `maximum` it offers that function of every parameter, for which fewer sums must be
kept apart; the rule is then `mean`, since one value is all that there is. Points come from the paper's optimisation
(`encode/constellation.py`), of which the construction for one constellation of all devices is derived here. Points for
the mean are equally spaced.

The points have the mean that was announced taken off. Nothing is sent for it, and the differences stay.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.decoders.types import count_levels, estimate_function, estimate_mean
from aircomp.encode.carrier import Air, Carrier, amplitude_of_one, chosen_parameters, make_rotation, put, take
from aircomp.encode.codebook import count
from aircomp.encode.constellation import FUNCTIONS, constellation
from aircomp.errors import ConfigError
from aircomp.quantize.levels import SMALLEST, layer_scales, nearest_level
from aircomp.schemes.base import (
    MEAN_ENERGY,
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
from aircomp.schemes.outputs import Counts, Mean, Output
from aircomp.schemes.piloted import carrier_of, hear_devices, plan_round, remember
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import ChannelCompSettings


@dataclass(frozen=True)
class ChannelCompRound:
    """What both sides derive from the broadcast."""

    chosen: Int[Tensor, " chosen"] | None
    limits: Float[Tensor, " chosen"]
    """The outermost levels of every parameter."""
    points: Float[Tensor, "levels axes"]
    """What is sent for each level, but for its mean."""
    prior: Float[Tensor, " levels"]
    """How often each level occurs in the base station's own update."""
    carrier: Carrier


@scheme(
    "channelcomp",
    sends="a level of every parameter, as a point",
    needs="in phase",
    source="Razavikia et al. 2024",
    checked="derived",
    against="points reach the dual bound of the semidefinite relaxation",
)
class ChannelComp(Scheme):
    """Levels as points whose sum tells how many devices have each.

    Args:
        settings: Its options.
        context: What the link is made for.
    """

    settings_class = ChannelCompSettings
    offers = Counts
    side_information = MEAN_ENERGY
    for_more_devices = "raise uplink.devices"

    def __init__(self, settings: ChannelCompSettings, context: SchemeContext | None = None):
        self.settings, self.context, self.most_devices = settings, context or SchemeContext(), settings.devices
        self.levels = torch.linspace(-1, 1, settings.levels)
        self.points = constellation(settings.levels, settings.devices, settings.function)
        self.offers = Counts if settings.function == "type" else Mean
        self.rotation = make_rotation(settings.codeword_length, self.context.seed, self.context.device)

    def broadcast(
        self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator
    ) -> tuple[Broadcast, Private]:
        """Announce the scale of every layer, and how often each level occurs."""
        size, seed = base_update.numel(), new_seed(rng)
        air = plan_round(size, self.settings, self.context)
        points = self.design(base_update, memory, air)
        axes = points.shape[1]
        if air.room < axes:
            raise ConfigError(f"{self.name} needs {axes} channel uses for a parameter, but the round has {air.room}")
        chosen = chosen_parameters(seed, size, air.room // axes)
        scales, prior = self._seen(take(base_update, chosen), take(self._layers(size), chosen))
        values = {"scales": scales, "prior": prior, "seed": seed}
        told = {} if points is self.points else {"points": points}
        return Broadcast(size, air.num_uses, values | told), base_update

    def design(self, base_update: Float[Tensor, " params"], memory: Memory, air: Air) -> Float[Tensor, "levels axes"]:
        """Return the points of the round; those of every round need not be announced."""
        return self.points

    def _seen(
        self, own: Float[Tensor, " chosen"], layers: Int[Tensor, " chosen"]
    ) -> tuple[Float[Tensor, " layers"], Float[Tensor, " levels"]]:
        """Return the outermost levels of every layer, and how often each level occurs."""
        scales = (layer_scales(own, layers) * self.settings.clip).clamp(min=SMALLEST)
        seen = torch.bincount(nearest_level(own / scales[layers], len(self.levels)), minlength=len(self.levels)) + 1.0
        return scales, seen / seen.sum()

    def _layers(self, num_params: int) -> Int[Tensor, " params"]:
        return self.context.parameter_layers(num_params, self.settings.fragment_length).to(self.rotation.device)

    def _round(self, broadcast: Broadcast) -> ChannelCompRound:
        """Return what both sides derive from the broadcast."""
        size, values = broadcast.num_params, broadcast.values
        air = plan_round(size, self.settings, self.context)
        points = values.get("points", self.points).to(values["prior"])
        axes = points.shape[1]
        chosen = chosen_parameters(values["seed"], size, air.room // axes)
        limits = values["scales"][take(self._layers(size), chosen)]
        return ChannelCompRound(
            chosen,
            limits,
            points,
            values["prior"],
            carrier_of(self, air, axes * len(limits), axes),
        )

    def _centred(self, of_round: ChannelCompRound) -> Float[Tensor, "levels axes"]:
        """Return the points less their mean, as often as levels occur."""
        return of_round.points - of_round.prior @ of_round.points

    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Send the point of every parameter's level."""
        of_round = self._round(broadcast)
        carrier, air = of_round.carrier, of_round.carrier.air
        chosen = nearest_level(take(messages, of_round.chosen) / of_round.limits, len(self.levels))
        slots = carrier.slots_of(self._centred(of_round)[chosen].flatten(1))  # the axes of a parameter side by side
        scale = amplitude_of_one(csi.as_reported(slots))
        speaking = csi.speaking(air.slots, air.uses)
        values = carrier.arrived(self.levels.to(messages)[chosen] * of_round.limits, speaking)
        return Sent(
            carrier.send(slots * scale),
            put(values, of_round.chosen, broadcast.num_params),
            speaking,
            pilot_uses=air.pilot_uses,
            agreed={"scale": torch.tensor(scale, dtype=torch.float64)},
        )

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], broadcast: Broadcast, private: Private, csi: AtReceiver
    ) -> tuple[Output, Memory]:
        """Find the type of every parameter, or the function of it."""
        of_round = self._round(broadcast)
        carrier, air, heard = of_round.carrier, of_round.carrier.air, in_phase(received)
        told, scale = hear_devices(heard, air, csi), float(broadcast.agreed["scale"])
        number = told.in_slots[air.rows].round().clamp(max=self.settings.devices)
        axes = of_round.points.shape[1]
        devices = carrier.of_slots(number)[::axes].long()
        sums = carrier.numbers_of(carrier.hear(heard)).unflatten(0, (-1, axes))
        # where nothing was sent, all devices have the one level that is announced
        y, noise_var = (sums / scale, told.noise_var / scale**2) if scale > 0 else (0 * sums, 1.0)
        if self.settings.function != "type":
            return self._function(y, noise_var, of_round, devices, told.num_active, private), remember(told)
        counts, soft = count_levels(y, noise_var, self._centred(of_round), of_round.prior, devices)
        soft = soft * (told.num_active / devices.clamp(min=1))[:, None].to(soft)  # a block weighs what others do
        output = Counts(
            counts=counts,
            codewords=self.levels.to(sums)[:, None],
            num_params=broadcast.num_params,
            num_active_hat=told.num_active,
            soft_counts=soft,
            asked=None if of_round.chosen is None else of_round.chosen.to(counts.device),
            scales=of_round.limits,
            own=self._own(private, of_round) if self.context.include_base_station else None,
        )
        return output, remember(told)

    def _function(
        self,
        heard: Float[Tensor, "params axes"],
        noise_var: float,
        of_round: ChannelCompRound,
        devices: Int[Tensor, " params"],
        num_active: float,
        own: Float[Tensor, " params"],
    ) -> Mean:
        """Return the posterior mean of the function."""
        known = (heard, noise_var, self._centred(of_round), of_round.prior, devices)
        function, steps = self.settings.function, heard.shape[1] == 1  # points on a line have equal steps
        value = (
            estimate_mean(*known) if function == "mean" and steps else estimate_function(*known, FUNCTIONS[function])
        )
        value = value * of_round.limits.to(value)
        if self.context.include_base_station:
            value = (value * devices + take(own, of_round.chosen).to(value)) / (devices + 1)
        return Mean(mean=put(value, of_round.chosen, len(own)), num_active_hat=num_active)

    def _own(self, update: Float[Tensor, " params"], of_round: ChannelCompRound) -> Int[Tensor, "params levels"]:
        """Return the base station's own levels."""
        number = len(self.levels)
        return count(nearest_level(take(update, of_round.chosen) / of_round.limits, number)[None], number)

    def diagnose(self, sent: Sent, broadcast: Broadcast, output: Counts | Mean) -> dict[str, float]:
        """Compare with the mean of what devices sent."""
        mean = output.mean if isinstance(output, Mean) else output.aggregate("mean", 1.0, "integers", None)
        return error_of_mean(sent, mean)
