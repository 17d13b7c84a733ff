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
from torch import Tensor

from aircomp.common.packing import unpack
from aircomp.decoders.amp.slab import slab_moments, start_activity
from aircomp.decoders.base import Decoded, PerCodeword, PerUse
from aircomp.decoders.fading.receiver import (
    CHUNK,
    Reception,
    check_complex_codebook,
    check_phase,
    check_reception,
    conclude_blocks,
)
from aircomp.decoders.heard import MIN_VAR
from aircomp.decoders.settings import MdAirCompSettings

START_NOISE = 100.0
"""Noise variance of a slot before the first iteration, as published: the prior is trusted first."""
PATIENCE = 15
"""Iterations before a rising residual stops the round, as published."""
MAX_LOG_ODDS = math.log(1e10)
"""The activity stays within 1e-10 of 0 and 1, as published."""
MAX_STATE = 1e9
"""The largest part of z: message passing that diverges stays finite, and no usual signal comes near."""
MAX_COUNT = 1000
"""The largest estimate of M: a signal on the wrong scale ends soon, with a wrong answer, not in hours."""


@dataclass(frozen=True)
class Shared:
    """What all slots and antennas of a round have in common."""

    noise_var: float
    """Per complex use."""
    mean: complex
    """Of a sent codeword's coefficient, on the antennas beside the first."""
    variance: float


@dataclass(frozen=True)
class First:
    """The state of message passing on the first antenna, in real uses: two for each complex one, of half its variances."""

    x_hat: PerCodeword
    nu: PerCodeword
    signal: PerUse
    """What `x_hat` would have sent."""
    z: PerUse
    v: Float[Tensor, "slots 1"]
    log_odds: PerCodeword
    r"""The activity, as $\log \alpha/(1-\alpha)$: probabilities near one have no room in float32."""


@dataclass(frozen=True)
class Others:
    """The state of message passing on the antennas beside the first."""

    x_hat: Complex[Tensor, "slots others codewords"]
    nu: Float[Tensor, "slots others codewords"]
    signal: Complex[Tensor, "slots others uses"]
    """What `x_hat` would have sent."""
    z: Complex[Tensor, "slots others uses"]
    v: Float[Tensor, "slots others 1"]


@dataclass(frozen=True)
class State:
    """The state of message passing."""

    first: First
    """With the activity of all antennas."""
    others: Others | None
    """None if there is one antenna."""


@dataclass(frozen=True)
class Step:
    """One iteration: the state after it, and what each slot says about the round."""

    state: State
    noise_var: Float[Tensor, " slots"]
    residual: Float[Tensor, " slots"]
    mean: Complex[Tensor, " slots"] | None = None
    variance: Float[Tensor, " slots"] | None = None


@dataclass(frozen=True)
class Heard:
    """Slots as their antennas heard them; the codebook is kept in the same two forms."""

    first: Float[Tensor, "slots twice_uses"]
    others: Complex[Tensor, "slots others uses"]

    @classmethod
    def of(cls, y: Complex[Tensor, "slots antennas uses"]) -> "Heard":
        """Write the first antenna in real uses: its counts are real, so half of a complex product is not needed."""
        return cls(unpack(y[:, 0], 2 * y.shape[2]), y[:, 1:])


def start(y: Heard, codebook: Complex[Tensor, "codewords uses"], activity: float, largest: int) -> State:
    """Return the state before the first iteration: the prior's mean, in both parts as published."""
    slots, others, uses = y.others.shape
    x_hat = codebook.new_full((slots, 1 + others, len(codebook)), activity * (largest + 1) / 2 * (1 + 1j))
    signal, nu = x_hat @ codebook, torch.ones_like(x_hat.real)
    v, log_odds = nu[..., :1], torch.full_like(nu[:, 0], math.log(activity / (1 - activity)))
    first = First(x_hat[:, 0].real, nu[:, 0], unpack(signal[:, 0], 2 * uses), y.first, v[:, 0] / 2, log_odds)
    return State(first, Others(x_hat[:, 1:], nu[:, 1:], signal[:, 1:], y.others, v[:, 1:]) if others else None)


def step(
    s: State, y: Heard, codebook: Complex[Tensor, "codewords uses"], shared: Shared, largest: int, damping: float
) -> Step:
    """Return the state after one iteration: with counts on the first antenna, and a Gaussian one on the others."""
    half = y.first.new_full((len(y.first), 1), shared.noise_var / 2)  # of a real use
    first, noise_first = _step_first(s.first, y.first, unpack(codebook, y.first.shape[1]), half, largest, damping)
    residual = (y.first - first.signal).square().sum(1)
    if s.others is None:
        return Step(State(first, None), 2 * noise_first, residual)
    others, log_odds, noise_var, moments = _step_others(s.others, s.first.log_odds, y.others, codebook, shared, damping)
    log_odds = mean_log_odds(torch.cat([first.log_odds[:, None], log_odds], 1))
    return Step(
        State(replace(first, log_odds=log_odds), others),
        (2 * noise_first + noise_var.sum(1)) / (1 + noise_var.shape[1]),
        residual + (y.others - others.signal).abs().square().sum((1, 2)),
        *moments,
    )


