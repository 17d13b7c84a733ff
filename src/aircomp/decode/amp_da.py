r"""AMP-DA, the baseline: MD-AirComp's decoder (Qiao et al. 2024), for real signals and one antenna.

Generalised approximate message passing (the paper, Sec. III-E, output and input block, without the learned parts) under
the prior $(1-\alpha)\delta_0 + \alpha\,\mathcal U\{1, \dots, M\}$. It knows no popularity: the activity $\alpha$ starts
equal everywhere and every iteration replaces it by its posterior, the noise variance likewise. As published, the noise
variance and the rule for stopping belong to the round, so every iteration visits all slots, a chunk at a time.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from aircomp.common.checks import check_choice
from aircomp.common.settings import Settings
from aircomp.decode.base import BaseDecoder, Decoded, Observation, PerCodeword, PerUse, check_codebook
from aircomp.decode.heard import MIN_VAR, hear

CHUNK = 256  # slots computed at a time: bounds the temporaries, changes nothing else
_START_NOISE = 100.0  # σ² before the first iteration, as published: trust the prior first
_PATIENCE = 15  # iterations before a rising residual stops the round, as published
_MAX_LOG_ODDS = math.log(1e10)  # α within 1e-10 of 0 and 1, as published; a bounded α can still change its mind
_MAX_COUNT = 1000  # of an estimated M: a signal on the wrong scale ends soon, with a wrong answer, not in hours
_MAX_REACH = 256  # counts summed either side of the nearest one, however wide the pseudo-channel
_MAX_STATE = 1e9  # of z: message passing that explodes stays finite; no signal within range comes near


class AmpDaSettings(Settings):
    """Options of MD-AirComp's decoder; the defaults are the published ones."""

    damping: float = Field(default=0.3, ge=0, lt=1)
    """Share of the old state that each iteration keeps."""
    max_iterations: int = Field(default=50, ge=1)
    """The most iterations; from the 16th on, a rising residual of the round ends them earlier."""


class AmpDa(BaseDecoder):
    """MD-AirComp's decoder.

    Args:
        codebook: Unit-norm codewords, one a row.
        settings: Its options.
        activity: Whether every slot learns the activity of its codewords (`slot`, as published), or the slots share
            one for each codeword (`pooled`, as in the published code of AMP-DA-Net).
    """

    def __init__(
        self,
        codebook: Float[Tensor, "codewords uses"],
        settings: AmpDaSettings | None = None,
        *,
        activity: Literal["slot", "pooled"] = "slot",
    ):
        check_choice("activity", activity, ("slot", "pooled"))
        self.codebook, self.settings, self.activity = check_codebook(codebook), settings or AmpDaSettings(), activity

    def infer(self, seen: Observation) -> Decoded:
        """Estimate the counts of every slot; the popularity only helps to bound the largest count."""
        heard = hear(self.codebook, seen)
        exact = heard.exact()
        if exact is not None:
            return exact
        largest = bound_of_counts(heard.received, heard.popularity, heard.codebook, heard.num_active)
        mean, noise = self._iterate(heard.received, heard.codebook, largest, heard.noise_var)
        return heard.conclude(mean, noise, heard.num_active)

    def _iterate(
        self, received: Tensor, codebook: Tensor, largest: int, given_noise: Tensor | None
    ) -> tuple[Float[Tensor, "slots codewords"], Float[Tensor, " slots"]]:
        """Run the iterations of a round; return the soft counts and the noise variance of every slot."""
        y = received.split(CHUNK)
        activity = start_activity(*codebook.shape)
        states = [_start(part, codebook, math.log(activity / (1 - activity))) for part in y]
        noise = torch.full_like(received[:, 0], _START_NOISE) if given_noise is None else given_noise
        kept, best = states, math.inf
        for t in range(self.settings.max_iterations):
            variances = noise[:, None].split(CHUNK)
            steps = [
                step(s, part, codebook, variance, largest, self.settings.damping)
                for s, part, variance in zip(states, y, variances, strict=True)
            ]
            states = [s.state for s in steps]
            residual = _round_mean([s.residual for s in steps])
            if t >= _PATIENCE and residual >= best:
                break  # and keep the estimate from before the rise
            kept, best = states, residual
            if given_noise is None:
                noise = torch.full_like(noise, max(_round_mean([s.noise_var for s in steps]), MIN_VAR))
            if self.activity == "pooled":
                states = _pool_activity(states)
        return torch.cat([s.x_hat for s in kept]), noise


