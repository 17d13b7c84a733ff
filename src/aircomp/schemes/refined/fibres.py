r"""How large the parameters of a round will be: a factor for every fibre of a tensor, from its own update and rounds before.

    own update, energies heard before ──► log of the mean over every tensor and fibre ──► · trust ──► log-variances
    energies heard in this round ──► trust for the next round

A fibre is a row, a column or a place of a kernel: all entries of a tensor with one index fixed. The logarithm of a
parameter's variance is a sum of features with weights τ, the *trust*: for each of the two sources the log-mean of the tensor,
and those of its fibres over that of the tensor. The sums of both are announced, one number for every tensor and fibre.

Analog transmission with gains $g_i^2 = \hat v_i^{-1/2}$ of parameters with variances $v_i$ leaves an error proportional to

$$\sum_i v_i e^{-\tau\cdot f_i/2} \cdot \sum_i e^{\tau\cdot f_i/2},$$

whose logarithm is convex in τ. The base station hears $v_i$ with noise whose mean it can subtract. So after each round it
moves τ towards what would have been best: fibres are trusted as far as the rounds before bear out. Every weight stays between
zero and one, because a feature is itself the logarithm of a variance: in much noise the best fit may lie far outside.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

AXES = 3
"""Of a tensor: outputs, inputs, and all places of a kernel as one."""
SOURCES = 2
"""The own update, and what was heard before."""
FEATURES = SOURCES * (1 + AXES)
OWN_ALONE = (1.0, 0.5, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0)
"""The trust of a round that nothing was heard before."""
AT_FIRST = (0.5, 0.4, 0.4, 0.4, 0.5, 0.4, 0.4, 0.4)
"""The trust that the first rounds begin with."""
LEAST_TENSOR, LEAST_FIBRE = 1e-5, 1e-3
"""The least mean of a tensor over that of all, and of a fibre over that of its tensor: none has none."""
PRIOR_ENTRIES = 1.0
"""Entries of a tensor's mean that every fibre's mean is taken together with."""
QUIETEST = 0.5
"""The least energy of a parameter over that without a level: what is never heard could not be learnt about."""
HALVINGS = 60
"""Of the interval of the level."""
RIDGE, RIDGE_OF_NOISE = 0.01, 20.0
"""What holds the trust back: always, and times the relative variance of the energies' sum."""
STEPS, LONGEST_STEP = 8, 0.5
"""Newton steps of a round, and the most that a weight moves in each."""


