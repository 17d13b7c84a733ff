r"""Counts under a spike and a flat slab: the prior of AMP-DA and of MD-AirComp.

$$p(x) = (1-\alpha)\,\delta_0 + \alpha\,\mathcal U\{1, \dots, M\}$$
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

_MAX_REACH = 256  # counts summed either side of the nearest one, however wide the pseudo-channel


def slab_moments(
    R: Float[Tensor, "batches slots codewords"], psi: Float[Tensor, "batches slots #codewords"], largest: int
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return log-evidence against zero, mean and variance of a count in $1, \dots, M$, seen as $x + \mathcal N(0, 1/\psi)$.

    The weights $e^{-(R-m)^2\psi/2}$ are taken relative to that of the $m_0$ nearest to $R$. Away from it each is the last
    one times a ratio, and the ratio itself shrinks by $e^{-\psi}$ a step: three exponentials instead of $M$, nothing
    overflows, and weights too small to matter are left out. What a batch leaves out, no other batch decides.
    """
    m_0 = R.round().clamp_(1, largest)
    r, highest, reach = R - m_0, int(m_0.max().item()), _reach(psi, largest)
    nearest, farthest = (int(end) for end in reach.aminmax())
    shrink = torch.exp(-psi)
    # positive exponents only where there is nothing to weigh (below one, beyond M): no infinity times zero
    up_ratio = (r - 0.5).mul_(psi).clamp_max_(0).exp_()
    down_ratio = r.add_(0.5).neg_().mul_(psi).clamp_max_(0).exp_()
    up, down, room = torch.ones_like(R), torch.ones_like(R), torch.empty_like(R)
    total, first, second = torch.ones_like(R), torch.zeros_like(R), torch.zeros_like(R)
    for k in range(1, farthest + 1):
        if k > nearest:  # no further than the batch's own reach
            up.mul_(reach >= k)
            down.mul_(reach >= k)
        up.mul_(up_ratio)
        up_ratio.mul_(shrink)
        if highest + k > largest:  # nothing beyond M: a weight times zero, once and for all
            up.mul_(torch.sub(m_0, largest + 1 - k, out=room).neg_().clamp_(0, 1))
        total.add_(up)
        first.add_(up, alpha=k)
        second.add_(up, alpha=k * k)
        if k < highest:  # nothing below one, likewise
            down.mul_(down_ratio).mul_(torch.sub(m_0, k, out=room).clamp_(0, 1))
            down_ratio.mul_(shrink)
            total.add_(down)
            first.sub_(down, alpha=k)
            second.add_(down, alpha=k * k)
    offset, second = first.div_(total), second.div_(total)
    variance = second.sub_(torch.square(offset, out=room))
    evidence = total.log_().sub_(math.log(largest)).add_(torch.sub(R, m_0, alpha=0.5, out=room).mul_(m_0).mul_(psi))
    return evidence, m_0.add_(offset), variance


def _reach(psi: Tensor, largest: int) -> Float[Tensor, "batches 1 1"]:
    """Return how far from the nearest count a weight of each batch can matter: weight k is at most e^(-k(k-1)ψ/2)."""
    negligible = 4 - math.log(torch.finfo(psi.dtype).eps)  # a fiftieth of what the sum can hold
    widest = 1 / psi.amin((1, 2), keepdim=True)
    return (0.5 + (0.25 + 2 * negligible * widest).sqrt()).ceil().clamp(max=min(largest - 1, _MAX_REACH))


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
