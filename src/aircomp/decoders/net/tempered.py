r"""Posterior of a Poisson count under a temperature, with its derivatives written out.

Made for the network, which needs it in every layer with a learned temperature $\tau$ and, in training, its gradients. For
$c = 1/\tau$ a count weighs

$$w(x) = \exp c\,\bigl[x\,(R/V + \log\lambda) - x^2/2V - \log x!\bigr],$$

an exponential family: derivatives of moments are covariances, so the backward pass needs two more moments and no graph.
Zero stands apart from the other counts, the slab, because the network also asks for the probability of the slab. Weights
are taken relative to that of one count, the anchor, and weighed together: a small matrix product gives their logarithms and
another one the moments.

    nearly all entries, whose weights fall from one on:   1, 2, …, 1 + reach           logarithms of factorials are constants
    the others, those of codewords sent twice or more:    mode − reach, …, mode + reach     … come from a table over the mode

Exponentials are of base two, which processors compute faster.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from aircomp.decoders.amp.prior import MAX_EXPONENT, MIN_EXPONENT
from aircomp.decoders.net.base import Moments

# Log-weight of counts below one. Far below any other, and nothing once multiplied by exp(MIN_EXPONENT); where a slot says
# so little for a codeword that this were not enough, the codeword is not active anyway.
_IMPOSSIBLE = -1e5
_BITS = 1 / math.log(2)
_MOMENTS, _DERIVATIVES = 3, 5  # powers of the offset that are summed, from the zeroth


class CountTable(NamedTuple):
    """What depends on neither slot nor layer: offsets from the anchor, and factorials around every mode."""

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
            reach: Counts summed either side of the mode, from `aircomp.decoders.amp.prior.reach_for`.
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

    @property
    def reach(self) -> int:
        """Counts summed either side of a mode."""
        return len(self.forms) // 2

    def above_one(self) -> "CountTable":
        """Return what concerns the counts 2, 3, … of entries whose anchor is one."""
        offsets = slice(self.reach + 1, None)
        return CountTable(
            self.forms[offsets], self.powers[:, offsets], self.factorial_steps[offsets, 1:2], self.log_factorials
        )


class _Slab(NamedTuple):
    """The counts above zero of some entries, weighed."""

    anchor: Float[Tensor, "*entries"]
    """The count whose weight is one."""
    height: Float[Tensor, "*entries"]
    """Logarithm of the anchor's weight against that of zero, for temperature one."""
    sums: Tensor
    """Weights times powers of the offset from the anchor; then, for derivatives, times −log x! and three powers."""


def tempered_posterior(
    R: Float[Tensor, "slots codewords"],
    V: Float[Tensor, "slots codewords"],
    log_rate: Float[Tensor, "#slots codewords"],
    temperature: Float[Tensor, ""],
    table: CountTable,
) -> Moments:
    """Return mean, variance and probability of activity of counts seen as R = x + N(0, V) (Sec. III-E, input block).

    It is fastest, with the same result, where memory holds the slots of a codeword side by side.

    Args:
        R: Pseudo-observations.
        V: Their variances, positive.
        log_rate: Logarithm of the rates λ, one row for all slots or one for each.
        temperature: The posterior is raised to 1/temperature: below one it approaches the mode.
        table: Which counts to sum.
    """
    by_codeword = (R.mT, V.mT, log_rate.mT, temperature)
    if torch.is_grad_enabled() and any(t.requires_grad for t in by_codeword):
        found = _Tempered.apply(*by_codeword, table)
    else:
        power = temperature.reciprocal()
        found = _mix(_weigh(R.mT, V.mT, log_rate.mT, power, table, _MOMENTS), power)
    return Moments(*(moment.mT for moment in found))  # pyright: ignore[reportGeneralTypeIssues]


def posterior_around_modes(
    R: Float[Tensor, "slots codewords"],
    V: Float[Tensor, "slots codewords"],
    log_rate: Float[Tensor, "#slots codewords"],
    temperature: Float[Tensor, ""],
    table: CountTable,
) -> Moments:
    """Return the same with every entry's counts around its mode: slower, but a fixed graph, as an export needs it."""
    power = temperature.reciprocal()
    return _mix(_around_modes(R, V, log_rate.expand_as(R), power, table, _MOMENTS), power)


