r"""Constellations of ChannelComp (Razavikia et al. 2024): points whose sum tells how many devices sent each of them.

Device $k$ has one of $q$ levels and sends its point. The sum of $K$ points is $\sum_j n_j x_j$, where the type $n$ says how
many devices have each level. Types differ by whole numbers $d$ with $\sum_j d_j = 0$, so what must be kept apart are all
$\|\sum_j d_j x_j\|$ with $\|d\|_1 \le 2K$. That is one condition for every difference of types, in place of one for every
pair of the $q^K$ inputs.

Two and three levels have a best answer, whatever the number of devices: a simplex, the ends of a line and the corners of a
triangle. Its sums lie on a lattice. Four levels do not fit into the plane as a simplex. Their points are searched for, once
for the largest number of devices, with the same result in every process; fewer devices have fewer types.
"""

from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.common import rng as rngs
from aircomp.errors import ConfigError

MOST_LEVELS, MOST_DEVICES = 4, 16
"""What constellations are searched for: more devices leave points too near to each other to be of use."""
TRIES, BEST, STEPS = 2048, 16, 60
"""Of the search: random constellations, how many are refined, and how often."""


def differences(levels: int, devices: int) -> Int[Tensor, "differences levels"]:
    """Return by what two types of the same devices may differ, each but for its sign."""
    steps = torch.cartesian_prod(*[torch.arange(-devices, devices + 1)] * (levels - 1)).reshape(-1, levels - 1)
    whole = torch.cat([steps, -steps.sum(dim=1, keepdim=True)], dim=1)
    half = whole[len(whole) // 2 + 1 :]  # in the order of the product the other half has the other signs
    return half[half.abs().sum(dim=1) <= 2 * devices]


def least_distance(points: Float[Tensor, "*tries levels axes"], devices: int) -> Float[Tensor, " *tries"]:
    """Return how near the sums of two types come to each other."""
    apart = differences(points.shape[-2], devices).to(points) @ points
    return apart.square().sum(dim=-1).amin(dim=-1).sqrt()


@lru_cache
def constellation(levels: int, devices: int) -> Float[Tensor, "levels axes"]:
    """Return points of mean zero and mean energy one, one for each level.

    Args:
        levels: How many.
        devices: The most that send at once.

    Raises:
        ConfigError: If there are too many devices for so many levels.
    """
    if levels == MOST_LEVELS and devices > MOST_DEVICES:
        raise ConfigError(
            f"uplink.channelcomp.devices = {devices}: {MOST_LEVELS} levels have constellations for at most {MOST_DEVICES} "
            "devices; use 2 or 3 levels"
        )
    if levels == 2:
        return torch.tensor([[-1.0], [1.0]])
    if levels == 3:
        turns = 2 * torch.pi * torch.arange(3) / 3
        return torch.stack([turns.cos(), turns.sin()], dim=1)
    rng, step = rngs.generator(0, "constellation", levels, devices), 0.3
    best = _normal(torch.randn(TRIES, levels, 2, generator=rng))
    for _ in range(STEPS):
        best = best[least_distance(best, devices).topk(min(BEST, len(best))).indices]
        moved = best[:, None] + step * torch.randn(BEST, BEST, levels, 2, generator=rng)
        best, step = torch.cat([best, _normal(moved.flatten(0, 1))]), 0.9 * step
    return best[least_distance(best, devices).argmax()]


def _normal(points: Float[Tensor, "*tries levels axes"]) -> Float[Tensor, "*tries levels axes"]:
    centred = points - points.mean(dim=-2, keepdim=True)
    return centred / centred.square().sum(dim=-1, keepdim=True).mean(dim=-2, keepdim=True).sqrt()
