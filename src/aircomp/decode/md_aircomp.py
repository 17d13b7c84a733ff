r"""MD-AirComp's receiver for several antennas (Qiao et al. 2024): the first antenna counts, all find the codewords in use.

Devices undo their gain to the first antenna. There, every codeword arrives with its integer count. The prior of a count
is $(1-\alpha)\delta_0 + \alpha\,\mathcal U\{1, \dots, M\}$, as in AMP-DA. Another antenna $i$ hears a codeword with the
coefficient $\sum_k h_{ki}/h_{k0}$ over its senders: zero, or a complex Gaussian number. Expectation maximisation
estimates the mean $\mu$ and the variance $\tau$ of these numbers. Every antenna runs its own message passing. All share
the noise, and the mean of their estimates of the activity $\alpha$ of each codeword:

    antenna 0   ──► GAMP, counts            ──► α₀ ┐
    antenna 1   ──► GAMP, Bernoulli–Gaussian ──► α₁ ├──► α = mean ──► every antenna's next iteration
    …                                              ┘

As published, the whole round has one noise, one $\mu$, one $\tau$ and one rule for stopping. So every iteration visits
all slots, a chunk at a time. The published $M$ is the true number of devices. Here it is a bound that is estimated from
the signal.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Complex, Float
from pydantic import Field
from torch import Tensor

from aircomp.common.packing import unpack
from aircomp.common.settings import Settings
from aircomp.decode.amp_da import bound_of_counts, slab_posterior, start_activity
from aircomp.decode.base import Decoded
from aircomp.decode.heard import MIN_VAR
from aircomp.decode.receiver import (
    CHUNK,
    Reception,
    check_complex_codebook,
    check_phase,
    check_reception,
    conclude_blocks,
)

START_NOISE = 100.0
"""Noise variance of a slot before the first iteration, as published: the prior is trusted first."""
PATIENCE = 15
"""Iterations before a rising residual stops the round, as published."""
MAX_LOG_ODDS = math.log(1e10)
"""The activity stays within 1e-10 of 0 and 1, as published."""
MAX_STATE = 1e9
"""The largest part of z: message passing that diverges stays finite, and no usual signal comes near."""


class MdAirCompSettings(Settings):
    """Options of MD-AirComp's receiver; the defaults are the published ones."""

    damping: float = Field(default=0.3, ge=0, lt=1)
    """Share of the old state that each iteration keeps."""
    max_iterations: int = Field(default=50, ge=1)
    """The most iterations; from the 16th on, a rising residual of the round ends them earlier."""


@dataclass(frozen=True)
class Shared:
    """What all slots and antennas of a round have in common."""

    noise_var: float
    """Per complex use."""
    mean: complex
    """Of a sent codeword's coefficient, on the antennas beside the first."""
    variance: float


@dataclass(frozen=True)
class State:
    """The state of message passing."""

    x_hat: Complex[Tensor, "slots antennas codewords"]
    nu: Float[Tensor, "slots antennas codewords"]
    signal: Complex[Tensor, "slots antennas uses"]
    """What `x_hat` would have sent."""
    z: Complex[Tensor, "slots antennas uses"]
    v: Float[Tensor, "slots antennas 1"]
    log_odds: Float[Tensor, "slots codewords"]
    r"""The activity, as $\log \alpha/(1-\alpha)$."""


@dataclass(frozen=True)
class Step:
    """One iteration: the state after it, and what each slot says about the round."""

    state: State
    noise_var: Float[Tensor, " slots"]
    residual: Float[Tensor, " slots"]
    mean: Complex[Tensor, " slots"]
    variance: Float[Tensor, " slots"]


def start(y: Complex[Tensor, "slots antennas uses"], codebook: Tensor, activity: float, largest: int) -> State:
    """Return the state before the first iteration: the prior's mean, in both parts as published."""
    x_hat = y.new_full((*y.shape[:2], len(codebook)), activity * (largest + 1) / 2 * (1 + 1j))
    nu, v = torch.ones_like(x_hat.real), torch.ones_like(y.real[..., :1])
    log_odds = torch.full_like(nu[:, 0], math.log(activity / (1 - activity)))
    return State(x_hat, nu, x_hat @ codebook, y, v, log_odds)


