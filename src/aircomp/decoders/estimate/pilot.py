"""What the slots of a round share, from the moments of all of them and a pilot decoding of some.

Where all codewords have a direction in common, the number of devices is counted there (`aircomp.decoders.estimate.number`).

    all slots ──► estimate_round ──► K, rates, noise ──► message passing on some slots ──► what they chose ──┐
                                           ▲                                                                 │
                                           └───────────────────── reestimate_round ◄─────────────────────────┘

`gamp`, `posterior` and `gamp-net` start from these estimates; with side information a first decoding of all slots gives
every slot rates of its own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.common.checks import check_choice
from aircomp.common.radio import SnrReference
from aircomp.common.threads import even_slices, spread
from aircomp.decoders.amp.prior import reach_for, variance
from aircomp.decoders.amp.steps import MIN_NOISE, AmpState, PreparedCodebook, iterate
from aircomp.decoders.base import MAX_DEVICES, check_codebook
from aircomp.decoders.estimate.moments import RoundMoments
from aircomp.decoders.estimate.number import count_devices, counting_direction, join_numbers, whole_devices
from aircomp.decoders.estimate.round_estimate import RoundEstimate, estimate_round, reestimate_round
from aircomp.decoders.estimate.round_fit import MAX_STEPS, MIN_RATE
from aircomp.decoders.side import FIRST_ITERATIONS, slot_rates

CHUNK = 131_072  # at most so many counts at a time (1,024 slots of 128 codewords): bounds the temporaries, no more
# Passes over some of the slots settle noise and rates: over this many, or a sixteenth of the round.
PILOT_SLOTS = 256
# The first of them is told at least this share of the received power as noise: moments of a few hundred slots can leave too
# little, with which message passing explodes, while with too much it only decodes less.
PILOT_NOISE = 0.05
# Of the number of devices, that moments are off by besides: choices are not quite the model's, and the more devices, the
# more that shows. On ResNet, VGG and digits, up to 64 devices, the error is then within its standard error (rms).
MODEL_SHARE = 0.01
# … and where codewords are learned: training hides the number from moments, 18 % of it on digits at 0 dB.
HIDDEN = 0.2
SURE = 0.01  # devices: message passing takes counts for surer than they are, by a few thousandths of one at 0 dB
MIN_FOUND = 1e-12  # devices: a round is nobody's at less than half of one, but shares need a sum


class PilotEstimator:
    """Estimates the number of devices, the rates and the noise of a round, and decodes by GAMP for known ones.

    Args:
        codebook: Unit-norm codewords, one a row.
        snr_reference: Whether the noise variance is one for the round, or follows the power of each `slot`.
        agreement: Probability that two devices of a slot choose alike beyond that of independent draws.
        iterations: Of message passing.
        pilot_passes: How often some slots are decoded to improve the estimates of the round.
        fit_steps: Of each fit to the moments of the round, at most.
        unit_norm: Whether the codewords must have unit norm; otherwise the energy of what devices choose is one on average.
    """

    def __init__(
        self,
        codebook: Float[Tensor, "codewords uses"],
        *,
        snr_reference: SnrReference = "round",
        agreement: float = 0.0,
        iterations: int = 10,
        pilot_passes: int = 3,
        fit_steps: int = MAX_STEPS,
        unit_norm: bool = True,
    ):
        check_choice("snr_reference", snr_reference, get_args(SnrReference))
        self.codebook, self.snr_reference, self.agreement = (
            check_codebook(codebook, unit_norm=unit_norm),
            snr_reference,
            agreement,
        )
        self.iterations, self.pilot_passes, self.fit_steps = iterations, pilot_passes, fit_steps
        self.unit_norm = unit_norm

    @cached_property
    def direction(self) -> Float[Tensor, " uses"] | None:
        """Where the devices of a round are counted, if all codewords have a direction in common."""
        return counting_direction(self.codebook)

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
        self,
        received: Float[Tensor, "slots uses"],
        noise_var: Float[Tensor, " slots"],
        rate: Float[Tensor, "#slots codewords"],
        iterations: int | None = None,
    ) -> Float[Tensor, "slots codewords"]:
        """Return the soft counts for known noise and rates, which are one row for all slots or one for each."""
        if len(received) == 0 or not rate.any():
            return received.new_zeros(len(received), rate.shape[1])
        iterations, slots = iterations or self.iterations, max(1, CHUNK // rate.shape[1])
        return torch.cat(self._run(received, noise_var, rate, slots, iterations, lambda s, rows: s.x_hat))

    @torch.no_grad()
    def estimate(
        self,
        received: Float[Tensor, "slots uses"],
        popularity: Float[Tensor, " codewords"],
        num_active: float | None = None,
        noise_var: Float[Tensor, " slots"] | None = None,
    ) -> tuple[RoundEstimate, Float[Tensor, " slots"]]:
        """Estimate what the round shares, from all slots and a pilot decoding of some, and the noise of every slot."""
        codebook, noise, error = self.codebook.to(received), noise_var, None
        told = None if noise is None else float(noise.double().mean())
        # unequal codewords leave moments more that their model misses: with the noise held, rates would have to explain it
        known = {"num_active": num_active, "noise_var": told if self.unit_norm else None}
        seen = RoundMoments.of(received)
        shared = estimate_round(seen, popularity, codebook, **known, max_steps=self.fit_steps)
        if num_active is None and self.direction is not None and len(received) > 1 and shared.rate.any():
            shared = _counted(shared, *count_devices(seen, self.direction))
            known["num_active"], error = shared.num_active, shared.num_active_error
        stride = pilot_stride(len(received))
        if noise_var is None and self.pilot_passes:
            shared = replace(shared, noise_var=max(shared.noise_var, PILOT_NOISE * seen.power))
        for _ in range(self.pilot_passes if len(received) and shared.rate.any() else 0):
            noise = self.noise_of_slots(received, shared.noise_var) if noise_var is None else noise_var
            pilot = self._pilot(received[::stride], noise[::stride], shared.rate, seen.power)
            doubt = min(1.0, pilot.unsure / shared.num_active)
            again = reestimate_round(seen, pilot.rate, codebook, shared, doubt=doubt, **known, max_steps=self.fit_steps)
            again = again if error is None else replace(again, num_active_error=error)
            shared = pilot.refine(again, told, MODEL_SHARE if error is None else 0.0)
        if error is not None:
            shared = _whole(shared)
        return shared, self.noise_of_slots(received, shared.noise_var) if noise_var is None else noise_var

    def _run(
        self,
        received: Tensor,
        noise_var: Float[Tensor, " slots"],
        rate: Float[Tensor, "#slots codewords"],
        chunk: int,
        iterations: int,
        take: Callable[[AmpState, slice], Tensor],
    ) -> list[Tensor]:
        """Decode all chunks for known noise and rates of some devices; return what is taken of each."""
        book = PreparedCodebook.of(self.codebook.to(received))
        noise_var = noise_var.clamp(min=MIN_NOISE)
        # the variance of the pseudo-channels is largest at the start, where the counts are as unsure as the prior
        widest = float(noise_var.max() + (variance(rate, self.agreement) @ book.rows_squared).max())
        widest /= float(book.rows_squared.sum(1).min())  # a quiet codeword is seen through more noise
        reach = reach_for(widest, max_count=max(4, math.ceil(float(rate[0].sum()))))
        chunks = even_slices(len(received), chunk)

        def run(rows: slice) -> Tensor:
            noise, expected = noise_var[rows, None], rate if len(rate) == 1 else rate[rows]
            options = {"iterations": iterations, "reach": reach, "agreement": self.agreement}
            return take(iterate(received[rows], book, noise, expected, **options), rows)

        return spread(run, chunks)

    def _pilot(self, received: Tensor, noise_var: Tensor, rate: Tensor, power: float) -> "_Pilot":
        book = PreparedCodebook.of(self.codebook.to(received))

        # a chunk of its own: what is estimated does not depend, even in the last bit, on the chunk of decoding
        def take(s: AmpState, rows: slice) -> Tensor:
            return _pilot_sums(received[rows], s, book)

        sums = self._run(received, noise_var, rate[None], PILOT_SLOTS, self.iterations, take)
        noise, unsure, *counts = torch.cat(sums).double().mean(0).split([1, 1, len(rate)])
        return _Pilot(counts[0], float(unsure), min(float(noise), power))

    def noise_of_slots(self, received: Float[Tensor, "slots uses"], noise_var: float) -> Float[Tensor, " slots"]:
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


def _counted(shared: RoundEstimate, number: float, error: float) -> RoundEstimate:
    """Weigh the number that moments tell and the number counted in a common direction by their standard errors."""
    moments = math.hypot(shared.num_active_error, HIDDEN * shared.num_active)
    return _of(shared, *join_numbers((shared.num_active, moments), (number, error)))


def _whole(shared: RoundEstimate) -> RoundEstimate:
    """Use that the number of devices is an integer; what counts it directly has no bias that would lead to a wrong one."""
    number, error = whole_devices(shared.num_active, shared.num_active_error)
    return _of(shared, number, max(error, min(SURE, shared.num_active_error)))


def _of(shared: RoundEstimate, number: float, error: float) -> RoundEstimate:
    """Return the estimate with another number of devices."""
    number = max(number, MIN_FOUND)
    rate = (shared.rate * (number / shared.num_active)).clamp(min=MIN_RATE)
    return replace(shared, num_active=number, num_active_error=error, rate=rate)


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

    def refine(self, shared: RoundEstimate, noise_var: float | None, model_share: float) -> RoundEstimate:
        """Improve the round's estimate; noise that is known stays.

        Moments cannot tell the noise well once it is small, the residual of decoded slots can. The sum of soft counts
        replaces the number of devices only as far as it is the surer of the two: it is biased where slots are unsure.
        """
        weight = self._weight(shared)
        num_active = shared.num_active + weight * (float(self.rate.sum()) - shared.num_active)
        num_active = min(max(num_active, MIN_FOUND), MAX_DEVICES)
        return replace(
            shared,
            num_active=num_active,
            num_active_error=self._error(shared, model_share),
            rate=(shared.rate * (num_active / shared.num_active)).clamp(min=MIN_RATE),
            noise_var=self.noise_var if noise_var is None else noise_var,
        )

    def _error(self, shared: RoundEstimate, model_share: float) -> float:
        """Return the standard error of the two numbers' mean, as of independent ones; zero if the number is given."""
        if shared.num_active_error == 0:
            return 0.0
        before, weight = math.hypot(shared.num_active_error, model_share * shared.num_active), self._weight(shared)
        return math.hypot((1 - weight) * before, weight * self.unsure, SURE)

    def _weight(self, shared: RoundEstimate) -> float:
        """Return the weight of the sum of soft counts in the number of devices."""
        return shared.num_active_error**2 / (shared.num_active_error**2 + self.unsure**2 + 1e-12)  # 0/0 if K is given


def _pilot_sums(y: Float[Tensor, "slots uses"], s: AmpState, book: PreparedCodebook) -> Float[Tensor, "slots _"]:
    """Return for every slot: the expected power of the noise, the sum of the counts' variances, the soft counts."""
    energy = (y - s.x_hat @ book.rows).square() + s.nu @ book.rows_squared
    return torch.cat([energy.mean(1, keepdim=True), s.nu.sum(1, keepdim=True), s.x_hat], dim=1)
