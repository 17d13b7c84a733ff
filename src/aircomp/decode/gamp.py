"""Generalised approximate message passing with a Poisson prior on the counts.

    y ──► output_block ──► z, v ──► pseudo_channel ──► R, V ──► poisson_posterior ──► x_hat, nu ──┐
               ▲                                                                                  │
               └──────────────────────────────────────────────────────────────────────────────────┘

The steps are pure functions that autograd passes through, the codebook included: the unrolled network calls the same
ones with scalars of its own. Order within an iteration: the input block sees the residual and the variance that the
output block has just updated, as in GAMP (the paper's text uses the previous ones, and then the first residual is zero).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.common.checks import check_choice
from aircomp.common.snr import SnrReference
from aircomp.decode.base import MAX_DEVICES, BaseDecoder, Decoded, Observation, check_codebook
from aircomp.decode.estimate import MAX_STEPS, MIN_RATE, RoundEstimate, estimate_round, reestimate_round
from aircomp.decode.heard import hear
from aircomp.decode.prior import poisson_posterior, reach_for, variance
from aircomp.decode.side import slot_rates
from aircomp.errors import ConfigError

# Message passing is told at least this noise variance. Told of none at all it can lock into a wrong corner; with this
# much, integers (one apart, behind unit-norm codewords) are still told apart with certainty, exp(−1/(8·0.008)) ≈ 1e-7.
MIN_NOISE = 0.008
# Of z: message passing that explodes stays finite. No signal within range comes near.
MAX_STATE = 1e9
# Passes over some of the slots settle noise and rates: over this many, or a sixteenth of the round.
PILOT_SLOTS = 256
# The first of them is told at least this share of the received power as noise: moments of a few hundred slots can leave too
# little, with which message passing explodes, while with too much it only decodes less.
PILOT_NOISE = 0.05
MIN_FOUND = 1e-12  # devices: a round is nobody's at less than half of one, but shares need a sum
# Of a first decoding, which only tells how groups of slots differ: ten tell no more (.627 at 0 dB, .930 at 5 dB with either).
FIRST_ITERATIONS = 5


@dataclass(frozen=True)
class AmpState:
    """What one iteration hands to the next (Sec. III-E, initialisation)."""

    x_hat: Float[Tensor, "slots codewords"]
    nu: Float[Tensor, "slots codewords"]
    z: Float[Tensor, "slots uses"]
    v: Float[Tensor, "slots uses"]


@dataclass(frozen=True)
class PreparedCodebook:
    """A codebook and what every iteration needs of it; built in each forward pass so that gradients reach it."""

    rows: Float[Tensor, "codewords uses"]
    rows_squared: Float[Tensor, "codewords uses"]

    @classmethod
    def of(cls, codebook: Float[Tensor, "codewords uses"]) -> "PreparedCodebook":
        """Prepare a codebook."""
        return cls(codebook, codebook.square())


def start(y: Float[Tensor, "slots uses"], rate: Float[Tensor, "#slots codewords"], agreement: float = 0.0) -> AmpState:
    """Return the state before the first iteration: the prior's moments, and no residual to correct for yet."""
    shape = (len(y), rate.shape[1])
    nu = variance(rate, agreement).expand(shape)
    return AmpState(x_hat=rate.expand(shape), nu=nu, z=y, v=torch.ones_like(y))


def output_block(
    s: AmpState,
    y: Float[Tensor, "slots uses"],
    book: PreparedCodebook,
    noise_var: Float[Tensor, "#slots 1"],
    gamma: Tensor | float = 1.0,
    eta: Tensor | float = 0.0,
) -> AmpState:
    r"""Refresh the measurement-domain mean and variance (Sec. III-E, output block).

    $$\tilde z = C\hat x - \gamma\, r \odot (C^{\odot 2}\nu \oslash d_{eff})$$

    `gamma` scales the Onsager term, `eta` keeps a part of the old state; one and zero are classical GAMP.
    """
    v_new = s.nu @ book.rows_squared
    d_eff = noise_var + s.v  # paper: d; renamed, d is the fragment length
    z_new = s.x_hat @ book.rows - gamma * (y - s.z) * v_new / d_eff
    z = torch.lerp(z_new, s.z, eta).clamp_(-MAX_STATE, MAX_STATE)
    return replace(s, z=z, v=torch.lerp(v_new, s.v, eta))


