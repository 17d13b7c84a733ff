r"""Noise-aware ChannelComp (Razavikia et al. 2025): constellations for the noise that there is.

    base station: noise and number of devices of the last round ──► points of this round (announced)
    devices, then base station: as `channelcomp`, with these points

ChannelComp keeps sums of points apart in proportion to how much the function changes between them, whatever the noise. Here
a pair of types counts by what it costs in this noise. Let $\pi_n$ be the probability of the type $n$, $s_n$ its sum of points
and $\sigma^2$ the noise of an axis. The posterior mean of the function $f$ errs by at most

$$\mathbb{E}[\operatorname{Var}(f \mid y)] \;\le\; \tfrac12 \sum_{n < n'} (f_n - f_{n'})^2
\sqrt{\pi_n \pi_{n'}} \; e^{-\|s_n - s_{n'}\|^2 / 8\sigma^2}$$

since a pair adds $(f_n - f_{n'})^2 \int p_n p_{n'} / p$ with $p \ge p_n + p_{n'} \ge 2\sqrt{p_n p_{n'}}$. To make the
largest term small is a problem of the least distance again, with a distance that is made for the noise:
$\|s_n - s_{n'}\|^2 / 8\sigma^2 - 2\ln|f_n - f_{n'}|$ in place of $\|s_n - s_{n'}\| / |f_n - f_{n'}|$. Gradient steps lower
the whole bound from some starts, at a mean energy of one. The bound is loose in much noise. So the result is compared with
ChannelComp's own points on fixed draws of types and noise, and is announced if it errs less. In much noise the mean wants
ChannelComp's line, and in little noise a plane, in which neighbours are further apart.

The noise is that of the last round. The first round has ChannelComp's points, and so have rounds without room for two
numbers of every parameter. The abstract names noise-tailored distances and a max-min design for Gaussian, Laplace and
heavy-tailed noise; this bound for Gaussian noise and the rest are derived here (docs/paper/divergences.md).
"""

import math
from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.common import rng as rngs
from aircomp.common.multisets import types
from aircomp.encode.carrier import Air
from aircomp.encode.constellation import FUNCTIONS, check_types, constellation
from aircomp.schemes.base import NOISE_VAR, NUM_DEVICES, Memory, SchemeContext, remembered
from aircomp.schemes.channelcomp import ChannelComp
from aircomp.schemes.outputs import Mean
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import NoiseAwareSettings

DRAWN, STEPS, RATE = 2, 40, 0.3
"""Of the descent: random starts beside the known points, gradient steps, and the first step's length over that of points."""
LOOKED_AT = 2048
"""Draws of types and noise by which designs are compared."""
LESS = 0.99
"""The most error of a design, over that of ChannelComp's points, for which it is announced."""
PARTS, LEAST_DB, MOST_DB = 32, -40, 40
"""Designs are kept for shares of levels in so many parts, and for noise in whole decibels over the energy of a point."""


@scheme(
    "channelcomp-noise-aware",
    sends="a level of every parameter, as a point for the noise of the last round",
    needs="in phase",
    source="Razavikia et al. 2025",
    checked="derived",
    against="the least error of all constellations of a grid, from all inputs",
)
class NoiseAwareChannelComp(ChannelComp):
    """Levels as points that the noise of the last round lets tell most.

    Args:
        settings: Its options.
        context: What the link is made for.
    """

    settings_class = NoiseAwareSettings
    offers = Mean

    def __init__(self, settings: NoiseAwareSettings, context: SchemeContext | None = None):
        check_types(settings.levels, settings.devices)
        super().__init__(settings, context)

    def design(self, base_update: Float[Tensor, " params"], memory: Memory, air: Air) -> Float[Tensor, "levels axes"]:
        """Return the points for the noise of the last round."""
        noise_var, devices = remembered(memory, NOISE_VAR), remembered(memory, NUM_DEVICES)
        size = base_update.numel()
        if noise_var is None or not devices or round(devices) < 1 or self.settings.levels == 2 or air.room < 2 * size:
            return self.points
        _, prior = self._seen(base_update, self._layers(size))
        noise = noise_var * max(size, 1) / len(air.rows)  # over the energy of a point, with slots of energy one
        found = points_for(
            tuple((prior * PARTS).round().clamp(min=1).int().tolist()),
            min(round(devices), self.settings.devices),
            self.settings.devices,
            self.settings.function,
            round(min(max(10 * math.log10(max(noise, 1e-30)), LEAST_DB), MOST_DB)),
        )
        return self.points if found is None else found.to(base_update)


@lru_cache
def points_for(
    shares: tuple[int, ...], devices: int, most: int, function: str, noise_db: int
) -> Float[Tensor, "levels axes"] | None:
    """Return points that err less than those of ChannelComp; None: none were found.

    Args:
        shares: How often each level occurs, but for a factor.
        devices: How many send.
        most: The devices that ChannelComp's points are for.
        function: What their sum is to tell: `type`, or one of `FUNCTIONS`.
        noise_db: The variance of the noise on an axis, in decibels over the mean energy of a point.
    """
    prior = torch.tensor(shares, dtype=torch.float64)
    prior, noise_var = prior / prior.sum(), 10 ** (noise_db / 10)
    known = constellation(len(prior), most, function).double()
    lowered = descend(known, noise_var, prior, devices, function)
    before, after = (
        expected_error(_normal(points, prior), noise_var, prior, devices, function) for points in (known, lowered)
    )
    return lowered.float() if after < LESS * before else None


