r"""The number of devices from a direction that all codewords have in common.

Let a vector $w$ have $\langle c_j, w\rangle = 1$ for every codeword. Then $\langle y, w\rangle$ is the number of codewords
in the slot, and so of devices, plus noise, whatever they chose. Its mean over the J slots of a round is unbiased for every
popularity, every way in which devices agree, and every number of them. Its standard error is measured with it:

$$\hat K = \tfrac1J \sum_t \langle y_t, w\rangle, \qquad
\mathrm{se}^2 = \tfrac1{J(J-1)} \sum_t \bigl(\langle y_t, w\rangle - \hat K\bigr)^2 \approx \sigma^2 \lVert w\rVert^2 / J.$$

Codewords with a share ρ of their energy in a common direction $e$ (`aircomp.encode.learned`) have $w = e/\sqrt\rho$. More
codewords than uses have no such direction by chance; the number then comes from moments
(`aircomp.decoders.estimate.round_estimate`). Fewer always have one, but a long one, by which moments are the surer; it is
not taken.

Several such numbers (pilots tell one too) are joined by their standard errors. And a number of devices is an integer: the
posterior over integers is surer than the number heard, as soon as the standard error is below half a device.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.decoders.base import MAX_DEVICES
from aircomp.decoders.estimate.moments import RoundMoments

TOLERANCE = 1e-3
"""Largest error of ⟨c, w⟩ = 1: codewords are stored in float32, and $w$ is up to a hundred times as long as they are."""
VAGUE = 1.0
"""Standard error, in devices, from which integers tell nothing more."""
BELIEVABLE = 4.0
"""Standard errors by which an integer may be off; devices whose gains differ add up to none."""


def counting_direction(codebook: Float[Tensor, "codewords uses"]) -> Float[Tensor, " uses"] | None:
    """Return the shortest $w$ with ⟨c, w⟩ = 1 for all of more codewords than uses (float64), or None if there is none."""
    if codebook.shape[0] <= codebook.shape[1]:
        return None
    rows = codebook.detach().double()
    w = torch.linalg.pinv(rows, rtol=1e-9).sum(dim=1)
    exact = bool(((rows @ w - 1).abs() <= TOLERANCE).all())
    return w if exact else None


def count_devices(seen: RoundMoments, direction: Float[Tensor, " uses"]) -> tuple[float, float]:
    """Return the number of devices and its standard error from the moments of a round of two slots or more."""
    w = direction.to(seen.mean)
    error = (w @ seen.cov @ w / seen.num_slots).clamp(min=0).sqrt()
    return min(max(float(seen.mean @ w), 0.0), MAX_DEVICES), float(error)


def join_numbers(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """Return the mean of two numbers, each weighed by its standard error, and the standard error of that mean."""
    (number, error), (other, other_error) = first, second
    weight = error**2 / (error**2 + other_error**2 + 1e-12)  # 0/0 of two that are certain
    return number + weight * (other - number), math.sqrt(weight) * other_error


def whole_devices(number: float, error: float) -> tuple[float, float]:
    r"""Return mean and standard deviation of the number of devices, knowing that it is an integer.

    $$p(k) \propto \exp\bigl(-(k - \hat K)^2 / 2\,\mathrm{se}^2\bigr), \qquad k = 0, 1, 2, \dots$$

    Where no integer is believable the number stays as it is.
    """
    if not 0 < error < VAGUE or abs(number - max(round(number), 0)) > BELIEVABLE * error:
        return number, error
    reach = math.ceil(BELIEVABLE * error) + 1
    k = torch.arange(max(0, round(number) - reach), round(number) + reach + 1, dtype=torch.float64)
    p = torch.softmax(-((k - number) / error).square() / 2, dim=0)
    mean = p @ k
    return float(mean), float((p @ (k - mean).square()).sqrt())
