r"""Estimates the type of $K$ devices, how many have each of $q$ levels, from the sum of their points with noise.

A device has level $j$ with probability $\pi_j$, so a type $n$ has the multinomial prior $K!\prod_j \pi_j^{n_j}/n_j!$. The sum
is $y = \sum_j n_j x_j$ with Gaussian noise of the same variance on every axis. With two or three levels the most probable
type is the nearest point of a lattice, weighed by that prior.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

CHUNK = 1 << 22
"""Pairs of a sum and a type that are compared at a time: 16 MB a copy."""
CERTAIN = 1e-6
"""The least variance of the noise, where points are one apart on average: without noise the nearest type has all of the
posterior."""


def types(levels: int, devices: int) -> Int[Tensor, "types levels"]:
    """Return how many devices may have each level.

    >>> types(2, 2).tolist()
    [[0, 2], [1, 1], [2, 0]]
    """
    if levels == 1:
        return torch.tensor([[devices]])
    return torch.cat(
        [
            torch.nn.functional.pad(types(levels - 1, devices - first), (1, 0), value=first)
            for first in range(devices + 1)
        ]
    )


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
    sums = known @ points.to(heard)
    log_prior = (known * prior.clamp(min=1e-30).log().to(heard) - torch.lgamma(known + 1)).sum(dim=1)
    most_probable, mean = [], []
    for some in heard.split(max(CHUNK // len(possible), 1)):
        # |y − s|² without |y|², which all types share: one product in place of a difference for every pair and axis
        apart = sums.square().sum(dim=1) - 2 * some @ sums.T
        score = log_prior - apart / (2 * max(noise_var, CERTAIN))
        most_probable.append(possible.to(heard.device)[score.argmax(dim=1)])
        mean.append(score.softmax(dim=1) @ known)
    return torch.cat(most_probable), torch.cat(mean)


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
