r"""Complement coded modulation (Wang, Yao, Xu, Shi and Huang 2025): bits of the two's complement, each as a sign.

    whole number a = −2^(B−1) b₁ + 2^(B−2) b₂ + … + b_B ──► signs 2bᵢ − 1, the first ones louder ──► sums of bits
    base station: sums of bits ──► posterior mean, or the linear estimate ──► −2^(B−1) Σₖb₁ₖ + … + Σₖb_Bₖ

The two's complement turns its sign by complementing all bits, but for half a step. So for updates as often negative as
positive every bit is one half of the time: all signs have the same distribution, of mean zero, and neither a prior nor a mean
has to be known. The sum of $K$ independent signs has the variance $K$. Received with the share $u_i$ of a parameter's
energy, in noise of variance $\nu$ over that energy, its best linear estimate errs by $K\nu/(K u_i + \nu)$, and the number by

$$\sum_i w_i^2 \frac{K \nu}{K u_i + \nu}, \qquad w_i = 2^{B-1}, \dots, 2, 1$$

in units of half a step. The shares with the least error are found by water-filling: $K u_i + \nu = w_i c$ or $u_i = 0$, with
the level $c$ at which they add up to one. In little noise each bit has half of the energy of the one before. In much noise
the last bits are not sent, and their mean of one half stands in. The base station knows noise and number of devices from the
last round; the first round has the shares for no noise.

The posterior mean, which knows that sums are binomial, errs by no more and is the default; `estimate = "lmmse"` is the
detector of the paper. Its abstract names the two's complement over several subcarriers, one distribution for all symbols, a
linear detector in closed form, uneven energies, and truncated inversion over fading, which `power.control = "inversion"` is
here. The error, the shares and the rest are derived here (docs/paper/divergences.md).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.decoders.digit_sums import estimate_sums, sum_prior
from aircomp.encode.carrier import Air
from aircomp.schemes.base import NOISE_VAR, NUM_DEVICES, Memory, SchemeContext, remembered
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import ComplementSettings
from aircomp.schemes.whole_numbers import WholeNumbers


@scheme(
    "complement-coded",
    sends="bits of the two's complement of every parameter",
    needs="in phase",
    source="Wang et al. 2025",
    checked="derived",
    against="linear estimates err by Σ4ⁱKν/(Kuᵢ + ν), and no other energies by less",
)
class ComplementCoded(WholeNumbers):
    """Bits of the two's complement, of which every sum is estimated by itself.

    Args:
        settings: Its options.
        context: What the link is made for.
    """

    settings_class = ComplementSettings

    def __init__(self, settings: ComplementSettings, context: SchemeContext | None = None):
        super().__init__(settings, context, 2**settings.bits)
        self.bits, self.offset = settings.bits, 2.0 ** (settings.bits - 1)

    @property
    def weights(self) -> Float[Tensor, " parts"]:
        """Powers of two, of which the first counts against the others."""
        weights = 2.0 ** torch.arange(self.bits - 1, -1, -1, dtype=torch.float64)
        weights[0] *= -1
        return weights

    def parts(self, whole: Int[Tensor, "*batch params"]) -> Int[Tensor, "parts *batch params"]:
        """Return the bits of the two's complement, the sign first."""
        number = whole - int(self.offset)
        return torch.stack([number >> i & 1 for i in reversed(range(self.bits))])

    def means(self, own: Int[Tensor, " params"]) -> Float[Tensor, " parts"]:
        """Every bit is one half of the time."""
        return torch.full((self.bits,), 0.5, dtype=torch.float64)

    def prior(self, own: Int[Tensor, " params"]) -> Float[Tensor, " values"]:
        """Both values of every bit are as frequent."""
        return torch.full((2,), 0.5, dtype=torch.float64)

    def amplitudes(
        self, prior: Float[Tensor, " values"], memory: Memory, air: Air, num_params: int
    ) -> Float[Tensor, " parts"]:
        """Return the amplitudes of the shares that leave the least error for the noise of the last round."""
        noise_var, devices = remembered(memory, NOISE_VAR), remembered(memory, NUM_DEVICES)
        if noise_var is None or not devices or round(devices) < 1:
            noise_var, devices = 0.0, 1.0
        noise = (
            noise_var * max(num_params, 1) / len(air.rows)
        )  # over the energy of a parameter, with slots of energy one
        return 2 * fill(self.weights.abs(), max(noise, 0.0), round(devices)).sqrt()

    def sums(
        self,
        heard: Float[Tensor, "params parts"],
        noise_vars: Float[Tensor, " parts"],
        prior: Float[Tensor, " values"],
        num_devices: int,
    ) -> Float[Tensor, "params parts"]:
        """Estimate every bit by itself."""
        found, of_sum = torch.zeros_like(heard), sum_prior(prior, num_devices)
        for i, noise_var in enumerate(noise_vars.tolist()):
            if noise_var < torch.inf:
                found[:, i] = estimate_sums(heard[:, i].contiguous(), noise_var, of_sum, self.settings.estimate)
        return found


def fill(weights: Float[Tensor, " parts"], noise_var: float, num_devices: int) -> Float[Tensor, " parts"]:
    """Return the share of a parameter's energy for every bit, for the least error of linear estimates.

    Args:
        weights: How much bits count, falling.
        noise_var: The variance of the noise over the energy of a parameter.
        num_devices: How many send.

    >>> fill(torch.tensor([4.0, 2.0, 1.0]), 0.0, 10) * 7
    tensor([4., 2., 1.])
    """
    sent = torch.arange(1, len(weights) + 1)
    levels = (num_devices + sent * noise_var) / weights.cumsum(0)  # of the water, if so many bits are sent
    number = int((weights * levels >= noise_var).sum())  # true up to the last bit that is sent
    return (weights * levels[number - 1] - noise_var).clamp(min=0) / num_devices