@dataclass(frozen=True)
class AmpState:
    """Where message passing stands (the names are the paper's)."""

    x_hat: PerCodeword
    nu: PerCodeword
    signal: PerUse
    """What `x_hat` would have sent."""
    z: PerUse
    v: Float[Tensor, "slots 1"]
    log_odds: Float[Tensor, "#slots codewords"]
    r"""The activity, as $\log \alpha/(1-\alpha)$: probabilities near one have no room in float32."""


@dataclass(frozen=True)
class Step:
    """One iteration: the state after it, and what each slot says about the round."""

    state: AmpState
    noise_var: Float[Tensor, " slots"]
    residual: Float[Tensor, " slots"]


def step(
    s: AmpState,
    y: Float[Tensor, "slots uses"],
    codebook: Float[Tensor, "codewords uses"],
    noise_var: Float[Tensor, "slots 1"],
    largest: int,
    damping: float,
) -> Step:
    r"""Return the state after one iteration (Sec. III-E, output block, input block and EM with all gains at one).

    The variances are averaged over channel uses. For the codebook of MD-AirComp, whose entries all have the same
    magnitude, this changes nothing; for others it makes the result independent of rotations of the signal space.
    The noise proposal is the posterior expectation of the noise energy,
    $\overline{(y-z)^2}/(1+v/\sigma^2)^2 + v\sigma^2/(v+\sigma^2)$.
    """
    v_new = s.nu.sum(1, keepdim=True) / y.shape[1]
    z_new = s.signal - (y - s.z) * (v_new / (noise_var + s.v))
    z, v = torch.lerp(z_new, s.z, damping).clamp_(-_MAX_STATE, _MAX_STATE), torch.lerp(v_new, s.v, damping)
    V = noise_var + v
    error = y - z
    x_hat, nu, log_odds = slab_posterior(s.x_hat + error @ codebook.T, V, s.log_odds, largest)
    signal = x_hat @ codebook
    proposal = error.square().mean(1, keepdim=True) * (noise_var / V).square() + v * noise_var / V
    residual = (y - signal).square().sum(1)
    return Step(AmpState(x_hat, nu, signal, z, v, log_odds), proposal[:, 0], residual)