def pseudo_channel(
    s: AmpState,
    y: Float[Tensor, "slots uses"],
    book: PreparedCodebook,
    noise_var: Float[Tensor, "#slots 1"],
    beta: Tensor | float = 1.0,
) -> tuple[Float[Tensor, "slots codewords"], Float[Tensor, "slots codewords"]]:
    r"""Return R and V such that each count is seen as R = x + N(0, V) (Sec. III-E, input block, first half).

    $$V = 1 \oslash (C^{\odot 2\top}\kappa), \quad R = \hat x + V \odot C^\top(\kappa \odot (y - z)), \quad
    \kappa = \beta \oslash (\sigma^2 + v)$$
    """
    kappa = beta / (noise_var + s.v)
    V = (kappa @ book.rows_squared.mT).reciprocal()
    R = s.x_hat + V * ((kappa * (y - s.z)) @ book.rows.mT)
    return R, V


def input_block(
    s: AmpState,
    y: Float[Tensor, "slots uses"],
    book: PreparedCodebook,
    noise_var: Float[Tensor, "#slots 1"],
    rate: Float[Tensor, "#slots codewords"],
    reach: int,
    agreement: float = 0.0,
) -> AmpState:
    """Refresh the counts' posterior mean and variance (Sec. III-E, input block, with a plain Poisson prior)."""
    R, V = pseudo_channel(s, y, book, noise_var)
    x_hat, nu = poisson_posterior(R.clamp_(max=MAX_DEVICES), V, rate, reach=reach, agreement=agreement)
    return replace(s, x_hat=x_hat, nu=nu)


def iterate(
    y: Float[Tensor, "slots uses"],
    book: PreparedCodebook,
    noise_var: Float[Tensor, "#slots 1"],
    rate: Float[Tensor, "#slots codewords"],
    *,
    iterations: int,
    reach: int,
    agreement: float = 0.0,
) -> AmpState:
    """Run GAMP on slots whose noise variance and rates are known."""
    s = start(y, rate, agreement)
    for _ in range(iterations):
        s = output_block(s, y, book, noise_var)
        s = input_block(s, y, book, noise_var, rate, reach, agreement)
    return s


