r"""Posterior of a count under a spike, a Poisson slab and a temperature, with its derivatives written out.

The same posterior as `aircomp.decode.prior.spike_posterior`, made for the network, where it is called in every layer with
a learned temperature $\tau$. For $c = 1/\tau$ the counts above zero weigh

$$w(x) = \exp c\,\bigl[x\,(R/V + \log\lambda) - x^2/2V - \log x! + o\bigr], \qquad w(0) = 1,$$

an exponential family: derivatives of moments are covariances, so the backward pass needs two more moments of the slab and
no graph. All counts around the slab's mode are weighed together, a small matrix product for the exponents and another
for the moments; powers of factorials come from a table over the mode.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from aircomp.decode.prior import MAX_EXPONENT, MIN_EXPONENT, Posterior

_IMPOSSIBLE = -1e9  # log-weight of counts below one: beyond any exponent, and exp(MIN_EXPONENT) of it is still nothing
_LARGEST = 4096.0  # modes beyond are those of a diverged state and need no table


def tempered_posterior(
    R: Float[Tensor, "slots codewords"],
    V: Float[Tensor, "slots codewords"],
    log_rate: Float[Tensor, "#slots codewords"],
    temperature: Float[Tensor, ""],
    *,
    reach: int,
    log_odds: Float[Tensor, "#slots codewords"] | None = None,
) -> Posterior:
    """Return mean, variance and probability of activity of counts seen as R = x + N(0, V) (Sec. III-E, input block).

    Args:
        R: Pseudo-observations.
        V: Their variances, positive.
        log_rate: Logarithm of the slab's rates λ, one row for all slots or one for each.
        temperature: The posterior is raised to 1/temperature: below one it approaches the mode.
        reach: Counts summed either side of the mode, from `aircomp.decode.prior.reach_for`.
        log_odds: Prior log-weight of the counts above zero (`log_odds_spike`, `log_odds_truncated`); None is Poisson.
    """
    inputs = (R, V, log_rate, temperature, log_odds)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs):
        return Posterior(*_Tempered.apply(*inputs, reach))
    power = temperature.reciprocal()
    mode, steps, weight = _weigh(R, V.reciprocal(), log_rate, power, reach)
    total, first, second = _raw_moments(weight, steps, 3, R.shape)
    offset = first / total
    logit = _logit(R, V.reciprocal(), log_rate, power, log_odds, mode) + total.log()
    return _combine(logit.sigmoid_(), mode + offset, (second / total - offset.square()).clamp_min_(0))


class _Tempered(torch.autograd.Function):
    """The posterior with analytic derivatives."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        R: Tensor,
        V: Tensor,
        log_rate: Tensor,
        temperature: Tensor,
        log_odds: Tensor | None,
        reach: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        q, power = V.reciprocal(), temperature.reciprocal()
        mode, steps, weight, factorials = _weigh(R, q, log_rate, power, reach, keep=True)
        total, *raw = _raw_moments(weight, steps, 5, R.shape)
        o1, o2, o3, o4 = (moment / total for moment in raw)
        s2 = (o2 - o1.square()).clamp_min_(0)  # rounding can leave a certain count slightly below zero
        k3 = o3 - 3 * o1 * o2 + 2 * o1**3
        m4 = o4 - 4 * o1 * o3 + 6 * o1.square() * o2 - 3 * o1**4
        # expectations of log m! − log x!, and of it times the offset and its square
        f0, f1, f2 = (moment / total for moment in _raw_moments(weight.mul_(factorials), steps, 3, R.shape))
        log_mode = _log_factorials(mode)
        logit = _logit(R, q, log_rate, power, log_odds, mode) + total.log()
        p, mean = logit.sigmoid_(), mode + o1
        spread = f2 - 2 * o1 * f1 + (o1.square() - s2) * f0
        ctx.save_for_backward(
            R, q, log_rate, power, log_odds, p, mean, s2, k3, m4, log_mode - f0, o1 * f0 - f1, -spread
        )
        return tuple(_combine(p, mean, s2))

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, by_mean: Tensor, by_var: Tensor, by_active: Tensor):  # noqa: ANN205
        """Sum covariances: of x, of −x²/2, of activity and of −log x! with what the gradient weighs."""
        R, q, log_rate, power, log_odds, p, mean, s2, k3, m4, f, fx, fxx = ctx.saved_tensors  # pyright: ignore
        not_p = 1 - p
        # by the logit of activity, the slab's mean and the slab's variance
        L = p * not_p * (by_mean * mean + by_var * (s2 + (not_p - p) * mean.square()) + by_active)
        M = p * (by_mean + 2 * by_var * not_p * mean)
        S = p * by_var
        by_x = L * mean + M * s2 + S * k3
        by_square = -0.5 * (
            L * (s2 + mean.square()) + M * (k3 + 2 * mean * s2) + S * (m4 - s2.square() + 2 * mean * k3)
        )
        by_power = (R * q + log_rate) * by_x + q * by_square - (L * f + M * fx + S * fxx)
        if log_odds is not None:
            by_power = by_power + log_odds * L
        return (
            power * q * by_x,
            -power * q.square() * (R * by_x + by_square),
            (power * by_x).sum_to_size(log_rate.shape),
            -power.square() * by_power.sum(),
            None if log_odds is None else (power * L).sum_to_size(log_odds.shape),
            None,
        )


