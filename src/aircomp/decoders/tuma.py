r"""Counting over antennas in several places: multisource AMP with a noise and a gain for each access point (TUMA).

Every zone of the area has codewords of its own, so a codeword tells about where its senders are, and so how loud each
access point hears them. $m$ devices of a zone arrive at access point $b$ with the sum of $m$ places' powers. Places that
stand for the zone, and draws of $m$ of them, make the table that `aircomp.decoders.fading.multisource` weighs. One access
point and one zone with powers of one make it `aircomp.decoders.fading.blind`. The search for the noise and for the number of
devices in every zone is ours.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from aircomp.common.rng import generator
from aircomp.decoders.base import MAX_DEVICES, Decoded
from aircomp.decoders.fading.blind import PILOT_PASSES, PILOT_SLOTS
from aircomp.decoders.fading.count_weights import CountTable, largest_count
from aircomp.decoders.fading.multisource import Schedule, multisource_amp
from aircomp.decoders.fading.receiver import (
    MIN_RATE,
    Reception,
    check_complex_codebook,
    check_reception,
    conclude_blocks,
    expected_counts,
    soft_counts,
)
from aircomp.decoders.settings import TumaSettings
from aircomp.errors import ShapeError

_SPREAD = 1e-4
"""Of powers, relative to the largest: below it they differ by rounding."""
_MISSED = 3
"""Powers that stand for what a device may send with."""
AT_ONCE = 400_000
"""Weights of the slots that are decoded together: so many fit into the processor's cache. Changes nothing but the time."""


@dataclass(frozen=True)
class Zones:
    """What is known of every zone beforehand."""

    shares: Float[Tensor, " zones"]
    """The part of the devices that is in it."""
    powers: Float[Tensor, "zones places access_points"]
    """Mean power at every access point of a device at some places, which stand for all of the zone."""
    weights: Float[Tensor, "zones places"]
    """How likely a device of the zone is at each; zero for those that only fill up."""

    @property
    def mean_power(self) -> float:
        """Of a device anywhere, over all antennas."""
        return float((self.shares[:, None] * self.weights * self.powers.mean(dim=2)).double().sum())

    @property
    def spread(self) -> bool:
        """Whether places differ in the power that all access points hear together."""
        sums = self.powers.mean(dim=2)[self.weights > 0]
        return float(sums.max() - sums.min()) > _SPREAD * float(sums.max())

    def with_error(self, power_var: float) -> "Zones":
        """Return zones whose devices miss their power by so much: every place with some of the powers it may have."""
        if power_var == 0:
            return self
        q = math.sqrt(math.log1p(power_var))
        missed = torch.exp(q * torch.special.ndtri((torch.arange(_MISSED) + 0.5) / _MISSED))
        missed = (missed / missed.mean())[:, None]
        return Zones(
            self.shares,
            (self.powers[:, :, None] * missed).flatten(1, 2),
            (self.weights / _MISSED).repeat_interleave(_MISSED, dim=1),
        )


ONE_ZONE = Zones(torch.ones(1), torch.ones(1, 1, 1), torch.ones(1, 1))
"""All devices arrive with power one at one access point."""


