r"""What the slots of a round share: the number of active devices, the rate of every codeword, the noise.

Each slot alone says little, but J of them give the mean and the covariance of the received signal, and these two hold
all that is needed. Let K devices choose codewords with rates $\lambda$ (K = Σλ), somewhat more alike than independent
draws (spread φ ≥ 1). Then

$$\mathrm{E}\,y = \lambda C, \qquad
\mathrm{Cov}\,y = \varphi\, C^\top(\mathrm{diag}\,\lambda - \lambda\lambda^\top / K)\, C + \sigma^2 I.$$

The parameters (log λ, log σ², log φ) of this Gaussian model are fitted by Fisher scoring, with a prior that holds the
rates near the base station's popularity but leaves their sum free. Its cost does not grow with the round. Once some
slots are decoded, what they chose is a better expectation than the popularity, and `reestimate_round` fits again.

Why not expectation maximisation: alternating with a decoder's posterior means settles about one device too high at
0 to 5 dB, because the decoder's posterior is approximate; mean and covariance need no decoder.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.decoders.base import MIN_NUM_ACTIVE, check_num_active
from aircomp.decoders.estimate.moments import RoundMoments
from aircomp.decoders.estimate.round_fit import MAX_STEPS, MIN_POWER, Model, Problem, Score, first_fit, fit


@dataclass(frozen=True)
class Fitted:
    """What was fitted to real rounds; `tools/fit_constants.py estimate` fits it on training rounds and prints its choice."""

    unseen: float = 0.03
    """Share of the popularity spread over all codewords: devices use codewords that the base station never did. With none,
    such a codeword could not be decoded; accuracy and K̂ were best between 2 and 6 %."""
    missed: float = 0.1
    """Fragments that each codeword is given besides those the base station had, so that of J fragments and n codewords the
    share missed·n/(J + missed·n) is spread over all, where that is more than `unseen` …"""
    most_unseen: int = 5
    """… and at most so many times `unseen`."""
    own: float = 0.8
    """Codewords from k-means++ are fragments of the base station's own, and each counts itself once; devices have no such
    fragment. Taking off a little less than that one brought K̂ from 1.4 devices off to 0.25 (digits, 449 slots, 0 dB)."""
    agree: float = 0.16
    """log(rate / (K·popularity)) has variance agree + rare / (n·popularity): devices differ from the base station by some
    40 %, 0.4² = 0.16. Wider is biased upwards on small rounds (rates cannot be negative)."""
    rare: float = 0.05
    """… and by more where the base station had few samples."""
    common: float = 4.0
    """All devices together may prefer rarer or commoner codewords than the base station: its memory of errors is not theirs.
    log(rate) then tilts along log(popularity + common/n) …"""
    tilt: float = 0.5
    """… with this standard deviation. On digits, where devices choose with 6.5 bits of entropy and the base station with
    4.5, this brought K̂ from 3.3 devices off to 0.6 (0 dB)."""
    decoded: float = 0.01
    """Variance of log(rate / (K·share)) where the shares come from decoded slots …"""
    decoded_rare: float = 0.3
    """… and so much more of it, relatively, where a codeword is rare: decoded·(1 + decoded_rare/(n·share))."""
    leak: float = 0.05
    """Slots that tell little repeat what was expected of rare codewords, which is too much: rates are positive, so that
    errors of their logarithms do not cancel. Shares are therefore lowered by exp(−leak·doubt/(n·share)). Without it K̂ was .28
    devices too high on ResNet rounds (0 dB, two bases), with it .05."""
    cov_slots: int = 300
    """The covariance counts like that of so many slots, however many there are: devices agree on some codewords more than
    on others, which one φ cannot tell, and taken at its word it drew K̂ 0.6 devices too high (ResNet, 0 to 5 dB; 0.2 with
    this)."""
    spread: float = 0.1
    """Mean of log φ beforehand. Ten devices of which two choose alike with probability 0.057 instead of 0.041 (the paper's
    network) have 0.14; with 0.45 instead of 0.24 (digits), 1.2."""
    spread_sd: float = 0.5
    """Its standard deviation: these two are 0.1 and 2.2 of it away."""


FITTED = Fitted()

# A share of zero, which float64 makes of exp(−745), has no logarithm; exp(−300) leaves room for its square.
MAX_LEAK = 300.0
# Devices by which K̂ can be off however many slots there are, since real choices are not quite the model's: about what it
# is off by at 5 dB, .07 to .17 on ResNet and .09 to .13 on VGG (docs/notebook/2026-11-16-agreement.md).
MODEL_ERROR = 0.1


@dataclass(frozen=True)
class RoundEstimate:
    """What one round of received slots tells about all of them."""

    num_active: float
    """Number of active devices, not rounded."""
    num_active_error: float
    """Its standard error; zero if the number was given."""
    rate: Float[Tensor, " codewords"]
    """Expected count of every codeword in a slot, positive, with sum `num_active` (all zero if nobody is active)."""
    noise_var: float
    """Noise variance per channel use, averaged over the slots."""
    spread: float = 1.0
    """φ: how much more alike devices choose than independent draws."""


def smooth(popularity: Float[Tensor, " codewords"], num_slots: int) -> Float[Tensor, " codewords"]:
    """Return what devices may be expected to choose, given what the base station chose for as many fragments as slots.

    The fewer fragments it had, the more codewords it has not seen; up to five times `Fitted.unseen` is given to them.
    """
    n = len(popularity)
    own = popularity.min().clamp(max=1 / max(1, num_slots))
    others = popularity - FITTED.own * own
    missed = FITTED.missed * n
    unseen = min(max(FITTED.unseen, missed / (num_slots + missed)), FITTED.most_unseen * FITTED.unseen)
    return (1 - unseen) * others / others.sum() + unseen / n


def estimate_round(
    seen: RoundMoments,
    popularity: Float[Tensor, " codewords"],
    codebook: Float[Tensor, "codewords uses"],
    *,
    num_active: float | None = None,
    noise_var: float | None = None,
    max_steps: int = MAX_STEPS,
) -> RoundEstimate:
    """Estimate what is not given of the number of devices, the rates and the noise, from all slots together.

    Args:
        seen: Moments of the slots of one round.
        popularity: The base station's distribution over codewords.
        codebook: One unit-norm codeword per row.
        num_active: Number of active devices, if known.
        noise_var: Noise variance per channel use (its mean over slots), if known.
        max_steps: Of Fisher scoring; fewer leave an estimate that decoded slots can still improve.
    """
    prior = smooth(popularity.detach().double(), seen.num_slots)
    stiffness = _around_popularity(prior)
    problem = _problem(seen, codebook, prior, stiffness, num_active, noise_var)
    return _solve(problem, None, popularity.dtype, max_steps)


def reestimate_round(
    seen: RoundMoments,
    decoded: Float[Tensor, " codewords"],
    codebook: Float[Tensor, "codewords uses"],
    before: RoundEstimate,
    *,
    doubt: float = 0.0,
    num_active: float | None = None,
    noise_var: float | None = None,
    max_steps: int = MAX_STEPS,
) -> RoundEstimate:
    """Estimate again, expecting what decoded slots chose instead of the base station's popularity.

    Args:
        seen: Moments of the slots of one round.
        decoded: Mean count of every codeword in slots that were decoded with the estimate `before`.
        codebook: One unit-norm codeword per row.
        before: Where the fit starts.
        doubt: Sum of the variances that decoding left to the counts of a slot, per device; at most 1.
        num_active: Number of active devices, if known.
        noise_var: Noise variance per channel use (its mean over slots), if known.
        max_steps: Of Fisher scoring.
    """
    n = len(decoded)
    shares = decoded.detach().double() + FITTED.unseen * before.num_active / n / 10
    shares = shares / shares.sum()
    shares = shares * torch.exp((-FITTED.leak * doubt / (n * shares)).clamp(min=-MAX_LEAK))
    shares = shares / shares.sum()
    stiffness = _precision(FITTED.decoded * (1 + FITTED.decoded_rare / (n * shares)))
    problem = _problem(seen, codebook, shares, stiffness, num_active, noise_var)
    start = Model(before.rate.double(), *shares.new_tensor([before.noise_var, before.spread]))
    return _solve(problem, start, before.rate.dtype, max_steps)


def _problem(
    seen: RoundMoments,
    codebook: Tensor,
    prior: Tensor,
    stiffness: Tensor,
    num_active: float | None,
    noise_var: float | None,
) -> Problem:
    return Problem(
        seen=seen,
        codebook=codebook.detach().double(),
        prior=prior,
        stiffness=stiffness,
        cov_slots=FITTED.cov_slots,
        log_spread=(FITTED.spread, FITTED.spread_sd),
        num_active=num_active,
        noise_var=noise_var,
    )


def _solve(p: Problem, start: Model | None, dtype: torch.dtype, max_steps: int) -> RoundEstimate:
    if p.num_active is not None:
        check_num_active(p.num_active)
    nobody = p.num_active is not None and p.num_active < MIN_NUM_ACTIVE
    if nobody or p.seen.power < MIN_POWER:
        given = p.num_active or 0.0
        noise = p.seen.power if p.noise_var is None else p.noise_var
        return RoundEstimate(given, 0.0, (0.0 if nobody else given) * p.prior.to(dtype), noise)
    model, score = fit(p, start, max_steps) if start else first_fit(p, max_steps)
    return RoundEstimate(
        num_active=float(model.rate.sum()) if p.num_active is None else p.num_active,
        num_active_error=_error(model, score) if p.num_active is None else 0.0,
        rate=model.rate.to(dtype),
        noise_var=float(model.noise_var) if p.noise_var is None else p.noise_var,
        spread=float(model.spread),
    )


def _error(model: Model, score: Score) -> float:
    """Return the standard error of the number of devices; all of it where the information is singular."""
    total = model.towards_total()
    variance = total @ torch.linalg.solve_ex(score.information, total)[0]
    sound = bool((variance >= 0) & variance.isfinite())
    return float(((variance if sound else model.rate.sum() ** 2) + MODEL_ERROR**2).sqrt())


def _around_popularity(prior: Tensor) -> Tensor:
    """Return the precision of log(rate / popularity), of which a tilt towards rarer or commoner codewords is cheap."""
    tilt = torch.log(prior + FITTED.common / len(prior))
    return _precision(FITTED.agree + FITTED.rare / (len(prior) * prior), FITTED.tilt * tilt)


def _precision(variance: Tensor, cheap: Tensor | None = None) -> Tensor:
    """Return the precision of logarithms with these variances, whose level (the number of devices) is free.

    With `cheap`, a multiple of that direction is added whose factor has variance one.
    """
    free = torch.ones_like(variance)[:, None]
    known = torch.zeros(1, dtype=variance.dtype, device=variance.device)
    if cheap is not None:
        free, known = torch.cat([free, cheap[:, None]], dim=1), torch.cat([known, torch.ones_like(known)])
    weighted = free / variance[:, None]
    return torch.diag(1 / variance) - weighted @ torch.linalg.solve(free.mT @ weighted + torch.diag(known), weighted.mT)
