r"""SumComp (Razavikia, da Silva and Fischione 2025): sums of whole numbers as sums of Gaussian integers.

    whole number a = x + q y ──► point x + jy of a square of Gaussian integers (QAM) ──► the sum of points ──► Σa = φ(Σ)

The map $\varphi(x + jy) = x + q\,y$ from the Gaussian integers onto the integers keeps sums. So the sum of the devices'
points tells the sum of their numbers, and nothing is carried from one axis to the other. Both axes belong to one complex
symbol and have one scale. With `quadrature = 1` the points are those of PAM.

The base station hears $\Sigma = \sum_k (x_k + jy_k)$ with noise. The prior of $\Sigma$ is the $K$-fold convolution of the
points'
distribution over the plane, and the estimate is of the pair: in-phase and quadrature parts of a number are not independent.
Nearest Gaussian integers have the squared error

$$(1 + q^2) \cdot 2 \sum_{m \ge 1} (2m - 1)\, Q\!\Big(\frac{m - 1/2}{\sigma}\Big)$$

where no edge is near: an error of the quadrature axis counts $q$ times. The abstract names QAM and PAM, the ring of integers
and an analysis of the mean squared error; the rest is derived here (docs/paper/divergences.md).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.decoders.digit_sums import estimate_points, plane_prior
from aircomp.encode.carrier import Air
from aircomp.schemes.base import Memory, SchemeContext
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import SumCompSettings
from aircomp.schemes.whole_numbers import WholeNumbers


@scheme(
    "sumcomp",
    sends="every parameter as a Gaussian integer",
    needs="in phase",
    source="Razavikia et al. 2025",
    checked="derived",
    against="nearest points err by (1 + q²)·2Σ(2m − 1)Q((m − ½)/σ)",
)
class SumComp(WholeNumbers):
    """Numbers as points of a square, of which the sum is estimated.

    Args:
        settings: Its options.
        context: What the link is made for.
    """

    settings_class = SumCompSettings

    def __init__(self, settings: SumCompSettings, context: SchemeContext | None = None):
        self.sides = (settings.in_phase, settings.quadrature)
        super().__init__(settings, context, settings.in_phase * settings.quadrature)

    @property
    def weights(self) -> Float[Tensor, " parts"]:
        """What the axes count: the map from Gaussian integers to integers."""
        return torch.tensor([1.0, self.sides[0]], dtype=torch.float64)[: 2 if self.sides[1] > 1 else 1]

    def parts(self, whole: Int[Tensor, "*batch params"]) -> Int[Tensor, "parts *batch params"]:
        """Return the point of every number."""
        point = torch.stack([whole % self.sides[0], whole // self.sides[0]])
        return point[: len(self.weights)]

    def prior(self, own: Int[Tensor, " params"]) -> Float[Tensor, "quadrature in_phase"]:
        """Return how often each point is sent."""
        seen = torch.bincount(own, minlength=self.count).double() + 1
        return (seen / seen.sum()).unflatten(0, (self.sides[1], self.sides[0]))

    def amplitudes(
        self, prior: Float[Tensor, "quadrature in_phase"], memory: Memory, air: Air, num_params: int
    ) -> Float[Tensor, " parts"]:
        """Both axes have the same scale."""
        return torch.ones(len(self.weights), dtype=torch.float64)

    def sums(
        self,
        heard: Float[Tensor, "params parts"],
        noise_vars: Float[Tensor, " parts"],
        prior: Float[Tensor, "quadrature in_phase"],
        num_devices: int,
    ) -> Float[Tensor, "params parts"]:
        """Estimate every sum of points."""
        of_sum = plane_prior(prior, num_devices)
        return estimate_points(heard, float(noise_vars[0]), of_sum, self.settings.estimate)
