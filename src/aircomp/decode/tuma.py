r"""Counting over antennas in several places: multisource AMP with a noise and a gain for each access point (TUMA).

Every zone of the area has codewords of its own, so a codeword tells about where its senders are, and so how loud each
access point hears them. $m$ devices of a zone arrive at access point $b$ with power $p_b$, the sum of $m$ places' gains:

$$P(m, p) \propto P_0(m)\,P(p|m)\prod_b (T_b+p_b)^{-A} e^{-u_b/(T_b+p_b)}, \qquad
X_b = \phi_b R_b,\quad \phi_b = E\left[\frac{p_b}{T_b+p_b}\right]$$

    Y_b ──► R_b = C^H Z_b + X_b ──► u_b ─┬─► P(m, p) ─┬─► φ_b, X_b ──► Z_b = Y_b − C X_b + o_b Z_b ──┐
             ▲     of every b            └─ all b ────┘     of every b                               │
             └───────────────────────────────────────────────────────────────────────────────────────┘

$P(p|m)$ is given by places that stand for the zone, and draws of $m$ of them. $A$ is the number of antennas of an access
point, $u_b$ the energy of $R_b$ over them, $T_b$ the power of $Z_b$, and $o_b$ the Onsager coefficient. One access point and
one zone with gains of one make it `aircomp.decode.blind`. The Onsager term is ours, as is the search for the noise and for
the number of devices in every zone.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Complex, Float
from pydantic import Field
from torch import Tensor

from aircomp.common.rng import generator
from aircomp.decode.base import MAX_DEVICES, Decoded
from aircomp.decode.blind import MIN_POWER, PILOT_PASSES, PILOT_SLOTS, BlindSettings
from aircomp.decode.receiver import (
    MIN_RATE,
    Reception,
    check_complex_codebook,
    check_reception,
    conclude_blocks,
    expected_counts,
    soft_counts,
)
from aircomp.decode.table import CountTable, largest_count
from aircomp.errors import ShapeError

NAME = "tuma"
"""What results call the scheme."""
_SPREAD = 1e-4
"""Of powers, relative to the largest: below it they differ by rounding."""
_MISSED = 3
"""Powers that stand for what a device may send with."""
AT_ONCE = 16
"""Slots whose rows fit into the processor's cache: changes nothing but the time."""


class TumaSettings(BlindSettings):
    """Options of zones and of their receiver."""

    zones: int | None = Field(default=None, ge=1, le=64)
    """Parts of the area, each with codewords of its own; by default as many as access points."""
    places: int = Field(default=16, ge=1, le=256)
    """Places in a zone that stand for all where a device can be."""


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
        table = CountTable(self.counts, self.counts, torch.zeros_like(self.counts))
        prior = table.log_prior(rate, agreement).unflatten(2, (len(self.power), -1)).transpose(1, 2)
        return prior + self.log_share[:, :, None].to(rate)


@dataclass(frozen=True)
class Heard:
    """What message passing found in some slots."""

    mean: Float[Tensor, "slots zones codewords"]
    """Posterior mean of the counts."""
    noise_var: Float[Tensor, " slots"]
    """Per complex use and antenna."""


@dataclass(frozen=True)
class _Seen:
    """What one iteration sees."""

    R: Complex[Tensor, "slots access_points antennas words"]
    T: Float[Tensor, "slots access_points"]
    weight: Float[Tensor, "slots zones rows codewords"]
    phi: Float[Tensor, "slots access_points words"]
    onsager: Float[Tensor, "slots access_points"]


