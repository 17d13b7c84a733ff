r"""ChannelComp (Razavikia et al. 2024): constellations whose sum tells the function that is to be computed.

    base station: scale of every layer, how often each level occurs (announced)
    devices:      messages [K_a, W] ──► nearest of q levels ──► a point of the plane (`encode/constellation.py`)
    base station: pilots ──► K̂;  noisy sums of points ──► types (`decode/types.py`) ──► counts of levels

The published scheme designs points for one function of numbered devices, by conditions on all pairs of $q^K$ inputs. Here all
devices share one constellation, and the function is the type itself: how many devices have each level. Every symmetric rule
follows from it, so a median or a vote needs no constellation of its own. For the mean alone equally spaced points do better,
which is `sumcomp` with one digit.

The points have the mean that was announced taken off. Nothing is sent for it, and the differences stay.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Inexact, Int
from pydantic import Field
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.common.settings import Settings
from aircomp.decode.heard_pilots import in_phase
from aircomp.decode.types import count_levels
from aircomp.encode.carrier import Carrier, amplitude_of_one, chosen_parameters, make_rotation, put, take
from aircomp.encode.codebook import count
from aircomp.encode.constellation import MOST_LEVELS, constellation
from aircomp.errors import ConfigError
from aircomp.quantize.levels import SMALLEST, layer_scales, nearest_level
from aircomp.uplinks.base import MEAN_ENERGY, Announced, Memory, Scheme, Sent, UplinkContext, error_of_mean, new_seed
from aircomp.uplinks.outputs import Counts
from aircomp.uplinks.piloted import check_pilots, hear_devices, plan_round

NAME = "channelcomp"


class ChannelCompSettings(Settings):
    """Options of ChannelComp."""

    levels: int = Field(default=3, ge=2, le=MOST_LEVELS)
    """How many levels a parameter is rounded to; 2 take one channel use, 3 and 4 take two."""
    devices: int = Field(default=16, ge=1, le=64)
    """The most devices that send at once, at most 16 with 4 levels; fewer let the points of 4 levels lie further apart."""
    clip: float = Field(default=1.5, gt=0, le=100)
    """The outermost levels, over the root mean square of their layer in the base station's own update."""


@dataclass(frozen=True)
class Kept:
    """What the base station keeps of a round that it announced."""

    update: Float[Tensor, " params"]
    chosen: Int[Tensor, " chosen"] | None
    limits: Float[Tensor, " chosen"]
    """The outermost levels of every parameter."""
    prior: Float[Tensor, " levels"]
    """How often each level occurs in the base station's own update."""
    carrier: Carrier


class ChannelCompUplink(Scheme):
    """Levels as points whose sum tells how many devices have each.

    Args:
        settings: Its options.
        fragment_length: Parameters that the digital link puts into a slot.
        uses: Channel uses of a slot.
        pilots: How many slots carry pilots; None: `plan_air` decides.
        context: What the link is made for.
    """

    name, offers = NAME, Counts
    side_information = MEAN_ENERGY
    for_more_devices = "raise uplink.channelcomp.devices"

    def __init__(
        self,
        settings: ChannelCompSettings,
        *,
        fragment_length: int,
        uses: int,
        pilots: int | None = None,
        context: UplinkContext | None = None,
    ):
        check_pilots(NAME, pilots)
        self.settings, self.context, self.pilots = settings, context or UplinkContext(), pilots
        self.most_devices = settings.devices
        self.fragment_length, self.levels = fragment_length, torch.linspace(-1, 1, settings.levels)
        self.points = constellation(settings.levels, settings.devices)
        self.axes = self.points.shape[1]
        self.rotation = make_rotation(uses, self.context.seed, self.context.device)

    def broadcast(self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator) -> Announced:
        """Announce the scale of every layer, and how often each level occurs."""
        size, seed = base_update.numel(), new_seed(rng)
        air = plan_round(size, self.fragment_length, len(self.rotation), self.pilots, self.context)
        if air.room < self.axes:
            raise ConfigError(f"{NAME} needs {self.axes} channel uses for a parameter, but the round has {air.room}")
        chosen = chosen_parameters(seed, size, air.room // self.axes)
        own = take(base_update, chosen)
        layers = take(self.context.parameter_layers(size, self.fragment_length).to(own.device), chosen)
        scales = (layer_scales(own, layers) * self.settings.clip).clamp(min=SMALLEST)
        seen = torch.bincount(nearest_level(own / scales[layers], len(self.levels)), minlength=len(self.levels)) + 1.0
        carrier = Carrier(air, self.axes * len(own), self.rotation)
        kept = Kept(base_update, chosen, scales[layers], seen / seen.sum(), carrier)
        return Announced(size, air.num_uses, {"scales": scales, "prior": kept.prior, "seed": seed}, kept)

    def _centred(self, kept: Kept) -> Float[Tensor, "levels axes"]:
        """Return the points less their mean, as often as levels occur."""
        points = self.points.to(kept.prior)
        return points - kept.prior @ points

    def encode(
        self, messages: Float[Tensor, "devices params"], announced: Announced, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Send the point of every parameter's level."""
        kept: Kept = announced.kept
        carrier, air = kept.carrier, kept.carrier.air
        chosen = nearest_level(take(messages, kept.chosen) / kept.limits, len(self.levels))
        slots = carrier.slots_of(self._centred(kept)[chosen].flatten(1))  # the axes of a parameter side by side
        scale = amplitude_of_one(slots)
        speaking = csi.speaking(air.slots, air.uses)
        values = carrier.arrived(self.levels.to(messages)[chosen] * kept.limits, speaking, self.axes)
        return Sent(
            carrier.send(slots * scale),
            put(values, kept.chosen, announced.num_params),
            speaking,
            pilot_uses=air.pilot_uses,
            agreed={"scale": torch.tensor(scale, dtype=torch.float64)},
        )

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], announced: Announced, csi: AtReceiver
    ) -> tuple[Counts, Memory]:
        """Find the type of every parameter."""
        kept: Kept = announced.kept
        carrier, air, heard = kept.carrier, kept.carrier.air, in_phase(received)
        told, scale = hear_devices(heard, air, csi), float(announced.agreed["scale"])
        number = told.in_slots[air.rows].round().clamp(max=self.settings.devices)
        devices = carrier.of_slots(number)[:: self.axes].long()
        sums = carrier.numbers_of(carrier.hear(heard)).unflatten(0, (-1, self.axes))
        # where nothing was sent, all devices have the one level that is announced
        y, noise_var = (sums / scale, told.noise_var / scale**2) if scale > 0 else (0 * sums, 1.0)
        counts, soft = count_levels(y, noise_var, self._centred(kept), kept.prior, devices)
        soft = soft * (told.num_active / devices.clamp(min=1))[:, None].to(soft)  # a block weighs what others do
        output = Counts(
            counts=counts,
            codewords=self.levels.to(sums)[:, None],
            num_params=announced.num_params,
            num_active_hat=told.num_active,
            soft_counts=soft,
            asked=None if kept.chosen is None else kept.chosen.to(counts.device),
            scales=kept.limits,
            own=self._own(kept) if self.context.include_base_station else None,
        )
        return output, {}

    def _own(self, kept: Kept) -> Int[Tensor, "params levels"]:
        """Return the base station's own levels."""
        number = len(self.levels)
        return count(nearest_level(take(kept.update, kept.chosen) / kept.limits, number)[None], number)

    def diagnose(self, sent: Sent, announced: Announced, output: Counts) -> dict[str, float]:
        """Compare with the mean of what devices sent."""
        return error_of_mean(sent, output.aggregate("mean", 1.0, "integers"))