def _step_first(
    s: First, y: Tensor, codebook: Tensor, noise_var: Float[Tensor, "slots 1"], largest: int, damping: float
) -> tuple[First, Float[Tensor, " slots"]]:
    r"""Return state and noise (the AMP-DA-Net paper, Sec. III-E, output block, input block and EM with all gains at one).

    The variances are averaged over channel uses. For the codebook of MD-AirComp, whose entries all have the same
    magnitude, this changes nothing; for others it makes the result independent of rotations of the signal space.
    The noise proposal is the posterior expectation of the noise energy,
    $\overline{(y-z)^2}/(1+v/\sigma^2)^2 + v\sigma^2/(v+\sigma^2)$.
    """
    v_new = s.nu.sum(1, keepdim=True) / y.shape[1]
    z_new = s.signal - (y - s.z) * (v_new / (noise_var + s.v))
    z, v = torch.lerp(z_new, s.z, damping).clamp_(-MAX_STATE, MAX_STATE), torch.lerp(v_new, s.v, damping)
    V = noise_var + v
    error = y - z
    x_hat, nu, log_odds = counts_posterior(s.x_hat + error @ codebook.T, V, s.log_odds, largest)
    proposal = error.square().mean(1, keepdim=True) * (noise_var / V).square() + v * noise_var / V
    return First(x_hat, nu, x_hat @ codebook, z, v, log_odds), proposal[:, 0]


def counts_posterior(
    R: PerCodeword, V: Float[Tensor, "slots 1"], log_odds: Float[Tensor, "#slots codewords"], largest: int
) -> tuple[PerCodeword, PerCodeword, PerCodeword]:
    r"""Return mean, variance and log-odds of activity of counts seen as $R = x + \mathcal N(0, V)$ (input block)."""
    evidence, slab_mean, slab_var = (moment[0] for moment in slab_moments(R[None], (1 / V)[None], largest))
    posterior = log_odds + evidence
    active = torch.sigmoid(posterior)
    nu = active * slab_var + active * (1 - active) * slab_mean.square()
    # rounding can leave a variance slightly below zero
    return active * slab_mean, nu.clamp_min_(MIN_VAR), posterior.clamp_(-MAX_LOG_ODDS, MAX_LOG_ODDS)


def _step_others(
    s: Others, log_odds: Tensor, y: Tensor, codebook: Tensor, shared: Shared, damping: float
) -> tuple[Others, Tensor, Float[Tensor, "slots others"], tuple[Tensor, Tensor]]:
    """Return state, log-odds, noise and moments; variances are averaged over channel uses, as on the first."""
    noise = shared.noise_var
    v_new = s.nu.sum(2, keepdim=True) / y.shape[2]
    z_new = s.signal - (y - s.z) * (v_new / (noise + s.v))
    z, v = torch.lerp(z_new, s.z, damping), torch.lerp(v_new, s.v, damping)
    z = torch.view_as_complex(torch.view_as_real(z).clamp(-MAX_STATE, MAX_STATE))
    V, error = noise + v, y - z
    found = gaussian_posterior(s.x_hat + error @ codebook.mH, V, log_odds[:, None], shared)
    x_hat = found.active * found.mean
    second = found.active * (found.mean.abs().square() + found.variance)
    nu = (second - x_hat.abs().square()).clamp(min=MIN_VAR)
    proposal = error.abs().square().mean(2) * (noise / V[..., 0]).square() + (v * noise / V)[..., 0]
    return Others(x_hat, nu, x_hat @ codebook, z, v), found.log_odds, proposal, _sent_moments(found, V, shared.mean)


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
        y = [Heard.of(part) for part in Y.split(CHUNK)]
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
        return torch.cat([s.first.x_hat for s in kept]), shared.noise_var


def bound_of_counts(received: Tensor, popularity: Tensor, codebook: Tensor, num_active: float | None) -> int:
    """Return the prior's M: the number of devices (as published), or at least 16 and twice a rough estimate of it."""
    if num_active is not None:
        return max(1, round(num_active))
    # about how many devices: the multiple of the expected codeword that fits the mean slot best …
    expected = popularity @ codebook
    fit = (received.mean(0) @ expected / expected.square().sum().clamp_min(MIN_VAR)).item()
    # … which is worthless if the codewords nearly cancel, so no more than the energy allows: counts are integers, and
    # nearly orthogonal codewords have at least as much energy as there are devices
    rough = min(fit, received.square().sum(1).mean().item())
    return max(16, min(math.ceil(2 * rough), MAX_COUNT))


def _maximised(steps: list[Step], shared: Shared, *, keep_noise: bool) -> Shared:
    """Return what the round's slots propose on average; one antenna alone says nothing of others."""
    if not keep_noise:
        shared = replace(shared, noise_var=max(_round_mean([s.noise_var for s in steps]).real, MIN_VAR))
    means, variances = (
        [part for s in steps if (part := getattr(s, name)) is not None] for name in ("mean", "variance")
    )
    if not means:
        return shared
    return replace(shared, mean=_round_mean(means), variance=max(_round_mean(variances).real, MIN_VAR))


def _round_mean(parts: list[Tensor]) -> complex:
    """Return the mean over all slots, in double precision: the same to the last bit that matters whatever the chunk."""
    return complex(torch.cat(parts).to(torch.complex128).mean())