def _weigh(R: Tensor, q: Tensor, log_rate: Tensor, power: Tensor, reach: int, *, keep: bool = False):  # noqa: ANN202
    """Weigh the counts around the mode of the slab, relative to it.

    Returns the mode, the offsets from it, the weights [offsets, slots · codewords], and with `keep` also log m! − log x!.
    """
    mode = _mode(R, q, log_rate)
    lowest = 1 - int(mode.max()) if mode.numel() else 0
    steps = torch.arange(max(-reach, lowest), reach + 1, device=R.device, dtype=R.dtype)
    factorials = _factorial_steps(mode, steps)
    slope = power * ((R - mode) * q + log_rate)
    planes = torch.stack([slope, (power * q).expand_as(slope)]).view(2, -1)
    exponent = torch.addmm(power * factorials, torch.stack([steps, -steps.square() / 2], dim=1), planes)
    weight = exponent.clamp_(MIN_EXPONENT, MAX_EXPONENT).exp_()
    return (mode, steps, weight, factorials) if keep else (mode, steps, weight)


def _mode(R: Tensor, q: Tensor, log_rate: Tensor) -> Tensor:
    """Return the most likely count above zero, or one near it: the floor of the root of m + V·log m = R + ½ + V·log λ.

    Two Newton steps from an upper bound. Tempering moves no mode, and a count nearby serves, for the reach covers it.
    """
    V = q.reciprocal()
    target = R + 0.5 + V * log_rate
    root = torch.minimum(target, torch.maximum(R, log_rate.exp()) + 1)
    for _ in range(2):
        at = root.clamp(min=1)  # no count below one has a predecessor, and log m stays finite
        root = at - (at - target + V * at.log()) / (1 + V / at)
    return root.floor_().nan_to_num_(1.0).clamp_(1, _LARGEST)  # NaN goes on in R, not into a table's index


def _factorial_steps(mode: Tensor, steps: Tensor) -> Float[Tensor, "offsets entries"]:
    """Return log m! − log(m + step)! for every step and entry; counts below one are impossible."""
    m = torch.arange(int(mode.max()) + 1 if mode.numel() else 1, device=mode.device, dtype=mode.dtype)
    x = m + steps[:, None]
    table = torch.where(x < 1, _IMPOSSIBLE, torch.lgamma(m + 1) - torch.lgamma(x.clamp(min=0) + 1))
    return table.index_select(1, mode.long().flatten())


def _log_factorials(mode: Tensor) -> Tensor:
    m = torch.arange(int(mode.max()) + 1 if mode.numel() else 1, device=mode.device, dtype=mode.dtype)
    return torch.lgamma(m + 1).index_select(0, mode.long().flatten()).view_as(mode)


def _raw_moments(weight: Tensor, steps: Tensor, count: int, shape: torch.Size) -> tuple[Tensor, ...]:
    """Return the sums of weight · step^i for i = 0, …, count − 1."""
    powers = torch.stack([steps**i for i in range(count)])
    return (powers @ weight).view(count, *shape).unbind()


def _logit(
    R: Tensor, q: Tensor, log_rate: Tensor, power: Tensor, log_odds: Tensor | None, mode: Tensor
) -> Float[Tensor, "slots codewords"]:
    """Return the log-weight of the mode against zero."""
    logit = mode * (log_rate + (R - mode / 2) * q) - _log_factorials(mode)
    return power * (logit if log_odds is None else logit + log_odds)


def _combine(active: Tensor, mean: Tensor, var: Tensor) -> Posterior:
    """Mix the slab's moments with the zero."""
    whole = active * mean
    return Posterior(whole, active * var + whole * (mean - whole), active)
