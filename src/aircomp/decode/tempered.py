r"""Posterior of a count under a spike, a Poisson slab and a temperature, with its derivatives written out.

Made for the network, which needs it in every layer with a learned temperature $\tau$ and, in training, its gradients. The
prior's form is in the log-odds (`log_odds_spike`, `log_odds_truncated`), plain Poisson without them. For $c = 1/\tau$
the counts above zero weigh

$$w(x) = \exp c\,\bigl[x\,(R/V + \log\lambda) - x^2/2V - \log x! + o\bigr], \qquad w(0) = 1,$$

an exponential family: derivatives of moments are covariances, so the backward pass needs two more moments of the slab and
no graph. All counts around the slab's mode are weighed together, a small matrix product for the exponents and another
for the moments; powers of factorials come from a table over the mode.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from aircomp.decode.prior import MAX_EXPONENT, MIN_EXPONENT, Moments

# Log-weight of counts below one. Far below any other, and nothing once multiplied by exp(MIN_EXPONENT); where a slot says
# so little for a codeword that this were not enough, the codeword is not active anyway.
_IMPOSSIBLE = -1e5


class CountTable(NamedTuple):
    """What depends on neither slot nor layer: offsets from the mode, and factorials around every mode."""

    forms: Float[Tensor, "offsets 2"]
    """Offset and minus half its square: what slope and precision of the log-weight are multiplied with."""
    powers: Float[Tensor, "5 offsets"]
    """Powers of the offset, from the zeroth."""
    factorial_steps: Float[Tensor, "offsets modes"]
    """log m! − log(m + offset)!; counts below one are impossible."""
    log_factorials: Float[Tensor, " modes"]

    @classmethod
    def of(cls, reach: int, largest: int, like: Tensor) -> "CountTable":
        """Tabulate.

        Args:
            reach: Counts summed either side of the mode, from `aircomp.decode.prior.reach_for`.
            largest: No mode is looked for beyond this count.
            like: Sets dtype and device.
        """
        offsets = torch.arange(-reach, reach + 1, dtype=like.dtype, device=like.device)
        m = torch.arange(largest + 1, dtype=like.dtype, device=like.device)
        x = m + offsets[:, None]
        log_factorials = torch.lgamma(m + 1)
        steps = torch.where(x < 1, _IMPOSSIBLE, log_factorials - torch.lgamma(x.clamp(min=0) + 1))
        powers = torch.stack([offsets**i for i in range(5)])
        return cls(torch.stack([offsets, -offsets.square() / 2], dim=1), powers, steps, log_factorials)


def tempered_posterior(
    R: Float[Tensor, "slots codewords"],
    V: Float[Tensor, "slots codewords"],
    log_rate: Float[Tensor, "#slots codewords"],
    temperature: Float[Tensor, ""],
    table: CountTable,
    log_odds: Float[Tensor, "#slots codewords"] | None = None,
) -> Moments:
    """Return mean, variance and probability of activity of counts seen as R = x + N(0, V) (Sec. III-E, input block).

    Args:
        R: Pseudo-observations.
        V: Their variances, positive.
        log_rate: Logarithm of the slab's rates λ, one row for all slots or one for each.
        temperature: The posterior is raised to 1/temperature: below one it approaches the mode.
        table: Which counts to sum.
        log_odds: Prior log-weight of the counts above zero (`log_odds_spike`, `log_odds_truncated`); None is Poisson.
    """
    inputs = (R, V, log_rate, temperature, log_odds)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs):
        return Moments(*_Tempered.apply(*inputs, table))  # pyright: ignore[reportGeneralTypeIssues]
    q, power = V.reciprocal(), temperature.reciprocal()
    mode = _mode(R, V, log_rate, table)
    index = mode.long().flatten()
    exponent = (power * table.factorial_steps).index_select(1, index)
    total, first, second = _sums(_weigh(exponent, R, q, log_rate, power, mode, table), table.powers[:3], R.shape)
    offset = first / total
    logit = _logit(R, q, log_rate, power, log_odds, mode, index, table) + total.log()
    return _combine(logit.sigmoid_(), mode + offset, (second / total - offset.square()).clamp_min_(0))


class _Tempered(torch.autograd.Function):
    """The posterior with analytic derivatives."""

    @staticmethod
    def forward(
        ctx: Any,
        R: Tensor,
        V: Tensor,
        log_rate: Tensor,
        temperature: Tensor,
        log_odds: Tensor | None,
        table: CountTable,
    ) -> tuple[Tensor, ...]:
        q, power = V.reciprocal(), temperature.reciprocal()
        mode = _mode(R, V, log_rate, table)
        index = mode.long().flatten()
        steps = table.factorial_steps.index_select(1, index)
        weight = _weigh(power * steps, R, q, log_rate, power, mode, table)
        sums = table.powers @ weight
        total, (o1, o2, o3, o4) = sums[0].view_as(R), (sums[1:] / sums[0]).view(4, *R.shape)
        first = o1 * o1
        s2 = (o2 - first).clamp_min_(0)  # rounding can leave a certain count slightly below zero
        k3 = torch.addcmul(o3, o1, torch.add(first, s2, alpha=3), value=-1)
        m4 = torch.addcmul(o4, o1, torch.addcmul(4 * k3, o1, torch.add(first, s2, alpha=6)), value=-1)
        # mean of log m! − log x!, and its covariances with x and with (x − mean)²
        f0, f1, f2 = ((table.powers[:3] @ weight.mul_(steps)) / sums[0]).view(3, *R.shape)
        fx = torch.addcmul(f1, o1, f0, value=-1)
        fxx = torch.addcmul(torch.addcmul(f2, o1, fx, value=-2), o2, f0, value=-1)
        f = f0 - table.log_factorials.index_select(0, index).view_as(mode)  # now of −log x!
        p = (_logit(R, q, log_rate, power, log_odds, mode, index, table) + total.log()).sigmoid_()
        mean, excess = mode + o1, torch.addcmul(m4, s2, s2, value=-1)
        ctx.save_for_backward(R, q, log_rate, power, log_odds, p, mean, s2, k3, excess, f, fx, fxx)
        return tuple(_combine(p, mean, s2))

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  (what the decorator makes of it)
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Sum covariances of x, −x²/2, activity and −log x! with what the gradient weighs.

        Of the slab: `s2` is the variance, `k3` the covariance of x with (x − mean)², `excess` the latter's variance.
        """
        by_mean, by_var, by_active = grad_outputs
        R, q, log_rate, power, log_odds, p, mean, s2, k3, excess, f, fx, fxx = ctx.saved_tensors
        not_p, u = 1 - p, by_var * mean
        w = torch.addcmul(by_mean, not_p, u, value=2)
        # by the slab's mean and variance, and by the logit of activity
        M, S = p * w, p * by_var
        L = torch.addcmul(torch.addcmul(by_active, mean, w - u), by_var, s2).mul_(p).mul_(not_p)
        zero_part = L * mean
        by_x = torch.addcmul(torch.addcmul(zero_part, M, s2), S, k3)
        square = (2 * by_x).sub_(zero_part).mul_(mean).addcmul_(L, s2).addcmul_(M, k3).addcmul_(S, excess)
        by_q = torch.addcmul(-0.5 * square, R, by_x)
        by_log_rate = by_x.sum_to_size(log_rate.shape)
        by_power = _dot(q, by_q) + _dot(log_rate, by_log_rate) + _dot(L, f) + _dot(M, fx) + _dot(S, fxx)
        by_log_odds = None
        if log_odds is not None:
            by_log_odds = L.sum_to_size(log_odds.shape)
            by_power = by_power + _dot(log_odds, by_log_odds)
            by_log_odds = power * by_log_odds
        sharpness = power * q
        by_V = by_q.mul_(q).mul_(sharpness).neg_()
        return sharpness * by_x, by_V, power * by_log_rate, -power.square() * by_power, by_log_odds, None


