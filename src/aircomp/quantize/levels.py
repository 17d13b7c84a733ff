r"""Scalar quantisation to whole numbers.

A parameter $s$ of a layer with the limit $c$ becomes $a = \lfloor (s/c + 1)(n - 1)/2 + u \rfloor$, clipped to the range from
$0$ to $n - 1$.

The dither $u$ is uniform between 0 and 1. Everybody knows it, so the receiver subtracts it again. The error is then uniform
and does not depend on $s$ (subtractive dither, Roberts 1962).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Real
from torch import Tensor

SMALLEST = 1e-30
"""The limit of a layer without updates."""
LEAST_ENERGY = 1e-4
"""The least energy of a layer, over the mean: a layer without updates is not sent infinitely loud."""


def layer_means(values: Float[Tensor, " params"], layers: Int[Tensor, " params"]) -> Float[Tensor, " layers"]:
    """Return the mean over the parameters of every layer."""
    number = int(layers.max()) + 1 if len(layers) else 0
    sums = values.new_zeros(number).index_add_(0, layers, values)
    return sums / torch.bincount(layers, minlength=number).clamp(min=1)


def layer_scales(values: Float[Tensor, " params"], layers: Int[Tensor, " params"]) -> Float[Tensor, " layers"]:
    """Return the root mean square of every layer."""
    return layer_means(values.double().square(), layers).sqrt().to(values)


def layer_gains(values: Float[Tensor, " params"], layers: Int[Tensor, " params"]) -> Float[Tensor, " layers"]:
    """Return how loud analog schemes send every layer: its energy to the power of -1/4 (`schemes/analog.py` says why)."""
    energy = layer_means(values.double().square(), layers)
    least = LEAST_ENERGY * float(energy[layers].mean())
    return energy.clamp(min=least).pow(-0.25) if least > 0 else torch.ones_like(energy)


def layer_energies(gains: Float[Tensor, " slots"]) -> Float[Tensor, " slots"]:
    """Return the logarithm of the energy with which the layer of each slot is sent, over the mean, as its gain tells it."""
    return -2 * gains.log() - gains.double().pow(-2).mean().log().to(gains)


def nearest_level(values: Float[Tensor, "*batch params"], number: int) -> Int[Tensor, "*batch params"]:
    """Return the nearest of so many levels, which lie evenly from -1 to 1.

    >>> nearest_level(torch.tensor([-2.0, 0.1, 0.9]), 3).tolist()
    [0, 1, 2]
    """
    return ((values + 1) * ((number - 1) / 2)).round().clamp(0, number - 1).long()


@dataclass(frozen=True)
class Levels:
    """A uniform quantiser for every layer."""

    count: int
    """How many whole numbers there are."""
    scales: Float[Tensor, " layers"]
    """The largest absolute value of each layer."""
    layers: Int[Tensor, " params"]
    dither: Float[Tensor, " params"]

    @property
    def last(self) -> int:
        """The largest whole number."""
        return self.count - 1

    @property
    def limits(self) -> Float[Tensor, " params"]:
        """The largest absolute value of each parameter."""
        return self.scales.clamp(min=SMALLEST)[self.layers]

    def quantize(self, values: Float[Tensor, "*batch params"]) -> Int[Tensor, "*batch params"]:
        """Return whole numbers."""
        exact = ((values / self.limits).double() + 1) * (self.last / 2)
        return (exact + self.dither).floor().clamp(0, self.last).long()

    def values(self, whole: Real[Tensor, "*batch params"]) -> Float[Tensor, "*batch params"]:
        """Return what whole numbers, or means of them, stand for."""
        exact = whole.double() + 0.5 - self.dither
        return (exact * (2 / self.last) - 1).to(self.scales) * self.limits