@dataclass(frozen=True)
class ZoneTable:
    """The counts that are weighed, each with some powers at all access points."""

    counts: Float[Tensor, " rows"]
    log_share: Float[Tensor, "zones rows"]
    power: Float[Tensor, "zones rows access_points"]

    @classmethod
    def of(cls, zones: Zones, max_count: int) -> "ZoneTable":
        """Take every place for one device; draw places for several, fewer for many, whose sums vary less."""
        number, places, sites = zones.powers.shape
        draws = [-(-places // m) for m in range(2, max_count + 1)]
        rng = generator(0, "places in zones")
        chosen = torch.multinomial(zones.weights, places * max_count, replacement=True, generator=rng)
        several = zones.powers.gather(1, chosen[:, :, None].expand(-1, -1, sites)).unflatten(1, (places, max_count))
        sums = [several[:, :n, : m + 2].sum(2) for m, n in enumerate(draws)]
        repeats = torch.tensor([1, places, *draws])
        log_share = -repeats.float().log().repeat_interleave(repeats).repeat(number, 1)
        log_share[:, 1 : places + 1] = zones.weights.log()
        return cls(
            torch.arange(len(repeats)).repeat_interleave(repeats).float(),
            log_share,
            torch.cat([torch.zeros(number, 1, sites), zones.powers, *sums], dim=1),
        )

    def log_prior(
        self, rate: Float[Tensor, "#slots words"], agreement: float
    ) -> Float[Tensor, "#slots zones rows codewords"]:
        """Return the log weight of every row for every codeword beforehand."""
        of_counts = CountTable.of(int(self.counts[-1])).log_prior(rate, agreement)
        prior = of_counts.unflatten(2, (len(self.power), -1)).transpose(1, 2)[:, :, self.counts.long()]
        return prior.add_(self.log_share[:, :, None].to(rate))


class Tuma:
    """Multisource AMP over access points; the number of devices in every zone and the noise are estimated from the round.

    Args:
        codebook: Unit-norm complex codewords, those of one zone after those of another.
        zones: What is known of each.
        settings: Its options.
    """

    side_information: tuple[str, ...] = ()

    def __init__(
        self,
        codebook: Complex[Tensor, "words uses"],
        zones: Zones = ONE_ZONE,
        settings: TumaSettings | None = None,
    ):
        self.codebook, self.zones = check_complex_codebook(codebook), zones
        self.settings = settings or TumaSettings()
        if len(codebook) % len(zones.shares):
            raise ShapeError(
                f"codebook has {len(codebook)} rows for {len(zones.shares)} zones; expected as many for every zone"
            )

    @torch.no_grad()
    def receive(self, seen: Reception) -> list[Decoded]:
        """Estimate the counts of every block, summed over zones."""
        seen = check_reception(seen, self.codebook[: len(self.codebook) // len(self.zones.shares)])
        Y = self._by_access_point(seen.received)
        devices, noise_var = self.estimate(Y, seen)
        num_active = float(devices.sum())
        if num_active < 0.5 or len(Y) == 0:
            empty = seen.popularity.new_zeros(len(Y), len(seen.popularity))
            return conclude_blocks(empty, noise_var, [0.0] * len(seen.all_blocks), seen.all_blocks)

        def run(some: Tensor, rate: Tensor, iterations: int) -> Tensor:
            return self.run(some, rate, devices, seen.gain_model.power_var, iterations)[0].sum(1)

        rate = expected_counts(num_active, seen.popularity)
        mean = soft_counts(run, Y, rate, self.settings.iterations, seen.slot_layers, seen.bs_indices)
        return conclude_blocks(mean, noise_var, [num_active] * len(seen.all_blocks), seen.all_blocks)

    def _by_access_point(self, received: Complex[Tensor, "antennas slots uses"]) -> Tensor:
        number = self.zones.powers.shape[2]
        if len(received) % number:
            raise ShapeError(
                f"received has {len(received)} antennas for {number} access points; expected as many for every one"
            )
        return received.transpose(0, 1).unflatten(1, (number, -1))

    def run(
        self,
        Y: Complex[Tensor, "slots access_points antennas uses"],
        rate: Float[Tensor, "#slots codewords"],
        devices: Float[Tensor, " zones"],
        power_var: float,
        iterations: int,
    ) -> tuple[Float[Tensor, "slots zones codewords"], Float[Tensor, " slots"]]:
        """Return counts and noise of slots, for known rates and a known number of devices in every zone."""
        shares = (devices / devices.sum()).to(rate)
        rates = (shares[:, None] * rate[:, None]).clamp(min=MIN_RATE).flatten(1)
        table = ZoneTable.of(self.zones.with_error(power_var), largest_count(float(rates.max())))
        schedule = Schedule.plain(iterations, self.settings.damping)
        size = max(1, AT_ONCE // (table.power.shape[1] * len(self.codebook)))
        found = []
        for first in range(0, len(Y), size):
            rows = slice(first, first + size)
            prior = table.log_prior(rates if len(rates) == 1 else rates[rows], self.settings.agreement)
            part = multisource_amp(Y[rows], self.codebook.to(Y), prior, table.counts, table.power, schedule)
            found.append((part.mean, part.noise_var))
        mean, noise_var = (torch.cat(parts) for parts in zip(*found, strict=True))
        return mean, noise_var

    def estimate(self, Y: Tensor, seen: Reception) -> tuple[Float[Tensor, " zones"], float]:
        r"""Estimate the number of devices in every zone, and the noise.

        Some slots are decoded. What is left over is the noise; the rest of the power over that of a device is the number
        of devices. Where places differ in the power that arrives, the counts tell it better. They tell who is in a zone.
        """
        shares = self.zones.shares.double()
        if len(Y) == 0:
            return shares * (seen.num_active or 0.0), seen.noise_var or 0.0
        antennas, uses = Y.shape[1] * Y.shape[2], Y.shape[3]
        energy = float(Y.abs().double().square().sum((1, 2, 3)).mean()) / antennas
        noise = 0.5 * energy / uses if seen.noise_var is None else seen.noise_var
        some = Y[:: max(1, len(Y) // PILOT_SLOTS)]

        def by_power() -> float:
            return min(max(energy - uses * noise, 0.0) / self.zones.mean_power, MAX_DEVICES)

        total = by_power() if seen.num_active is None else seen.num_active
        for _ in range(PILOT_PASSES if energy > 0 else 0):
            if total < MIN_RATE:
                break
            rate = expected_counts(total, seen.popularity)
            mean, left = self.run(some, rate, shares, seen.gain_model.power_var, self.settings.iterations)
            counted = mean.double().sum(2).mean(0).cpu()
            if seen.noise_var is None:
                noise = min(float(left.double().mean()), energy / uses)
            if seen.num_active is None:
                total = float(counted.sum()) if self.zones.spread else by_power()
            shares = (counted + MIN_RATE) / (counted + MIN_RATE).sum()
        return shares * total, noise