def zoned_amp(
    Y: Complex[Tensor, "slots access_points antennas uses"],
    C: Complex[Tensor, "words uses"],
    log_prior: Float[Tensor, "#slots zones rows codewords"],
    table: ZoneTable,
    *,
    iterations: int,
    damping: float,
) -> Heard:
    """Run message passing on some slots; the words of a zone follow each other in the codebook."""
    uses = Y.shape[3]
    floor = MIN_POWER * max(float(Y.abs().square().mean()), 1e-30)
    power = table.power.to(log_prior)
    Z, X = Y, Y.new_zeros(*Y.shape[:3], len(C))
    seen = _look(Z, X, C, log_prior, power, floor)
    for step in range(1, iterations):
        X = torch.lerp(seen.phi[:, :, None] * seen.R, X, damping if step > 1 else 0.0)
        Z = Y - X @ C + (seen.onsager / uses)[:, :, None, None] * Z
        seen = _look(Z, X, C, log_prior, power, floor)
    mean = torch.einsum("r,szrn->szn", table.counts.to(log_prior), seen.weight)
    return Heard(mean, (seen.T * (1 - seen.onsager / uses)).mean(1).clamp(min=0))


def _look(Z: Tensor, X: Tensor, C: Tensor, log_prior: Tensor, power: Tensor, floor: float) -> _Seen:
    """Form every codeword's pseudo-channel to each access point, and weigh its counts by all of them."""
    antennas, zones = Z.shape[2], len(power)
    T = Z.abs().square().mean((2, 3)).clamp(min=floor)
    R = Z @ C.mH + X
    u = torch.view_as_real(R).square().sum((2, 4)).unflatten(2, (zones, -1)).transpose(1, 2)  # [slots, zones, b, words]
    inverse = (T[:, None, None] + power).reciprocal()  # [slots, zones, rows, b]
    weight = log_prior + antennas * inverse.log().sum(3, keepdim=True) - inverse @ u
    weight = weight.sub_(weight.amax(2, keepdim=True)).exp_()
    weight = weight.div_(weight.sum(2, keepdim=True))
    phi, first, second = (rows.transpose(2, 3) @ weight for rows in (power * inverse, inverse, inverse.square()))
    spread = (second - first.square()).clamp(min=0)  # rounding can leave less than nothing
    onsager = phi.sum((1, 3)) + T / antennas * (u * spread).sum((1, 3))
    return _Seen(R, T, weight, phi.transpose(1, 2).flatten(2), onsager)


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
            return self.run(some, rate, devices, seen.gain_model.power_var, iterations).mean.sum(1)

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
    ) -> Heard:
        """Decode slots for known rates and a known number of devices in every zone."""
        shares = (devices / devices.sum()).to(rate)
        rates = (shares[:, None] * rate[:, None]).clamp(min=MIN_RATE).flatten(1)
        table = ZoneTable.of(self.zones.with_error(power_var), largest_count(float(rates.max())))
        found = []
        for first in range(0, len(Y), AT_ONCE):
            rows = slice(first, first + AT_ONCE)
            prior = table.log_prior(rates if len(rates) == 1 else rates[rows], self.settings.agreement)
            options: Any = {"iterations": iterations, "damping": self.settings.damping}
            found.append(zoned_amp(Y[rows], self.codebook.to(Y), prior, table, **options))
        return Heard(torch.cat([part.mean for part in found]), torch.cat([part.noise_var for part in found]))

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
        some = Y[:: max(1, len(Y) // PILOT_SLOTS)][: 2 * PILOT_SLOTS]

        def by_power() -> float:
            return min(max(energy - uses * noise, 0.0) / self.zones.mean_power, MAX_DEVICES)

        total = by_power() if seen.num_active is None else seen.num_active
        for _ in range(PILOT_PASSES if energy > 0 else 0):
            if total < MIN_RATE:
                break
            rate = expected_counts(total, seen.popularity)
            found = self.run(some, rate, shares, seen.gain_model.power_var, self.settings.iterations)
            counted = found.mean.double().sum(2).mean(0).cpu()
            if seen.noise_var is None:
                noise = min(float(found.noise_var.double().mean()), energy / uses)
            if seen.num_active is None:
                total = float(counted.sum()) if self.zones.spread else by_power()
            shares = (counted + MIN_RATE) / (counted + MIN_RATE).sum()
        return shares * total, noise
