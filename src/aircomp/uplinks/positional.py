r"""Digits that add up in the air: a device rounds every parameter to a whole number, and sends each of its digits by itself.

    base station: scale of every layer, mean of every digit (announced)
    devices:      messages [K_a, W] ──► whole numbers of D digits in base q ──► one sent number per digit
    base station: pilots ──► K̂;  noisy sums of digits ──► estimated sums ──► mean

SumComp (Razavikia et al. 2025; `sumcomp`) has two digits, in phase and in quadrature. Bit-slicing (Liu et al. 2025;
`bit-slicing`) has more digits of few bits each. We could not read either construction in full, so this one is our own
derivation. It quantises uniformly, with a dither that everybody knows (`quantize/levels.py`). It subtracts the mean of a
digit before sending. It offers three estimates of a sum (`decode/digit_sums.py`).

All digits have the same scale in the air. A wrong sum of the first digit costs $q^{D-1}$ times as much as one of the last.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Inexact, Int
from pydantic import Field
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.common import rng as rngs
from aircomp.common.settings import Settings
from aircomp.decode.digit_sums import Estimate, estimate_sums, sum_prior
from aircomp.decode.heard_pilots import PilotEstimate, in_phase
from aircomp.encode.carrier import Carrier, amplitude_of_one, chosen_parameters, make_rotation, put, take
from aircomp.errors import ConfigError
from aircomp.quantize.levels import Levels, layer_scales
from aircomp.uplinks.base import MEAN_ENERGY, Announced, MeanScheme, Memory, Sent, UplinkContext, new_seed
from aircomp.uplinks.outputs import Mean
from aircomp.uplinks.piloted import check_pilots, hear_devices, plan_round

KINDS = {"sumcomp": 2, "bit-slicing": 3}
"""The schemes, and how many digits a parameter has by default."""


class DigitsSettings(Settings):
    """Options of schemes that send digits."""

    base: int = Field(default=4, ge=2, le=256)
    """How many values a digit has."""
    number: int | None = Field(default=None, ge=1, le=16)
    """How many digits a parameter has; by default 2 for sumcomp and 3 for bit-slicing."""
    clip: float = Field(default=2.5, gt=0, le=100)
    """Parameters are clipped at so many times the root mean square of their layer in the base station's own update."""
    estimate: Estimate = "mean"
    """How the sum of a digit is estimated: its posterior mean, its most probable value (map), or the nearest one (ml)."""


@dataclass(frozen=True)
class Kept:
    """What the base station keeps of a round that it announced."""

    update: Float[Tensor, " params"]
    chosen: Int[Tensor, " chosen"] | None
    levels: Levels
    prior: Float[Tensor, "digits base"]
    """How often each digit has each value in the base station's own update."""
    carrier: Carrier