def step(
    s: State,
    y: Complex[Tensor, "slots antennas uses"],
    codebook: Complex[Tensor, "codewords uses"],
    shared: Shared,
    largest: int,
    damping: float,
) -> Step:
    """Return the state after one iteration; variances are averaged over channel uses, as in `amp_da.step`."""
    noise = shared.noise_var
    v_new = s.nu.sum(2, keepdim=True) / y.shape[2]
    z_new = s.signal - (y - s.z) * (v_new / (noise + s.v))
    z, v = torch.lerp(z_new, s.z, damping), torch.lerp(v_new, s.v, damping)
    z = torch.view_as_complex(torch.view_as_real(z).clamp(-MAX_STATE, MAX_STATE))
    V, error = noise + v, y - z
    R = s.x_hat + error @ codebook.mH
    counted, spread, odds = slab_posterior(R[:, 0].real, V[:, 0] / 2, s.log_odds, largest)
    beside = gaussian_posterior(R[:, 1:], V[:, 1:], s.log_odds[:, None], shared)
    x_hat = torch.cat([counted[:, None].to(R), beside.active * beside.mean], 1)
    second = beside.active * (beside.mean.abs().square() + beside.variance)
    nu = torch.cat([spread[:, None], (second - (beside.active * beside.mean).abs().square()).clamp(min=MIN_VAR)], 1)
    signal = x_hat @ codebook
    proposal = error.abs().square().mean(2, keepdim=True) * (noise / V).square() + v * noise / V
    mean, variance = _sent_moments(beside, V[:, 1:], shared.mean)
    return Step(
        State(x_hat, nu, signal, z, v, mean_log_odds(torch.cat([odds[:, None], beside.log_odds], 1))),
        noise_var=proposal.mean((1, 2)),
        residual=(y - signal).abs().square().sum((1, 2)),
        mean=mean,
        variance=variance,
    )


@dataclass(frozen=True)
class Gaussian:
    """A codeword's coefficient on the antennas beside the first."""

    log_odds: Float[Tensor, "slots others codewords"]
    active: Float[Tensor, "slots others codewords"]
    mean: Complex[Tensor, "slots others codewords"]
    """Mean if the codeword was sent; `variance` likewise."""
    variance: Float[Tensor, "slots others 1"]


def gaussian_posterior(R: Tensor, V: Tensor, log_odds: Tensor, shared: Shared) -> Gaussian:
    r"""Return the posterior of coefficients, zero or $\mathcal{CN}(\mu, \tau)$, seen as $R = x + \mathcal{CN}(0, V)$."""
    wide = V + shared.variance
    away = (R - shared.mean).abs().square() / wide
    evidence = (V / wide).log() + R.abs().square() / V - away
    # half of it, as published; the whole is worth the same (.36, .81, 1.0 of the counts at 0, 5, 10 dB against .35, .82, 1.0)
    posterior = (log_odds + evidence / 2).clamp(-MAX_LOG_ODDS, MAX_LOG_ODDS)
    mean = (shared.variance * R + V * shared.mean) / wide
    return Gaussian(posterior, torch.sigmoid(posterior), mean, shared.variance * V / wide)


def mean_log_odds(log_odds: Float[Tensor, "slots antennas codewords"]) -> Float[Tensor, "slots codewords"]:
    """Return the log-odds of the mean activity; both sides of it are averaged, because one alone has no room near one."""
    return torch.sigmoid(log_odds).mean(1).log() - torch.sigmoid(-log_odds).mean(1).log()


def _sent_moments(beside: Gaussian, V: Tensor, mean: complex) -> tuple[Tensor, Tensor]:
    """Return every slot's proposal for mean and variance of what a sent codeword leaves on the other antennas."""
    sent = beside.active.sum(2).clamp(min=MIN_VAR)
    first = (beside.active * beside.mean).sum(2) / sent
    second = (beside.active * ((beside.mean - mean).abs().square() + V)).sum(2) / sent
    return first.mean(1), second.mean(1)