def _dot(a: Tensor, b: Tensor) -> Float[Tensor, ""]:
    return torch.dot(a.flatten(), b.flatten())


def _mode(R: Tensor, V: Tensor, log_rate: Tensor, table: CountTable) -> Tensor:
    """Return the most likely count above zero, or one near it: the floor of the root of m + V·log m = R + ½ + V·log λ.

    Two Newton steps from an upper bound. Tempering moves no mode, and a count nearby serves, for the reach covers it.
    """
    target = torch.addcmul(R, V, log_rate).add_(0.5)
    root = torch.minimum(target, torch.maximum(R, log_rate.exp()).add_(1))
    for _ in range(2):
        at = root.clamp_(min=1)  # no count below one has a predecessor, and log m stays finite
        # Newton's at − (at − target + V·log at)/(1 + V/at), over one denominator
        root = at * (target + V * (1 - at.log())) / (at + V)
    return root.floor_().nan_to_num_(1.0).clamp_(1, len(table.log_factorials) - 1)  # NaN goes on in R, not as an index


def _weigh(
    exponent: Tensor, R: Tensor, q: Tensor, log_rate: Tensor, power: Tensor, mode: Tensor, table: CountTable
) -> Float[Tensor, "offsets entries"]:
    """Turn the factorials' part of the log-weights into weights relative to the mode's, in place."""
    slopes = torch.stack([(R - mode).mul_(q).add_(log_rate), q]).mul_(power).view(2, -1)
    return exponent.addmm_(table.forms, slopes).clamp_(MIN_EXPONENT, MAX_EXPONENT).exp_()


def _sums(weight: Tensor, powers: Tensor, shape: torch.Size) -> tuple[Tensor, ...]:
    """Return the sums of the weights times each power of the offset."""
    return (powers @ weight).view(len(powers), *shape).unbind()


def _logit(
    R: Tensor,
    q: Tensor,
    log_rate: Tensor,
    power: Tensor,
    log_odds: Tensor | None,
    mode: Tensor,
    index: Tensor,
    table: CountTable,
) -> Float[Tensor, "slots codewords"]:
    """Return the log-weight of the mode against zero."""
    logit = (R - mode / 2).mul_(q).add_(log_rate).mul_(mode)
    logit -= table.log_factorials.index_select(0, index).view_as(mode)
    return (logit if log_odds is None else logit + log_odds).mul_(power)


def _combine(active: Tensor, mean: Tensor, var: Tensor) -> Moments:
    """Mix the slab's moments with the zero."""
    whole = active * mean
    return Moments(whole, active * var + whole * (mean - whole), active)