class PositionalUplink(MeanScheme):
    """Whole numbers, sent digit by digit.

    Args:
        name: One of `KINDS`.
        settings: Its options.
        fragment_length: Parameters that the digital link puts into a slot.
        uses: Channel uses of a slot.
        pilots: How many slots carry pilots; None: `plan_air` decides.
        context: What the link is made for.
    """

    side_information = MEAN_ENERGY

    def __init__(
        self,
        name: str,
        settings: DigitsSettings,
        *,
        fragment_length: int,
        uses: int,
        pilots: int | None = None,
        context: UplinkContext | None = None,
    ):
        check_pilots(name, pilots)
        self.name, self.settings, self.context = name, settings, context or UplinkContext()
        self.number = KINDS[name] if settings.number is None else settings.number
        if settings.base**self.number > 2**24:
            raise ConfigError(
                f"uplink.digits: {self.number} digits to the base {settings.base} have more values than float32 tells apart; "
                "expected at most 2^24"
            )
        self.fragment_length, self.pilots = fragment_length, pilots
        self.rotation = make_rotation(uses, self.context.seed, self.context.device)

    def broadcast(self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator) -> Announced:
        """Announce the scale of every layer, and the mean of every digit."""
        size, seed = base_update.numel(), new_seed(rng)
        air = plan_round(size, self.fragment_length, len(self.rotation), self.pilots, self.context)
        if air.room < self.number:
            raise ConfigError(
                f"{self.name} has {self.number} digits for a parameter, but the round room for {air.room}"
            )
        chosen = chosen_parameters(seed, size, air.room // self.number)
        own = take(base_update, chosen)
        layers = take(self.context.parameter_layers(size, self.fragment_length).to(own.device), chosen)
        scales = layer_scales(own, layers) * self.settings.clip
        dither = torch.rand(len(own), generator=rngs.generator(int(seed), "dither")).to(own)
        levels = Levels(self.settings.base, self.number, scales, layers, dither)
        digits = levels.digits(levels.quantize(own))
        prior = torch.stack([torch.bincount(d, minlength=self.settings.base) + 1 for d in digits]).double()
        prior = prior / prior.sum(dim=1, keepdim=True)
        kept = Kept(base_update, chosen, levels, prior, Carrier(air, self.number * len(own), self.rotation))
        downlink = {"scales": scales, "mean_digits": _means(prior).float(), "seed": seed}
        return Announced(size, air.num_uses, downlink, kept)

    def encode(
        self, messages: Float[Tensor, "devices params"], announced: Announced, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Send the digits of every parameter, less the mean that was announced."""
        kept: Kept = announced.kept
        carrier, air, levels = kept.carrier, kept.carrier.air, kept.levels
        whole = levels.quantize(take(messages, kept.chosen))
        digits = levels.digits(whole) - _means(kept.prior).to(messages)[:, None, None]
        slots = carrier.slots_of(digits.movedim(0, 2).flatten(1))  # a parameter's digits side by side: in one block
        scale = amplitude_of_one(slots)
        speaking = csi.speaking(air.slots, air.uses)
        arrived = carrier.arrived(levels.values(whole), speaking, self.number)
        return Sent(
            carrier.send(slots * scale),
            put(arrived, kept.chosen, announced.num_params),
            speaking,
            pilot_uses=air.pilot_uses,
            agreed={"scale": torch.tensor(scale, dtype=torch.float64)},
        )

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], announced: Announced, csi: AtReceiver
    ) -> tuple[Mean, Memory]:
        """Estimate the sum of every digit, and put the digits together."""
        kept: Kept = announced.kept
        carrier, air, heard = kept.carrier, kept.carrier.air, in_phase(received)
        told = hear_devices(heard, air, csi)
        means = self._mean_digits(carrier.numbers_of(carrier.hear(heard)), float(announced.agreed["scale"]), told, kept)
        mean = kept.levels.from_digits(means)
        devices = carrier.of_slots(told.in_slots[air.rows].round())[:: self.number]
        mean = mean * (devices > 0)
        if self.context.include_base_station:
            mean = (mean * devices + take(kept.update, kept.chosen).to(mean)) / (devices + 1)
        return Mean(mean=put(mean, kept.chosen, announced.num_params), num_active_hat=told.num_active), {}

    def _mean_digits(
        self, heard: Float[Tensor, " numbers"], scale: float, told: PilotEstimate, kept: Kept
    ) -> Float[Tensor, "digits params"]:
        """Return the mean of every digit over the devices of its block."""
        if scale == 0:
            return _means(kept.prior).to(heard)[:, None].expand(-1, len(heard) // self.number)
        carrier, rows = kept.carrier, kept.carrier.air.rows
        devices = carrier.of_slots(told.in_slots[rows].round().clamp(min=1))
        found, noise, means = torch.empty_like(heard), told.noise_var / scale**2, _means(kept.prior).tolist()
        position = torch.arange(len(heard), device=heard.device) % self.number
        for number in devices.unique().tolist():
            for i, prior in enumerate(kept.prior):
                some = (devices == number) & (position == i)
                sums = heard[some] / scale + number * means[i]
                found[some] = estimate_sums(sums, noise, sum_prior(prior, int(number)), self.settings.estimate) / number
        return found.unflatten(0, (-1, self.number)).T


def _means(prior: Float[Tensor, "digits base"]) -> Float[Tensor, " digits"]:
    return prior @ torch.arange(prior.shape[1], dtype=prior.dtype, device=prior.device)