def axes_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the axes of a tensor along which it has fibres: at most three, the places of a kernel as one.

    >>> axes_of((32, 16, 3, 3)), axes_of((32,))
    ((32, 16, 9), (32,))
    """
    return (*shape[:2], math.prod(shape[2:])) if len(shape) > 2 else tuple(shape)


def _told_axes(axes: tuple[int, ...]) -> list[int]:
    """Return the axes whose fibres have factors: more than one fibre, and more than one entry in each."""
    return [axis for axis, length in enumerate(axes) if 1 < length < math.prod(axes)]


def fibre_means(energies: Float[Tensor, " params"], shapes: Sequence[Sequence[int]]) -> Float[Tensor, "factors 4"]:
    """Return the features of every factor: for that of a tensor in the first column, for fibres in the column of their axis.

    Args:
        energies: Squares of parameters; estimates of some may be negative.
        shapes: Of the model's tensors, in order.
    """
    overall = float(energies.double().mean()) if energies.numel() else 0.0
    found, start = [], 0
    for axes in map(axes_of, shapes):
        size = math.prod(axes)
        block = energies[start : start + size].double().view(axes)
        start += size
        mean = max(float(block.mean()), LEAST_TENSOR * overall) if size else overall
        found.append(_feature(torch.tensor([math.log(mean / overall) if overall > 0 else 0.0]), 0))
        for axis in _told_axes(axes):
            others = [other for other in range(len(axes)) if other != axis]
            entries = size // axes[axis]
            fibres = (block.mean(dim=others) * entries + PRIOR_ENTRIES * mean) / (entries + PRIOR_ENTRIES)
            relative = fibres / mean if mean > 0 else torch.ones_like(fibres)
            found.append(_feature(relative.clamp(min=LEAST_FIBRE).log(), 1 + axis))
    return torch.cat(found)


def _feature(values: Float[Tensor, " n"], column: int) -> Float[Tensor, "n 4"]:
    rows = torch.zeros(len(values), 1 + AXES, dtype=torch.float64, device=values.device)
    rows[:, column] = values
    return rows


def spread(
    factors: Float[Tensor, "factors columns"], shapes: Sequence[Sequence[int]]
) -> Float[Tensor, "params columns"]:
    """Add the factors of its tensor and fibres up for every parameter."""
    found, start = [], 0
    for axes in map(axes_of, shapes):
        total = factors[start].expand(*axes, -1).clone()
        start += 1
        for axis in _told_axes(axes):
            length = axes[axis]
            place = [length if other == axis else 1 for other in range(len(axes))]
            total += factors[start : start + length].view(*place, -1)
            start += length
        found.append(total.flatten(0, -2))
    return torch.cat(found) if found else factors[:0]


def loudness(sizes: Float[Tensor, " params"], level: float) -> Float[Tensor, " params"]:
    """Return the energy of every number: proportional to the deviation of its parameter, less a level.

    Args:
        sizes: Predicted deviations of parameters.
        level: As `water_level` tells it; zero leaves the least error where nothing is shrunk.
    """
    return torch.maximum(sizes - level, QUIETEST * sizes)


def water_level(sizes: Float[Tensor, " params"], signal: float) -> float:
    r"""Return the level with which posterior means of sums have the least error.

    A parameter of deviation $s$ that is sent with energy $e$ leaves $s^2/(1 + \gamma e)$, where $\gamma$ is the signal over
    the noise of a sum with energy one. The least sum of these at mean energy one is at $1 + \gamma e = s/c$ where $s > c$, so
    $e \propto s - c$ with $\gamma c$ the mean of all $\max(s - c, 0)$: water-filling, as in reverse.

    Args:
        sizes: Predicted deviations of parameters.
        signal: γ.
    """
    low, high = 0.0, float(sizes.max()) if len(sizes) else 0.0
    for _ in range(HALVINGS if signal > 0 else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if float((sizes - middle).clamp(min=0).mean()) > signal * middle else (low, middle)
    return low


def learn_trust(
    trust: Float[Tensor, " features"],
    features: Float[Tensor, "params features"],
    energies: Float[Tensor, " params"],
    noise_energies: Float[Tensor, " params"],
) -> Float[Tensor, " features"]:
    """Move the trust towards what the energies of a round bear out.

    Args:
        trust: As it was used in the round.
        features: Of the parameters that were heard.
        energies: As they were heard, without the noise's.
        noise_energies: The mean energy that noise had in each.
    """
    total = float(energies.sum())
    if total <= 0 or not math.isfinite(total):
        return trust
    shares = energies.double() / total
    doubt = float((2 * (noise_energies.double() / total).square()).sum())
    ridge = RIDGE + RIDGE_OF_NOISE * doubt
    found = trust.double().clone()
    for _ in range(STEPS):
        half = 0.5 * (features @ found)
        half = half - half.mean()
        cost, loud = shares * (-half).exp(), half.exp()
        heard = float(cost.sum())
        if heard <= 0:  # noise has more energy than was subtracted
            return trust
        cost, loud = cost / heard, loud / loud.sum()
        mean_cost, mean_loud = cost @ features, loud @ features
        slope = 0.5 * (mean_loud - mean_cost) + 2 * ridge * (found - trust)
        # of the curvature's two parts that of the loudness is certain; negative energies spoil the other
        apart = features - mean_loud
        bend = 0.25 * 2 * (apart.T * loud) @ apart + 2 * ridge * torch.eye(len(found), dtype=torch.float64).to(features)
        step = torch.linalg.solve(bend, slope)
        found = (found - step.clamp(-LONGEST_STEP, LONGEST_STEP)).clamp(0, 1)
        if float(step.abs().max()) < 1e-3:
            break
    return found if bool(found.isfinite().all()) else trust
