r"""Posterior of a count by a table of all counts from zero to a largest one, for the network as published.

The table has one row a count, $k = 0, \dots, M$, and a column for every codeword of every slot:

$$w_k \propto \exp\frac1\tau\Bigl[-\frac{(R-k)^2}{2V} + k\log\lambda - \log k! + [k \ge 1]\,o\Bigr].$$

The log-odds $o$ hold the form of the prior: the weight of the counts above zero against that of zero. Likelihood and prior
are tempered alike. The backward pass is written out, because it needs four sums over the table and no graph: with
$g_k = \partial L/\partial(\text{exponent})$, which sum to zero, the derivatives are $\sum k\,g_k$, $\sum k^2 g_k$,
$\sum_{k\ge1} g_k$ and $\sum \log k!\,g_k$ times factors of one entry.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from aircomp.decoders.kernels import native
from aircomp.decoders.net.base import Moments

MIN_VARIANCE = 1e-12  # of a count, as published: a difference of two moments may come out below zero


def count_moments(
    R: Float[Tensor, "slots codewords"],
    V: Float[Tensor, "slots codewords"],
    log_rate: Float[Tensor, "#slots codewords"],
    log_odds: Float[Tensor, "#slots codewords"],
    temperature: Float[Tensor, ""],
    *,
    largest: int,
) -> Moments:
    """Return mean, variance and probability of activity of counts seen as R = x + N(0, V) (Sec. III-E, input block).

    Args:
        R: Pseudo-observations.
        V: Their variances, positive.
        log_rate: Logarithm of the slab's rates λ, one row for all slots or one for each.
        log_odds: Prior log-weight of the counts above zero against that of zero, but for the Poisson weights.
        temperature: The posterior is raised to 1/temperature.
        largest: The largest count of the table.
    """
    if native.serves(R, V, log_rate, log_odds):
        moments = native.count_moments(R, V, log_rate, log_odds, temperature=float(temperature), largest=largest)
        return Moments(*moments)
    return Moments(*_CountMoments.apply(R, V, log_rate, log_odds, temperature, largest))


class _CountMoments(torch.autograd.Function):
    """The table with its backward pass."""

    @staticmethod
    def forward(
        ctx: Any, R: Tensor, V: Tensor, log_rate: Tensor, log_odds: Tensor, temperature: Tensor, largest: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        k, powers = _powers(largest, R)
        above = (k > 0).to(R)[:, None, None]
        weight = (R - k[:, None, None]).square_().mul_(-0.5 / V)
        weight += k[:, None, None] * log_rate + above * log_odds - powers[3][:, None, None]
        weight = torch.softmax(weight.div_(temperature), dim=0)
        mean, second, active = (powers[:3] @ weight.flatten(1)).view(3, *R.shape)
        ctx.save_for_backward(R, V, log_rate, log_odds, temperature, weight, mean, second, active)
        ctx.largest = largest
        var = torch.addcmul(second, mean, mean, value=-1)
        _centre(var, mean, weight, k)
        return mean, var.clamp_(min=MIN_VARIANCE), active

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  (what the decorator makes of it)
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        R, V, log_rate, log_odds, temperature, weight, mean, second, active = ctx.saved_tensors
        by_mean, by_var, by_active = grad_outputs
        _, powers = _powers(ctx.largest, R)
        by_var = by_var.masked_fill(second - mean.square() <= MIN_VARIANCE, 0.0)
        by_mean = by_mean - 2 * mean * by_var
        average = by_mean * mean + by_var * second + by_active * active
        g = (powers[:3].T @ torch.stack([by_mean, by_var, by_active]).flatten(1)).view_as(weight)
        g.sub_(average).mul_(weight)
        s1, s2, s_above, s_factorial = (powers @ g.flatten(1)).view(4, *R.shape)
        c = temperature.reciprocal()
        by_V = c * (s2 - 2 * R * s1) / (2 * V.square())
        exponent = (2 * R * s1 - s2) / (2 * V) + s1 * log_rate + s_above * log_odds - s_factorial
        by_rate, by_odds = ((c * s).sum_to_size(t.shape) for s, t in ((s1, log_rate), (s_above, log_odds)))
        by_temperature = -c.square() * exponent.sum()
        return c * s1 / V, by_V, by_rate, by_odds, by_temperature, None


def _centre(var: Tensor, mean: Tensor, weight: Tensor, k: Tensor) -> None:
    """Compute the variances of large counts anew, around their means: as differences of large numbers they lose digits."""
    large = torch.nonzero(mean.flatten() > 1).squeeze(1)
    distance = k[:, None] - mean.flatten()[large]
    var.view(-1)[large] = (weight.flatten(1).index_select(1, large) * distance.square()).sum(0)


def _powers(largest: int, like: Tensor) -> tuple[Float[Tensor, " counts"], Float[Tensor, "4 counts"]]:
    """Return the counts, and what the weights are summed with: k, k², k ≥ 1 and log k!."""
    k = torch.arange(largest + 1, dtype=like.dtype, device=like.device)
    return k, torch.stack([k, k.square(), (k > 0).to(k), torch.lgamma(k + 1)])


def log_odds_spike(rate: Tensor, alpha: Tensor) -> Tensor:
    """Return the `log_odds` of the paper's prior (1−α)δ₀ + α·Pois(rate), whose slab has a zero of its own."""
    return alpha.log() - rate - torch.log(1 - alpha + alpha * torch.exp(-rate))
