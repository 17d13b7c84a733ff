r"""Constellations of ChannelComp (Razavikia et al. 2024): points whose sum tells a function of what devices have.

Device $k$ has one of $q$ levels and sends its point. The sum of $K$ points is $\sum_j n_j x_j$, where the type $n$ says how
many devices have each level. A symmetric function $f$ depends on the type alone. So points are sought with

$$\max_x \min_{n, n'} \frac{\|\sum_j (n_j - n'_j) x_j\|}{|f(n) - f(n')|}, \qquad \sum_j x_j = 0, \; \sum_j \|x_j\|^2 = q$$

over all pairs of types with different values. Pairs with the same difference $d = n - n'$ are one condition, with the
largest change of $f$ among them. The paper lifts the points to a matrix $X = xx^T$, which makes this a semidefinite
program but for the rank of $X$. That relaxation bounds what points can reach, and a test compares with it
(`tests/encode/test_constellation.py`).

Here the points themselves are improved from some random starts: gradient steps on a soft minimum over the conditions that
are nearest to being broken. Three cases have a best answer whatever the number of devices, which reaches the relaxation: two
levels, three levels if $f$ is the type (a simplex), and points in equal steps on a line for the mean. The result is the same
in every process.
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.common import rng as rngs
from aircomp.common.multisets import types
from aircomp.encode.settings import MOST_TYPES
from aircomp.errors import ConfigError

DRAWN, STARTS, ROUNDS, STEPS, TIGHTEST = 256, 8, 16, 30, 48
"""Of the search: random constellations, how many of them are starts, how often conditions are looked at anew, gradient steps
between, and how many conditions of each start are added."""

FUNCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda counts: counts @ torch.linspace(-1, 1, counts.shape[1], dtype=counts.dtype) / counts.sum(dim=1),
    "maximum": lambda counts: _level(counts, counts.shape[1] - 1 - (counts.flip(1) > 0).int().argmax(dim=1)),
    "median": lambda counts: (_middle(counts, 0) + _middle(counts, 1)) / 2,
    "product": lambda counts: torch.linspace(-1, 1, counts.shape[1], dtype=counts.dtype).pow(counts).prod(dim=1),
}
"""Functions of types, whose levels lie evenly from -1 to 1."""


def _level(counts: Tensor, place: Tensor) -> Tensor:
    return torch.linspace(-1, 1, counts.shape[1], dtype=counts.dtype)[place]


def _middle(counts: Tensor, upper: int) -> Tensor:
    """Return the level of the lower or the upper one of the two devices in the middle."""
    number = counts.sum(dim=1, keepdim=True)
    place = torch.div(number - 1 + upper, 2, rounding_mode="floor")
    return _level(counts, (counts.cumsum(dim=1) <= place).sum(dim=1))


def differences(
    levels: int, devices: int, function: str
) -> tuple[Int[Tensor, "differences levels"], Float[Tensor, " differences"]]:
    """Return by what two types differ, each but for its sign, and the largest change of the function with it.

    Differences that never change it are left out.

    Args:
        levels: How many.
        devices: How many send.
        function: One of `FUNCTIONS`, or `type`, which changes by one between any two types.
    """
    possible = types(levels, devices)
    first, second = torch.triu_indices(len(possible), len(possible), 1).unbind()
    if function == "type":
        change = torch.ones(len(first), dtype=torch.float64)
    else:
        value = FUNCTIONS[function](possible.double())
        change = (value[first] - value[second]).abs()
    keep = change > 1e-9
    apart, change = possible[first[keep]] - possible[second[keep]], change[keep]
    # rows of the triangle are ordered, so a difference and its opposite never both occur
    keys = (apart + devices) @ (2 * devices + 1) ** torch.arange(levels)
    _, place = keys.unique(return_inverse=True)
    number = int(place.max()) + 1
    largest = torch.zeros(number, dtype=torch.float64).scatter_reduce(0, place, change, "amax")
    found = torch.empty(number, levels, dtype=torch.int64)
    found[place] = apart
    return found, largest


@lru_cache
def constellation(levels: int, devices: int, function: str = "type") -> Float[Tensor, "levels axes"]:
    """Return points of mean zero and mean energy one, one for each level.

    Args:
        levels: How many.
        devices: The most that send at once.
        function: What their sum is to tell: `type`, or one of `FUNCTIONS`.

    Raises:
        ConfigError: If there are too many devices for so many levels.
    """
    if levels == 2 or function == "mean":
        return _normal(torch.arange(levels, dtype=torch.float64)[:, None]).float()
    if function == "type" and levels == 3:
        turns = 2 * torch.pi * torch.arange(3) / 3
        return torch.stack([turns.cos(), turns.sin()], dim=1)
    check_types(levels, devices)
    return search(
        *differences(levels, devices, function), rngs.fixed_generator("constellation", levels, devices)
    ).float()


def check_types(levels: int, devices: int) -> None:
    """Refuse more types than constellations are searched for.

    Raises:
        ConfigError: If so many devices have more.
    """
    number = math.comb(devices + levels - 1, levels - 1)
    if number > MOST_TYPES:
        most = max(k for k in range(1, devices) if math.comb(k + levels - 1, levels - 1) <= MOST_TYPES)
        raise ConfigError(
            f"uplink.devices = {devices}: {levels} levels of so many devices have {number} types, and constellations are "
            f"searched for {MOST_TYPES} at most; use at most {most} devices, or fewer levels"
        )


def search(
    apart: Int[Tensor, "differences levels"], change: Float[Tensor, " differences"], rng: torch.Generator
) -> Float[Tensor, "levels 2"]:
    """Return points of mean zero and mean energy one with the largest least distance over change that was found."""
    conditions = apart.double() / change[:, None]
    levels = apart.shape[1]
    drawn = _normal(torch.randn(DRAWN, levels, 2, generator=rng, dtype=torch.float64))
    least = torch.stack([(conditions @ some).norm(dim=1).amin() for some in drawn])
    starts = drawn[least.topk(STARTS).indices]
    best, reached = _normal(starts), torch.zeros(STARTS, dtype=torch.float64)
    points, tight = best.clone().requires_grad_(), torch.empty(0, dtype=torch.int64)
    for step in range(ROUNDS):
        with torch.no_grad():
            now = _normal(points)
            length = (conditions @ now).norm(dim=2)
            least, better = length.amin(dim=1), length.amin(dim=1) > reached
            best[better], reached[better] = now[better], least[better]
            tight = torch.cat(
                [tight, length.topk(min(TIGHTEST, len(conditions)), largest=False).indices.flatten()]
            ).unique()
        optimiser = torch.optim.Adam([points], 0.05 * 0.75**step)
        for _ in range(STEPS):
            optimiser.zero_grad()
            length = (conditions[tight] @ _normal(points)).norm(dim=2)
            sharp = 10 * 1.6**step / length.detach().amin(dim=1, keepdim=True).clamp(min=1e-3)
            (torch.logsumexp(-sharp * length, dim=1) / sharp[:, 0]).sum().backward()
            optimiser.step()
    return best[reached.argmax()]


def _normal(points: Float[Tensor, "*tries levels axes"]) -> Float[Tensor, "*tries levels axes"]:
    centred = points - points.mean(dim=-2, keepdim=True)
    return centred / centred.square().sum(dim=-1, keepdim=True).mean(dim=-2, keepdim=True).sqrt()