class _Tempered(torch.autograd.Function):
    """The posterior with analytic derivatives."""

    @staticmethod
    def forward(
        ctx: Any, R: Tensor, V: Tensor, log_rate: Tensor, temperature: Tensor, table: CountTable
    ) -> tuple[Tensor, ...]:
        power = temperature.reciprocal()
        slab = _weigh(R, V, log_rate, power, table, _DERIVATIVES)
        total = slab.sums[0]
        # of the slab, relative to the anchor: moments; mean of −log x!, and its covariances with x and with (x − mean)²
        o1, o2, o3, o4, f, f1, f2 = (slab.sums[1:] / total).unbind()
        first = o1 * o1
        s2 = (o2 - first).clamp_min_(0)  # rounding can leave a certain count slightly below zero
        k3 = torch.addcmul(o3, o1, torch.add(first, s2, alpha=3), value=-1)
        m4 = torch.addcmul(o4, o1, torch.addcmul(4 * k3, o1, torch.add(first, s2, alpha=6)), value=-1)
        fx = torch.addcmul(f1, o1, f, value=-1)
        fxx = torch.addcmul(torch.addcmul(f2, o1, fx, value=-2), o2, f, value=-1)
        p = _activity(slab, power)
        mean, excess = slab.anchor + o1, torch.addcmul(m4, s2, s2, value=-1)
        ctx.save_for_backward(R, V, log_rate, power, p, mean, s2, k3, excess, f, fx, fxx)
        return tuple(_combine(p, mean, s2))

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  (what the decorator makes of it)
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Sum covariances of x, −x²/2, activity and −log x! with what the gradient weighs.

        Of the slab: `s2` is the variance, `k3` the covariance of x with (x − mean)², `excess` the latter's variance.
        """
        by_mean, by_var, by_active = (t.contiguous() for t in grad_outputs)  # what follows is by codeword
        R, V, log_rate, power, p, mean, s2, k3, excess, f, fx, fxx = ctx.saved_tensors
        q = V.reciprocal()
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
        sharpness = power * q
        by_V = by_q.mul_(q).mul_(sharpness).neg_()
        return sharpness * by_x, by_V, power * by_log_rate, -power.square() * by_power, None


def _dot(a: Tensor, b: Tensor) -> Float[Tensor, ""]:
    return torch.dot(a.flatten(), b.flatten())


def _weigh(R: Tensor, V: Tensor, log_rate: Tensor, power: Tensor, table: CountTable, num_powers: int) -> _Slab:
    """Weigh the counts 1, 2, … of all entries; and where two weighs more than one, those around the mode instead."""
    counts = table.above_one()
    slopes = R.new_empty(2, *R.shape)
    q = torch.reciprocal(V, out=slopes[1])
    rising = torch.addcmul(log_rate, R - 1, q, out=slopes[0])
    scale = power * _BITS
    exponent = torch.addmm(scale * counts.factorial_steps, scale * counts.forms, slopes.view(2, -1))
    others = torch.nonzero(exponent[0] > 0).squeeze(1)
    weight = exponent.clamp_(MIN_EXPONENT * _BITS, 0).exp2_()
    sums = _summed(counts.powers, counts.factorial_steps.mT, num_powers) @ weight
    sums[0] += 1  # the anchor's own; its offset and the logarithm of its factorial are zero
    anchor, height = torch.ones_like(q), torch.add(rising, q, alpha=0.5)
    R, V, log_rate = (t.expand_as(q).reshape(-1).index_select(0, others) for t in (R, V, log_rate))
    around = _around_modes(R, V, log_rate, power, table, num_powers)
    anchor.view(-1).index_copy_(0, others, around.anchor)
    height.view(-1).index_copy_(0, others, around.height)
    return _Slab(anchor, height, sums.index_copy_(1, others, around.sums).view(len(sums), *q.shape))


def _summed(powers: Tensor, log_factorials: Tensor, num_powers: int) -> Float[Tensor, "sums offsets"]:
    """Return what the weights are summed with."""
    if num_powers == _MOMENTS:
        return powers[:_MOMENTS]
    return torch.cat([powers, powers[:_MOMENTS] * log_factorials])


def _around_modes(R: Tensor, V: Tensor, log_rate: Tensor, power: Tensor, table: CountTable, num_powers: int) -> _Slab:
    """Weigh the counts around the mode of every entry."""
    q, mode = V.reciprocal(), _mode(R, V, log_rate, table)
    index = mode.long().flatten()
    steps, log_factorial = table.factorial_steps.index_select(1, index), table.log_factorials.index_select(0, index)
    slopes = torch.stack([(R - mode).mul_(q).add_(log_rate), q]).view(2, -1)
    exponent = torch.addmm(steps, table.forms, slopes).mul_(power * _BITS)
    weight = exponent.clamp_(MIN_EXPONENT * _BITS, MAX_EXPONENT * _BITS).exp2_()
    sums = table.powers[:num_powers] @ weight
    if num_powers == _DERIVATIVES:
        with_factorials = table.powers[:_MOMENTS] @ weight.mul_(steps) - log_factorial * sums[:_MOMENTS]
        sums = torch.cat([sums, with_factorials])
    height = (R - mode / 2).mul_(q).add_(log_rate).mul_(mode) - log_factorial.view_as(mode)
    return _Slab(mode, height, sums.view(len(sums), *R.shape))


def _mode(R: Tensor, V: Tensor, log_rate: Tensor, table: CountTable) -> Tensor:
    """Return the most likely count above zero, or one near it: the floor of the root of m + V·log m = R + ½ + V·log λ.

    Two Newton steps from an upper bound. Tempering moves no mode, and a count nearby serves, for the reach covers it.
    """
    target = torch.addcmul(R, V, log_rate).add_(0.5)
    root, shifted = torch.minimum(target, torch.maximum(R, log_rate.exp()).add_(1)), target + V
    for _ in range(2):
        at = root.clamp_(min=1)  # no count below one has a predecessor, and log m stays finite
        # Newton's at − (at − target + V·log at)/(1 + V/at), over one denominator
        root = torch.addcmul(shifted, V, at.log(), value=-1).mul_(at).div_(at + V)
    return root.floor_().nan_to_num_(1.0).clamp_(1, len(table.log_factorials) - 1)  # NaN goes on in R, not as an index


def _mix(slab: _Slab, power: Tensor) -> Moments:
    """Return the moments of slab and zero together."""
    total, first, second = slab.sums.unbind()
    offset = first / total
    var = (second / total).addcmul_(offset, offset, value=-1).clamp_min_(0)
    return _combine(_activity(slab, power), slab.anchor + offset, var)


def _activity(slab: _Slab, power: Tensor) -> Tensor:
    """Return the probability of a count above zero."""
    zero = (slab.height * (-_BITS * power)).exp2_()  # relative to the anchor; infinite where nothing is sent
    return slab.sums[0] / (slab.sums[0] + zero)


def _combine(active: Tensor, mean: Tensor, var: Tensor) -> Moments:
    """Mix the slab's moments with the zero."""
    whole = active * mean
    return Moments(whole, torch.addcmul(whole * (mean - whole), active, var), active)