def descend(
    known: Float[Tensor, "levels axes"],
    noise_var: float,
    prior: Float[Tensor, " levels"],
    devices: int,
    function: str,
) -> Float[Tensor, "levels 2"]:
    """Return the points of the plane with the smallest bound that gradient steps found, from known ones and random ones."""
    levels = len(prior)
    apart, costs = confusions(prior, devices, function)
    rng = rngs.fixed_generator("noise-aware constellation", levels, devices)
    points = torch.randn(1 + DRAWN, levels, 2, generator=rng, dtype=torch.float64)
    points[0] *= 0.1  # off the line, on which no gradient points into the plane
    points[0, :, : known.shape[1]] += _normal(known, prior)
    points, logs = _normal(points, prior), costs.log()
    for step in range(STEPS):
        sums = apart @ points
        shares = (logs - sums.square().sum(dim=2) / (8 * noise_var)).softmax(dim=1)
        downhill = apart.T @ (shares[:, :, None] * sums) / prior[:, None]  # each pair moves apart by its share
        length = (prior @ downhill.square().sum(dim=2, keepdim=True)).sqrt()[..., None]
        points = _normal(points + RATE * (1 - step / STEPS) * downhill / length.clamp(min=1e-300), prior)
    bounds = (logs - (apart @ points).square().sum(dim=2) / (8 * noise_var)).logsumexp(dim=1)
    return points[bounds.argmin()]


def confusions(
    prior: Float[Tensor, " levels"], devices: int, function: str
) -> tuple[Float[Tensor, "differences levels"], Float[Tensor, " differences"]]:
    """Return by what two types differ, each but for its sign, and what all pairs with it cost where their sums are equal."""
    possible, log_prior, values = _types(prior, devices, function)
    first, second = torch.triu_indices(len(possible), len(possible), 1).unbind()
    cost = (values[first] - values[second]).square().sum(dim=1) / 2
    cost = cost * ((log_prior[first] + log_prior[second]) / 2).exp()
    apart = possible[first] - possible[second]
    # rows of the triangle are ordered, so a difference and its opposite never both occur
    keys = (apart + devices) @ (2 * devices + 1) ** torch.arange(len(prior))
    _, place = keys.unique(return_inverse=True)
    costs = cost.new_zeros(int(place.max()) + 1).index_add_(0, place, cost)
    found = apart.new_empty(len(costs), len(prior))
    found[place] = apart
    keep = costs > 1e-12 * costs.sum()
    return found[keep].double(), costs[keep]


def expected_error(
    points: Float[Tensor, "levels axes"],
    noise_var: float,
    prior: Float[Tensor, " levels"],
    devices: int,
    function: str,
) -> float:
    """Return the mean squared error of the function's posterior mean, the mean over fixed draws."""
    possible, log_prior, values = _types(prior, devices, function)
    rng = rngs.fixed_generator("noise of constellations", devices)
    noise = noise_var**0.5 * torch.randn(LOOKED_AT, 2, generator=rng, dtype=torch.float64)[:, : points.shape[1]]
    shares = (torch.arange(LOOKED_AT, dtype=torch.float64) + 0.5) / LOOKED_AT  # as many draws of a type as it has share
    drawn = torch.searchsorted(log_prior.exp().cumsum(0), shares).clamp(max=len(possible) - 1)
    sums = possible.double() @ points
    score = log_prior - torch.cdist(sums[drawn] + noise, sums).square() / (2 * noise_var)
    posterior = score.softmax(dim=1)
    return float((posterior @ values.square() - (posterior @ values).square()).sum(dim=1).mean())


def _types(
    prior: Float[Tensor, " levels"], devices: int, function: str
) -> tuple[Int[Tensor, "types levels"], Float[Tensor, " types"], Float[Tensor, "types values"]]:
    """Return all types, the logarithms of their probabilities, and what the function makes of each."""
    possible = types(len(prior), devices)
    counts = possible.double()
    log_prior = (counts * prior.log() - torch.lgamma(counts + 1)).sum(dim=1) + math.lgamma(devices + 1)
    values = counts / devices if function == "type" else FUNCTIONS[function](counts)[:, None]
    return possible, log_prior, values


def _normal(
    points: Float[Tensor, "*tries levels axes"], prior: Float[Tensor, " levels"]
) -> Float[Tensor, "*tries levels axes"]:
    """Return points of mean zero and mean energy one, by how often they are sent."""
    centred = points - (prior @ points)[..., None, :]
    return centred / (prior @ centred.square().sum(dim=-1, keepdim=True)).sqrt()[..., None]
