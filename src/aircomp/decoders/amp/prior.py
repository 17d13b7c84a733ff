"""Posterior of one count behind a Gaussian pseudo-channel, R = x + N(0, V), for every codeword of every slot at once.

A table of counts is never written out. Poisson weights times a Gaussian are log-concave in the count, so the moments
are summed outwards from the mode, and neighbouring weights differ by a factor that needs no new exponential:

    weight(m+1) / weight(m) = rate / (m+1) · exp((R − m − ½) / V)

Relative to the mode nothing overflows however small V is, and the differences R − m are exact in float32.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.decoders.base import MAX_DEVICES
from aircomp.decoders.kernels import native

# a codeword that nobody chooses has an urn of this size: its weight stays finite
MIN_SHAPE = 1e-12
# Counts summed either side of a mode, however wide the pseudo-channel: time and tables stay bounded.
MAX_REACH = 256
# log-weight given up beyond the reach: exp(−16) is the resolution of float32
NEGLIGIBLE = 16.0
# Exponents stop here. Above: a mode misplaced by rounding would overflow, and exp(60) outweighs everything already.
# Below: exp(−40) adds nothing to one, and products of smaller ones are denormal numbers, which processors handle slowly.
MAX_EXPONENT, MIN_EXPONENT = 60.0, -40.0


def reach_for(variance: float, max_count: int) -> int:
    """Return how many counts either side of the mode matter for pseudo-channels of at most this variance.

    A count k away from the mode weighs at most exp(−k(k−1)/2V), whatever the rate.
    """
    reach = math.ceil((math.sqrt(1 + 8 * NEGLIGIBLE * variance) - 1) / 2)
    return max(1, min(reach, max_count, MAX_REACH))


def poisson_posterior(
    R: Float[Tensor, "slots codewords"],
    V: Float[Tensor, "slots codewords"],
    rate: Float[Tensor, "#slots codewords"],
    *,
    reach: int,
    agreement: float = 0.0,
) -> tuple[Float[Tensor, "slots codewords"], Float[Tensor, "slots codewords"]]:
    r"""Posterior mean and variance of x ~ Poisson(rate) (Sec. III-E, input block, with α = 1).

    $$p(x \mid R) \propto \frac{\mathrm{rate}^x}{x!}\, e^{-(R-x)^2 / 2V}, \qquad x = 0, 1, 2, \dots$$

    Devices of a slot that agree draw from an urn: each choice makes its like more probable (Dirichlet-multinomial). Of a
    single count this leaves a negative binomial weight, $\Gamma(x + a)\, p^x / x!$, of the same mean.

    Args:
        R: Pseudo-observations.
        V: Their variances, positive.
        rate: Poisson rates, one row for all slots or one for each; zero is allowed.
        reach: Counts summed either side of the mode, from `reach_for`.
        agreement: Probability that two devices choose alike beyond that of independent draws.
    """
    log_rate, shape = urn(rate, agreement)
    if native.serves(R, V, rate):
        return native.poisson_moments(R, V, log_rate, shape, reach=reach, most=MAX_DEVICES)
    if shape is None:
        mode = _mode(R.detach(), V.detach(), rate.detach(), log_rate.detach())
    else:
        mode = _urn_mode(R, V, shape, log_rate)
    offset, var = _sum_outwards(R - mode, mode, V.reciprocal(), log_rate, reach, shape)
    return mode + offset, var


def urn(
    rate: Float[Tensor, "#slots codewords"], agreement: float
) -> tuple[Float[Tensor, "#slots #codewords"], Float[Tensor, "#slots codewords"] | None]:
    """Return the logarithm of Poisson rates and None; or, where devices agree, log p and a of the urn."""
    if not agreement:
        return rate.log(), None
    spread = excess(rate, agreement)
    return torch.log(spread / (1 + spread)), (rate / spread).clamp(min=MIN_SHAPE)


def variance(rate: Float[Tensor, "#slots codewords"], agreement: float) -> Float[Tensor, "#slots codewords"]:
    """Return the variance of every count beforehand: its mean, and more where devices agree."""
    return rate + excess(rate, agreement) * rate


def excess(rate: Float[Tensor, "#slots codewords"], agreement: float) -> Float[Tensor, "#slots 1"]:
    """Return by how much agreement raises the variance of every count, as a share of its mean."""
    return rate.sum(1, keepdim=True) * (agreement / (1 - agreement))


def _sum_outwards(
    distance: Tensor, mode: Tensor, precision: Tensor, log_rate: Tensor, reach: int, shape: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Sum the weights outwards from the mode; return the mean, relative to the mode, and the variance.

    Args:
        distance: From the mode to the pseudo-observation.
        mode: The most likely count, or one near it.
        precision: Of the pseudo-observation.
        log_rate: Of the Poisson weights, or the urn's log p.
        reach: Counts summed either side.
        shape: The urn's a; None is Poisson.
    """
    climb, descend = (distance - 0.5) * precision + log_rate, (-0.5 - distance) * precision - log_rate
    up = torch.exp(climb.clamp(MIN_EXPONENT, MAX_EXPONENT))
    down = torch.exp(descend.clamp(MIN_EXPONENT, MAX_EXPONENT))
    shrink = torch.exp(torch.clamp(-precision, min=MIN_EXPONENT))
    above = below = zeroth = torch.ones_like(distance)
    first = second = torch.zeros_like(distance)
    for k in range(1, reach + 1):
        growth, decay = mode + k, mode - (k - 1)  # m! grows by the one on the way up, shrinks by the other down
        if shape is not None:
            growth = growth / ((mode + (k - 1)) + shape)
            decay = decay / ((mode - k).clamp(min=0) + shape)
        above, below = above * up / growth, below * down * decay
        both = above + below
        zeroth = zeroth + both
        first = torch.add(first, above - below, alpha=k)
        second = torch.add(second, both, alpha=k * k)
        up, down = up * shrink, down * shrink
    if not math.isfinite(second.sum().item()):
        # beyond a mode that is misplaced by more than the reach, weights grow without end: the last one outweighs the others
        lost = ~second.isfinite()
        end = torch.where(above > below, reach, -reach).to(mode)
        zeroth, first = zeroth.masked_fill(lost, 1.0), torch.where(lost, end, first)
        second = torch.where(lost, end**2, second)
    offset = first / zeroth
    return offset, second / zeroth - offset**2