class Gamp(BaseDecoder):
    """GAMP with a Poisson prior whose rates, number of devices and noise are estimated from the whole round.

    Args:
        codebook: Unit-norm codewords, one a row.
        iterations: Of message passing; more than ten change little.
        snr_reference: Whether the noise variance is one for the round, or follows the power of each `slot`.
        pilot_passes: How often some slots are decoded to improve the estimates of the round.
        fit_steps: Of each fit to the moments of the round, at most.
        agreement: Probability that two devices of a slot choose alike beyond that of independent draws.
        chunk: Slots computed at a time; bounds the temporaries, changes nothing else.
    """

    def __init__(
        self,
        codebook: Float[Tensor, "codewords uses"],
        *,
        iterations: int = 10,
        snr_reference: SnrReference = "round",
        pilot_passes: int = 3,
        fit_steps: int = MAX_STEPS,
        agreement: float = 0.0,
        chunk: int = 512,
    ):
        check_choice("snr_reference", snr_reference, get_args(SnrReference))
        if iterations < 1 or chunk < 1:
            raise ConfigError(f"iterations {iterations}, chunk {chunk}: expected at least one of each")
        if not 0 <= agreement < 1:
            raise ConfigError(f"agreement is {agreement}; expected a probability from 0 to below 1")
        self.codebook, self.iterations, self.chunk = check_codebook(codebook), iterations, chunk
        self.snr_reference = snr_reference
        self.pilot_passes, self.fit_steps, self.agreement = pilot_passes, fit_steps, agreement

    def infer(self, seen: Observation) -> Decoded:
        """Estimate the counts of every slot; with side information in two passes (`aircomp.decode.side`)."""
        heard = hear(self.codebook, seen)
        exact = heard.exact()
        if exact is not None:
            return exact
        shared, noise = self.estimate(heard.received, heard.popularity, heard.num_active, heard.noise_var)
        rate = self.slot_rates(heard.received, noise, shared.rate, seen.slot_layers, seen.bs_indices)
        return heard.conclude(self.means(heard.received, noise, rate, self.iterations), noise, shared.num_active)

    @torch.no_grad()
    def slot_rates(
        self,
        received: Float[Tensor, "slots uses"],
        noise_var: Float[Tensor, " slots"],
        rate: Float[Tensor, " codewords"],
        *groupings: Int[Tensor, " slots"] | None,
    ) -> Float[Tensor, "#slots codewords"]:
        """Return what to expect of every slot: the round's rates, or with side information those of a first decoding."""
        if all(groups is None for groups in groupings) or not rate.any() or len(received) == 0:
            return rate[None]
        first = self.means(received, noise_var, rate[None], min(FIRST_ITERATIONS, self.iterations))
        return slot_rates(first, rate, *groupings)

    def means(
        self, received: Tensor, noise_var: Tensor, rate: Float[Tensor, "#slots codewords"], iterations: int
    ) -> Tensor:
        """Return the soft counts for known noise and rates, which are one row for all slots or one for each."""
        mean = received.new_zeros(len(received), rate.shape[1])
        for rows, s in self._run(received, noise_var, rate, self.chunk, iterations):
            mean[rows] = s.x_hat
        return mean

    @torch.no_grad()
    def estimate(
        self,
        received: Float[Tensor, "slots uses"],
        popularity: Float[Tensor, " codewords"],
        num_active: float | None = None,
        noise_var: Float[Tensor, " slots"] | None = None,
    ) -> tuple[RoundEstimate, Float[Tensor, " slots"]]:
        """Estimate what the round shares, from all slots and a pilot decoding of some, and the noise of every slot."""
        codebook, noise = self.codebook.to(received), noise_var
        known = {"num_active": num_active, "noise_var": None if noise is None else float(noise.double().mean())}
        shared = estimate_round(received, popularity, codebook, **known, max_steps=self.fit_steps)
        stride = pilot_stride(len(received))
        power = float(received.double().square().mean()) if len(received) else 0.0
        if noise_var is None and self.pilot_passes:
            shared = replace(shared, noise_var=max(shared.noise_var, PILOT_NOISE * power))
        for _ in range(self.pilot_passes if len(received) and shared.rate.any() else 0):
            noise = self._spread(received, shared.noise_var) if noise_var is None else noise_var
            pilot = self._pilot(received[::stride], noise[::stride], shared.rate, power)
            doubt = min(1.0, pilot.unsure / shared.num_active)
            again = reestimate_round(
                received, pilot.rate, codebook, shared, doubt=doubt, **known, max_steps=self.fit_steps
            )
            shared = pilot.refine(again, known["noise_var"])
        return shared, self._spread(received, shared.noise_var) if noise_var is None else noise_var

    def _run(
        self,
        received: Tensor,
        noise_var: Float[Tensor, " slots"],
        rate: Float[Tensor, "#slots codewords"],
        chunk: int,
        iterations: int,
    ) -> Iterator[tuple[slice, AmpState]]:
        """Decode a chunk at a time for known noise and rates; nothing to do when nobody is active."""
        if len(received) == 0 or not rate.any():
            return
        book = PreparedCodebook.of(self.codebook.to(received))
        noise_var = noise_var.clamp(min=MIN_NOISE)
        # the variance of the pseudo-channels is largest at the start, where the counts are as unsure as the prior
        widest = float(noise_var.max() + (variance(rate, self.agreement) @ book.rows_squared).max())
        reach = reach_for(widest, max_count=max(4, math.ceil(float(rate[0].sum()))))
        for first in range(0, len(received), chunk):
            rows = slice(first, first + chunk)
            noise, expected = noise_var[rows, None], rate if len(rate) == 1 else rate[rows]
            options = {"iterations": iterations, "reach": reach, "agreement": self.agreement}
            yield rows, iterate(received[rows], book, noise, expected, **options)

    def _pilot(self, received: Tensor, noise_var: Tensor, rate: Tensor, power: float) -> "_Pilot":
        book = PreparedCodebook.of(self.codebook.to(received))
        # a chunk of its own: what is estimated does not depend, even in the last bit, on the chunk of decoding
        runs = self._run(received, noise_var, rate[None], PILOT_SLOTS, self.iterations)
        sums = [_pilot_sums(received[rows], s, book) for rows, s in runs]
        noise, unsure, *counts = torch.cat(sums).double().mean(0).split([1, 1, len(rate)])
        return _Pilot(counts[0], float(unsure), min(float(noise), power))

    def _spread(self, received: Float[Tensor, "slots uses"], noise_var: float) -> Float[Tensor, " slots"]:
        r"""Return the noise variance of every slot from its mean over the round.

        Where the noise follows the slot's own power, one SNR Γ holds for the round and $|y|^2/l \approx (1+Γ)\sigma^2$:
        the received power tells the noise of a slot, less its own fluctuation, by which it is shrunk to the mean.
        """
        power = received.square().mean(1)
        if self.snr_reference != "slot" or len(power) < 2:
            return torch.full_like(power, noise_var)
        mean = power.double().mean().clamp(min=torch.finfo(power.dtype).tiny)
        fluctuation = (4 * (mean - noise_var).clamp(min=0) * noise_var + 2 * noise_var**2) / received.shape[1]
        kept = (1 - fluctuation / power.double().var().clamp(min=1e-12 * mean**2)).clamp(0, 1)
        return (noise_var * (1 + kept * (power / mean - 1))).to(power)


