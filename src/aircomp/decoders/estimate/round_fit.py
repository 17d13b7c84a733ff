r"""Fit the Gaussian model of `aircomp.decoders.estimate.round_estimate` to the moments of a round, by Fisher scoring.

moments, prior ──► first_fit ──► fit ──┬──► step ──► score ──┐    until a step gains nothing
└─────────────────────┘
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from aircomp.decoders.base import MAX_DEVICES
from aircomp.decoders.estimate.moments import RoundMoments

# Of the received power: with less noise the covariance nearly obeys exact constraints and the fit crawls along them. 30 dB
# is enough for the number of devices; decoded slots tell smaller noise better.
LEAST_NOISE = 1e-3
# Of the expected count of a codeword: its logarithm stays finite, in float32 too (whose least normal number is 1e-38).
MIN_RATE = 1e-30
LEAST_START = 0.5  # devices that a fit starts with, at least: fewer round to nobody, whose logarithm is infinite
# Of the received power, that a fit starts with at least: four steps of a factor e, the longest there are, from LEAST_NOISE.
START_NOISE = 0.05
START_DAMPING = 0.1  # of the first step (Levenberg, Marquardt), a choice: it changes by a factor of five after each
# Of the largest variance: rounding takes off some n·2⁻⁵³ = 1e-14 of it (n = 128), and this is much more, yet 100 dB below it.
JITTER = 1e-10
MIN_POWER = 1e-20  # of the received signal: 200 dB below a device, where squares of squares (1e-80) still have room
MAX_STEPS = 25  # usually ten; each costs about as much as decoding thirty slots
TOLERANCE = 0.02  # nats: a gain of t means a distance of √(2t) = a fifth of a standard error from the optimum


@dataclass(frozen=True)
class Problem:
    """What the fit is given: the round's moments and what is known, in float64."""

    seen: RoundMoments
    codebook: Tensor
    prior: Tensor
    """Share of every codeword that is expected: the smoothed popularity, or what decoded slots chose."""
    stiffness: Tensor
    """Prior precision of log(rate / share)."""
    cov_slots: int
    """The covariance counts like that of so many slots at most."""
    log_spread: tuple[float, float]
    """Mean and standard deviation of log φ beforehand."""
    num_active: float | None
    noise_var: float | None


@dataclass(frozen=True)
class Model:
    """The parameters: λ, σ² and φ."""

    rate: Tensor
    noise_var: Tensor
    spread: Tensor

    def moved(self, step: Tensor, least_noise: float, num_active: float | None) -> "Model":
        """Take a step in the logarithms, at most a factor e at a time; a known number of devices stays."""
        factor = torch.exp(-step.clamp(-1, 1))
        rate = (self.rate * factor[:-2]).clamp(min=MIN_RATE)
        rate = rate * (MAX_DEVICES / rate.sum()).clamp(max=1)
        if num_active is not None:
            rate = rate * (num_active / rate.sum())
        return Model(rate, (self.noise_var * factor[-2]).clamp(min=least_noise), self.spread * factor[-1])

    def towards_total(self) -> Tensor:
        """Return the gradient of Σλ in the logarithms."""
        return torch.cat([self.rate, self.rate.new_zeros(2)])


@dataclass(frozen=True)
class Score:
    """Negative log-posterior with its gradient and Fisher information in (log λ, log σ², log φ)."""

    loss: Tensor
    gradient: Tensor
    information: Tensor

    def step(self, damping: float, keep: Tensor | None) -> Tensor:
        """Return the step of Fisher scoring, shortened where the information is small (Levenberg, Marquardt).

        With `keep`, the step is the best of those orthogonal to it.
        """
        damped = self.information + damping * torch.diag(self.information.diagonal())
        # a matrix that is singular to rounding error gives a step that is not finite, and such a one is not taken
        if keep is None:
            return torch.linalg.solve_ex(damped, self.gradient)[0]
        free, along = torch.linalg.solve_ex(damped, torch.stack([self.gradient, keep], dim=1))[0].unbind(1)
        return free - along * (keep @ free) / (keep @ along)


def first_fit(p: Problem, max_steps: int) -> tuple[Model, Score]:
    """Fit from where the mean points to.

    Codewords that nearly cancel, or devices unlike the base station, can turn the mean the other way. From there the fit may
    climb to a round without devices, all of it noise, and stop at that smaller maximum; so it also starts from the energy.
    """
    devices = _devices_from_mean(p)
    found = fit(p, _start(p, devices), max_steps)
    if p.num_active is None and devices < LEAST_START:
        other = fit(p, _start(p, p.seen.power * len(p.seen.mean) / 2), max_steps)
        if other[1].loss < found[1].loss - TOLERANCE:
            return other
    return found


def fit(p: Problem, start: Model, max_steps: int) -> tuple[Model, Score]:
    """Climb to the maximum of the posterior, taking only steps that go up."""
    model, least = start, LEAST_NOISE * p.seen.power
    score, damping = _score(model, p), START_DAMPING
    for _ in range(max_steps):
        keep = None if p.num_active is None else model.towards_total()
        candidate = model.moved(score.step(damping, keep), least, p.num_active)
        candidate_score = _score(candidate, p)
        gain = float(score.loss - candidate_score.loss)
        if gain > 0:
            model, score, damping = candidate, candidate_score, damping / 5
        else:
            damping *= 5
        if 0 <= gain < TOLERANCE:
            break
    return model, score