def _mode(R: Tensor, V: Tensor, rate: Tensor, log_rate: Tensor) -> Tensor:
    """Return the most likely count: the floor of the root of m + V·log m = R + ½ + V·log(rate).

    One Newton step from an upper bound is enough where V is small and the mode has to be exact; where V is large
    neighbouring weights are alike and a count nearby serves.
    """
    target = R + 0.5 + V * log_rate
    at = torch.minimum(target, torch.maximum(R, rate) + 1).clamp(min=1)  # no count below one has a predecessor
    root = at - (at - target + V * at.log()) / (1 + V / at)
    return root.floor().clamp(min=0)


def _urn_mode(R: Tensor, V: Tensor, shape: Tensor, log_p: Tensor) -> Tensor:
    """Return where the weights of an urn are largest: at zero, or at the one other maximum.

    A count nearby serves where both are alike, so a midpoint stands for the product of a + 1, …, a + x − 1.
    """
    upper = R
    for _ in range(2):
        at = upper.clamp(min=1.5)  # between the first count and the second: below lies the step from zero
        upper = R + 0.5 + V * (log_p + torch.log((at + (shape - 1)) / at))
    upper = upper.floor().clamp(1, MAX_DEVICES)
    above_zero = shape.log() + log_p + (upper - 1) * (log_p + torch.log(shape + upper / 2)) - _log_factorial(upper)
    return upper.where(above_zero + upper * (R - upper / 2) / V > 0, 0)


def _log_factorial(counts: Tensor) -> Tensor:
    """Return log x! of whole numbers, by a table: there are few of them."""
    largest = int(counts.max()) if counts.numel() else 0
    return torch.lgamma(torch.arange(largest + 1, device=counts.device, dtype=counts.dtype) + 1)[counts.long()]
