r"""Estimates the type of $K$ devices, how many have each of $q$ levels, from the sum of their points with noise.

A device has level $j$ with probability $\pi_j$, so a type $n$ has the multinomial prior $K!\prod_j \pi_j^{n_j}/n_j!$. The sum
is $y = \sum_j n_j x_j$ with Gaussian noise of the same variance on every axis. With two or three levels the most probable
type is the nearest point of a lattice, weighed by that prior.
"""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.common.multisets import types
from aircomp.decoders.digit_sums import estimate_sums, sum_prior

CHUNK = 1 << 22
"""Pairs of a sum and a type that are compared at a time: 16 MB a copy."""
CERTAIN = 1e-6
"""The least variance of the noise, where points are one apart on average: without noise the nearest type has all of the
posterior."""


def estimate_types(
    heard: Float[Tensor, "numbers axes"],
    noise_var: float,
    points: Float[Tensor, "levels axes"],
    prior: Float[Tensor, " levels"],
    possible: Int[Tensor, "types levels"],
) -> tuple[Int[Tensor, "numbers levels"], Float[Tensor, "numbers levels"]]:
    """Return the most probable types, and the means of the posterior.

    Args:
        heard: Sums with noise.
        noise_var: The variance of the noise on one axis.
        points: What a device of each level sends.
        prior: How often a device has each level.
        possible: All types of these devices.
    """
    known = possible.to(heard)
    most_probable, mean = [], []
    for score in _scores(heard, noise_var, points, prior, known):
        most_probable.append(possible.to(heard.device)[score.argmax(dim=1)])
        mean.append(score.softmax(dim=1) @ known)
    return torch.cat(most_probable), torch.cat(mean)


def _scores(
    heard: Float[Tensor, "numbers axes"],
    noise_var: float,
    points: Float[Tensor, "levels axes"],
    prior: Float[Tensor, " levels"],
    known: Float[Tensor, "types levels"],
) -> Iterator[Tensor]:
    """Give the logarithms of the posterior of all types, but for a constant, some sums at a time."""
    sums = known @ points.to(heard)
    log_prior = (known * prior.clamp(min=1e-30).log().to(heard) - torch.lgamma(known + 1)).sum(dim=1)
    for some in heard.split(max(CHUNK // len(known), 1)):
        # |y − s|² without |y|², which all types share: one product in place of a difference for every pair and axis
        apart = sums.square().sum(dim=1) - 2 * some @ sums.T
        yield log_prior - apart / (2 * max(noise_var, CERTAIN))


def estimate_function(
    heard: Float[Tensor, "numbers axes"],
    noise_var: float,
    points: Float[Tensor, "levels axes"],
    prior: Float[Tensor, " levels"],
    devices: Int[Tensor, " numbers"],
    function: Callable[[Tensor], Tensor],
) -> Float[Tensor, " numbers"]:
    """Return the posterior mean of a function of types, where every sum has a number of devices of its own; zero for none.

    Args:
        heard: Sums with noise.
        noise_var: The variance of the noise on one axis.
        points: What a device of each level sends.
        prior: How often a device has each level.
        devices: How many send each sum.
        function: Of types, one a row.
    """
    found = heard.new_zeros(len(heard))
    for number in devices.unique().tolist():
        if number > 0:
            possible, some = types(len(points), number), devices == number
            values = function(possible.double()).to(heard)
            scores = _scores(heard[some], noise_var, points, prior, possible.to(heard))
            found[some] = torch.cat([score.softmax(dim=1) @ values for score in scores])
    return found


def estimate_mean(
    heard: Float[Tensor, "numbers 1"],
    noise_var: float,
    points: Float[Tensor, "levels 1"],
    prior: Float[Tensor, " levels"],
    devices: Int[Tensor, " numbers"],
) -> Float[Tensor, " numbers"]:
    """Return the posterior mean of the mean level, from -1 to 1, for points in equal steps; zero where nobody sends."""
    found, (first, second), last = heard.new_zeros(len(heard)), points[:2, 0].tolist(), len(points) - 1
    for number in devices.unique().tolist():
        if number > 0:
            some = devices == number
            steps = (heard[some, 0] - number * first) / (second - first)
            sums = estimate_sums(steps, noise_var / (second - first) ** 2, sum_prior(prior, number), "mean")
            found[some] = sums * (2 / (last * number)) - 1
    return found


def count_levels(
    heard: Float[Tensor, "numbers axes"],
    noise_var: float,
    points: Float[Tensor, "levels axes"],
    prior: Float[Tensor, " levels"],
    devices: Int[Tensor, " numbers"],
) -> tuple[Int[Tensor, "numbers levels"], Float[Tensor, "numbers levels"]]:
    """Return the most probable types and the means of the posterior, where every sum has a number of devices of its own."""
    counts = torch.zeros(len(heard), len(points), dtype=torch.int64, device=heard.device)
    soft = torch.zeros_like(counts, dtype=heard.dtype)
    for number in devices.unique().tolist():
        some = devices == number
        counts[some], soft[some] = estimate_types(heard[some], noise_var, points, prior, types(len(points), number))
    return counts, soft