class MdAirComp:
    """MD-AirComp's multi-antenna receiver; the noise and the number of devices are estimated.

    Args:
        codebook: Unit-norm complex codewords, one a row.
        settings: Its options.
    """

    side_information: tuple[str, ...] = ()

    def __init__(self, codebook: Complex[Tensor, "codewords uses"], settings: MdAirCompSettings | None = None):
        self.codebook, self.settings = check_complex_codebook(codebook), settings or MdAirCompSettings()

    @torch.no_grad()
    def receive(self, seen: Reception) -> list[Decoded]:
        """Estimate the counts of every block; the popularity only helps to bound the largest count.

        Raises:
            ConfigError: If gains have no common phase.
        """
        seen = check_reception(seen, self.codebook)
        check_phase(seen, "md-aircomp")
        Y = seen.received.transpose(0, 1) / seen.gain_model.mean
        given = None if seen.noise_var is None else seen.noise_var / seen.gain_model.mean**2
        if len(Y) == 0 or not Y.abs().any():
            mean, noise = seen.popularity.new_zeros(len(Y), len(self.codebook)), given or 0.0
        else:
            mean, noise = self.iterate(Y, self._largest(Y, seen), given)
        blocks = seen.all_blocks
        return conclude_blocks(mean, noise * seen.gain_model.mean**2, [seen.num_active] * len(blocks), blocks)

    def _largest(self, Y: Tensor, seen: Reception) -> int:
        """Return M: the number of devices if it is told, or else what the first antenna's signal allows."""
        uses = 2 * self.codebook.shape[1]
        return bound_of_counts(unpack(Y[:, 0], uses), seen.popularity, unpack(self.codebook, uses), seen.num_active)

    def iterate(
        self, Y: Complex[Tensor, "slots antennas uses"], largest: int, given_noise: float | None
    ) -> tuple[Float[Tensor, "slots codewords"], float]:
        """Run the iterations of a round; return the soft counts of the first antenna and the noise variance."""
        codebook, n, uses = self.codebook.to(Y), *self.codebook.shape
        activity = start_activity(n, uses)
        y = Y.split(CHUNK)
        states = [start(part, codebook, activity, largest) for part in y]
        energy = float(Y.abs().double().square().sum())
        noise = START_NOISE / uses if given_noise is None else max(given_noise, MIN_VAR)
        shared = Shared(noise, 0j, max(energy - uses * noise, MIN_VAR) / (len(Y) * activity * n))
        kept, best = states, math.inf
        for t in range(self.settings.max_iterations):
            steps = [
                step(s, part, codebook, shared, largest, self.settings.damping)
                for s, part in zip(states, y, strict=True)
            ]
            states = [s.state for s in steps]
            residual = _round_mean([s.residual for s in steps]).real
            if t >= PATIENCE and residual >= best:
                break  # and keep the estimate from before the rise
            kept, best = states, residual
            shared = _maximised(steps, shared, keep_noise=given_noise is not None)
        return torch.cat([s.x_hat[:, 0].real for s in kept]), shared.noise_var


def _maximised(steps: list[Step], shared: Shared, *, keep_noise: bool) -> Shared:
    """Return what the round's slots propose on average; one antenna alone says nothing of others."""
    if not keep_noise:
        shared = replace(shared, noise_var=max(_round_mean([s.noise_var for s in steps]).real, MIN_VAR))
    if steps[0].state.x_hat.shape[1] == 1:
        return shared
    variance = max(_round_mean([s.variance for s in steps]).real, MIN_VAR)
    return replace(shared, mean=_round_mean([s.mean for s in steps]), variance=variance)


def _round_mean(parts: list[Tensor]) -> complex:
    """Return the mean over all slots, in double precision: the same to the last bit that matters whatever the chunk."""
    return complex(torch.cat(parts).to(torch.complex128).mean())