def slab_posterior(
    R: Float[Tensor, "slots codewords"],
    V: Float[Tensor, "slots 1"],
    log_odds: Float[Tensor, "#slots codewords"],
    largest: int,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return mean, variance and log-odds of activity of counts seen as $R = x + \mathcal N(0, V)$ (input block)."""
    evidence, slab_mean, slab_var = _slab(R, V, largest)
    posterior = log_odds + evidence
    active = torch.sigmoid(posterior)
    nu = active * slab_var + active * (1 - active) * slab_mean.square()
    # rounding can leave a variance slightly below zero
    return active * slab_mean, nu.clamp_min_(MIN_VAR), posterior.clamp_(-_MAX_LOG_ODDS, _MAX_LOG_ODDS)


def _slab(R: Tensor, V: Tensor, largest: int) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return log-evidence against zero, mean and variance of a count that is uniform over $1, \dots, M$.

    The weights $e^{-(R-m)^2/2V}$ are taken relative to that of the $m_0$ nearest to $R$. Away from it each is the last
    one times a ratio, and the ratio itself shrinks by $e^{-1/V}$ a step: three exponentials instead of $M$, nothing
    overflows, and weights too small to matter are left out.
    """
    m_0 = R.round().clamp_(1, largest)
    r, psi, highest = R - m_0, 1 / V, int(m_0.max().item())
    shrink = torch.exp(-psi)
    # positive exponents only where there is nothing to weigh (below one, beyond M): no infinity times zero
    up_ratio = ((r - 0.5) * psi).clamp_max_(0).exp_()
    down_ratio = ((-r - 0.5) * psi).clamp_max_(0).exp_()
    up, down, room = torch.ones_like(R), torch.ones_like(R), torch.empty_like(R)
    total, first, second = torch.ones_like(R), torch.zeros_like(R), torch.zeros_like(R)
    for k in range(1, _reach(V, largest) + 1):
        up.mul_(up_ratio)
        up_ratio.mul_(shrink)
        if highest + k > largest:  # nothing beyond M: a weight times zero, once and for all
            up.mul_(torch.sub(largest + 1 - k, m_0, out=room).clamp_(0, 1))
        total.add_(up)
        first.add_(up, alpha=k)
        second.add_(up, alpha=k * k)
        if k < highest:  # nothing below one, likewise
            down.mul_(down_ratio).mul_(torch.sub(m_0, k, out=room).clamp_(0, 1))
            down_ratio.mul_(shrink)
            total.add_(down)
            first.sub_(down, alpha=k)
            second.add_(down, alpha=k * k)
    offset = first / total
    evidence = total.log() - math.log(largest) + m_0 * (R - m_0 / 2) * psi
    return evidence, m_0 + offset, second / total - offset.square()


def _reach(V: Tensor, largest: int) -> int:
    """Return how far from the nearest count a weight can still matter: weight k is at most e^(-k(k-1)/2V)."""
    negligible = 4 - math.log(torch.finfo(V.dtype).eps)  # a fiftieth of what the sum can hold
    return min(largest - 1, _MAX_REACH, math.ceil(0.5 + math.sqrt(0.25 + 2 * negligible * V.max().item())))


def start_activity(num_codewords: int, codeword_length: int) -> float:
    r"""Return the activity at which ℓ1 recovery of signed sparse vectors breaks down, as in EM-AMP (Vila 2013).

    $$\alpha_0 = \lambda \max_c \frac{1 - \frac 2\lambda f(c)}{1 + c^2 - 2 f(c)}, \quad
      f(c) = (1+c^2)\Phi(-c) - c\,\varphi(c), \quad \lambda = l/n$$
    """
    ratio = codeword_length / num_codewords
    c = torch.linspace(0.01, 10, 1024, dtype=torch.float64)
    f = (1 + c**2) * torch.special.ndtr(-c) - c * torch.exp(-(c**2) / 2) / math.sqrt(2 * math.pi)
    rho = (1 - 2 / ratio * f) / (1 + c**2 - 2 * f)
    # the approximation knows no bound: with as many uses as codewords it reaches one
    return min(max(ratio * rho.max().item(), 1e-10), 1 - 1e-10)


def _start(y: Tensor, codebook: Tensor, log_odds: float) -> AmpState:
    ones = y.new_ones(len(y), len(codebook))
    v = torch.ones_like(y[:, :1])
    return AmpState(ones, ones, signal=ones @ codebook, z=y, v=v, log_odds=torch.full_like(ones, log_odds))


def _pool_activity(states: list[AmpState]) -> list[AmpState]:
    """Give all slots the mean activity of the round, again summed in double precision."""
    sums = torch.stack([torch.sigmoid(s.log_odds.double()).sum(0) for s in states])
    active = sums.sum(0, keepdim=True) / sum(len(s.x_hat) for s in states)
    log_odds = torch.logit(active).to(states[0].x_hat)
    return [replace(s, log_odds=log_odds) for s in states]


def _round_mean(parts: list[Tensor]) -> float:
    """Return the mean over all slots, in double precision: the same to the last bit that matters whatever the chunk."""
    return torch.cat(parts).double().mean().item()


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
    return max(16, min(math.ceil(2 * rough), _MAX_COUNT))