def pilot_stride(num_slots: int) -> int:
    """Return which slots tell about the round: one in so many."""
    return max(1, num_slots // max(PILOT_SLOTS, num_slots // 16))


@dataclass(frozen=True)
class _Pilot:
    """What decoding some slots tells of the round."""

    rate: Float[Tensor, " codewords"]
    """Mean of the soft counts."""
    unsure: float
    """Sum of their variances."""
    noise_var: float

    def refine(self, shared: RoundEstimate, noise_var: float | None) -> RoundEstimate:
        """Improve the round's estimate; noise that is known stays.

        Moments cannot tell the noise well once it is small, the residual of decoded slots can. The sum of soft counts
        replaces the number of devices only as far as it is the surer of the two: it is biased where slots are unsure.
        """
        weight = shared.num_active_error**2 / (shared.num_active_error**2 + self.unsure**2 + 1e-12)  # 0/0 if K is given
        num_active = shared.num_active + weight * (float(self.rate.sum()) - shared.num_active)
        num_active = min(max(num_active, MIN_FOUND), MAX_DEVICES)
        return replace(
            shared,
            num_active=num_active,
            rate=(shared.rate * (num_active / shared.num_active)).clamp(min=MIN_RATE),
            noise_var=self.noise_var if noise_var is None else noise_var,
        )


def _pilot_sums(y: Float[Tensor, "slots uses"], s: AmpState, book: PreparedCodebook) -> Float[Tensor, "slots _"]:
    """Return for every slot: the expected power of the noise, the sum of the counts' variances, the soft counts."""
    energy = (y - s.x_hat @ book.rows).square() + s.nu @ book.rows_squared
    return torch.cat([energy.mean(1, keepdim=True), s.nu.sum(1, keepdim=True), s.x_hat], dim=1)