def _devices_from_mean(p: Problem) -> float:
    """Return the multiple of the expected signal that is nearest to the mean."""
    direction = p.prior @ p.codebook
    return float(p.seen.mean @ direction / (direction @ direction).clamp(min=MIN_POWER))  # codewords may cancel


def _start(p: Problem, devices: float) -> Model:
    """Begin with so many devices, and give the noise what the energy leaves over."""
    energy = p.seen.power * len(p.seen.mean)
    # a device brings an energy of one or more, so there are at most `energy` of them; half a device keeps the log finite
    K = p.num_active or min(max(devices, LEAST_START), energy, MAX_DEVICES)
    left = (p.seen.cov.trace() - K) / len(p.seen.mean)
    noise = left.clamp(min=START_NOISE * p.seen.power) if p.noise_var is None else left.new_tensor(p.noise_var)
    return Model(K * p.prior, noise.clamp(min=LEAST_NOISE * p.seen.power), torch.ones_like(noise))


def _score(model: Model, p: Problem) -> Score:
    """Score the Gaussian model, then add the prior."""
    C, rate, noise_var, spread = p.codebook, model.rate, model.noise_var, model.spread
    n, K, mean = len(rate), rate.sum(), rate @ C
    signal = C.mT @ (rate[:, None] * C) - torch.outer(mean, mean) / K
    factor = _factor(spread * signal + noise_var * torch.eye(len(mean), dtype=C.dtype, device=C.device))
    precision = torch.cholesky_inverse(factor)
    residual = p.seen.mean - mean
    cov_slots = min(p.seen.num_slots, p.cov_slots)
    trust = p.seen.num_slots / max(1, cov_slots)  # of the mean, in the weight of the covariance
    scatter = p.seen.cov + trust * torch.outer(residual, residual)
    loss = factor.diagonal().log().sum() + (precision * scatter).sum() / 2

    excess = precision - precision @ scatter @ precision
    pull = excess @ mean
    by_rate = ((C @ excess) * C).sum(1) - 2 * (C @ pull) / K + mean @ pull / K**2
    by_rate = spread * by_rate / 2 - trust * (C @ (precision @ residual))
    by_noise, by_spread = excess.trace() / 2, (excess * signal).sum() / 2
    gradient = torch.cat([by_rate * rate, torch.stack([by_noise * noise_var, by_spread * spread])])

    # tr(precision·dΣ·precision·dΣ')/2 for dΣ among c·cᵀ, I and the signal's covariance, plus the mean's part; the
    # information leaves out the small −λλᵀ/K, which slows the last steps a little and moves no optimum
    between = C @ precision @ C.mT
    twice, thrice = precision @ precision, precision @ signal @ precision
    cross = torch.stack([((C @ twice) * C).sum(1), ((C @ thrice) * C).sum(1)]) * spread * rate / 2
    scale = torch.stack([noise_var, spread])
    corner = torch.stack([twice.trace(), (twice * signal).sum(), (twice * signal).sum(), (thrice * signal).sum()]) / 2
    information = torch.empty(n + 2, n + 2, dtype=C.dtype, device=C.device)
    information[:n, :n] = (spread**2 * between.square() / 2 + trust * between) * torch.outer(rate, rate)
    information[n:, :n] = cross * scale[:, None]
    information[:n, n:] = information[n:, :n].mT
    information[n:, n:] = corner.reshape(2, 2) * torch.outer(scale, scale)
    return _with_prior(Score(loss * cov_slots, gradient * cov_slots, information * cov_slots), model, p)


def _factor(covariance: Tensor) -> Tensor:
    """Return the Cholesky factor; where rounding has left a direction without variance, of a little more covariance."""
    factor, failed = torch.linalg.cholesky_ex(covariance)
    if failed:
        factor, _ = torch.linalg.cholesky_ex(
            covariance + torch.diag(JITTER * covariance.diagonal().max().expand(len(factor)))
        )
    return factor


def _with_prior(score: Score, model: Model, p: Problem) -> Score:
    """Add the prior: rates like the expected shares up to a common factor; known noise is held fixed."""
    n, loss, gradient, information = len(p.prior), score.loss, score.gradient.clone(), score.information.clone()
    deviation = torch.log(model.rate / p.prior)
    pull = p.stiffness @ deviation
    mean, sd = p.log_spread
    log_spread = model.spread.log() - mean
    loss = loss + (deviation @ pull + (log_spread / sd) ** 2) / 2
    gradient[:n] += pull
    gradient[n + 1] += log_spread / sd**2
    information[:n, :n] += p.stiffness
    information[n + 1, n + 1] += 1 / sd**2
    if p.noise_var is not None:
        gradient[n] = 0
        information[n, :] = information[:, n] = 0
        information[n, n] = 1
    return Score(loss, gradient, information)
