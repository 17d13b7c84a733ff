r"""Bit-slicing (Liu, Gong and Huang 2025): slices of a number are sent each by itself, those of high significance louder.

    whole number a = Σ qⁱ aᵢ ──► slices aᵢ of log₂ q bits, the most significant first, each with an energy of its own
    base station: sums of slices ──► posterior mean or MAP ──► Σ qⁱ ΣₖaᵢₖK⁻¹

A wrong sum of the first of $D$ slices costs $q^{2(D-1)}$ times the squared error of one of the last. The base station
knows the noise and the number of devices of the last round. It divides the energy of a parameter into `UNITS`, gives
slice $i$ the share $u_i$, and announces the shares with the least

$$\sum_i q^{2i} e_i(\sigma^2 / u_i), \qquad e_i(\nu) = \mathbb{E}[\operatorname{Var}(t_i \mid t_i + n)]$$

where $t_i$ is the sum of a slice over all devices, and $n$ noise of the variance $\nu$. All divisions are looked at, by
dynamic programming. A slice without energy is not sent, and its mean stands in. All slices have the same energy in the
first round. A share of the energy is worth as much as the same share of channel uses, so this covers repetition too.

The abstract names slices, MAP detection that beats maximum likelihood, and awareness of bits' importance; the rest is derived
here (docs/paper/divergences.md).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.decoders.digit_sums import estimate_sums, sum_prior
from aircomp.decoders.lattice_sums import uncertainty
from aircomp.encode.carrier import Air
from aircomp.schemes.base import NOISE_VAR, NUM_DEVICES, Memory, SchemeContext, remembered
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import BitSlicingSettings
from aircomp.schemes.whole_numbers import WholeNumbers

UNITS = 48
"""Into how many equal shares the energy of a parameter is divided."""


@scheme(
    "bit-slicing",
    sends="slices of bits of every parameter",
    needs="in phase",
    source="Liu et al. 2025",
    checked="derived",
    against="no other division of the energy has less error; MAP errs as shifted thresholds say",
)
class BitSlicing(WholeNumbers):
    """Slices of few bits each, protected by their significance.

    Args:
        settings: Its options.
        context: What the link is made for.
    """

    settings_class = BitSlicingSettings

    def __init__(self, settings: BitSlicingSettings, context: SchemeContext | None = None):
        super().__init__(settings, context, settings.base**settings.number)
        self.base, self.slices, self.protect = settings.base, settings.number, settings.protect

    @property
    def weights(self) -> Float[Tensor, " parts"]:
        """Powers of the base."""
        return self.base ** torch.arange(self.slices - 1, -1, -1, dtype=torch.float64)

    def parts(self, whole: Int[Tensor, "*batch params"]) -> Int[Tensor, "parts *batch params"]:
        """Return the digits, the most significant first."""
        return torch.stack([whole // self.base**i % self.base for i in reversed(range(self.slices))])

    def prior(self, own: Int[Tensor, " params"]) -> Float[Tensor, "parts base"]:
        """Return how often each digit has each value."""
        seen = torch.stack([torch.bincount(part, minlength=self.base) + 1 for part in self.parts(own)]).double()
        return seen / seen.sum(dim=1, keepdim=True)

    def amplitudes(
        self, prior: Float[Tensor, "parts base"], memory: Memory, air: Air, num_params: int
    ) -> Float[Tensor, " parts"]:
        """Return the amplitudes of the shares that leave the least error for the noise of the last round."""
        noise_var, devices = remembered(memory, NOISE_VAR), remembered(memory, NUM_DEVICES)
        values = torch.arange(self.base, dtype=torch.float64)
        variances = (prior @ values.square() - (prior @ values).square()).cpu()
        if not self.protect or noise_var is None or not devices or round(devices) < 1:
            return torch.ones(self.slices, dtype=torch.float64)
        per_slot = max(-(-self.slices * num_params // len(air.rows)), 1)
        noise = noise_var * per_slot / self.slices  # over the energy of a parameter, with slots of energy one
        shares = share_energy(prior.cpu(), self.weights, noise, round(devices))
        return (shares / variances.clamp(min=1e-12)).sqrt()

    def sums(
        self,
        heard: Float[Tensor, "params parts"],
        noise_vars: Float[Tensor, " parts"],
        prior: Float[Tensor, "parts base"],
        num_devices: int,
    ) -> Float[Tensor, "params parts"]:
        """Estimate every slice by itself."""
        found = torch.zeros_like(heard)
        for i, of_slice in enumerate(prior):
            if noise_vars[i] < torch.inf:
                some = sum_prior(of_slice, num_devices)
                found[:, i] = estimate_sums(
                    heard[:, i].contiguous(), float(noise_vars[i]), some, self.settings.estimate
                )
        return found


def share_energy(
    prior: Float[Tensor, "parts base"], weights: Float[Tensor, " parts"], noise_var: float, num_devices: int
) -> Float[Tensor, " parts"]:
    """Return the share of a parameter's energy that every slice is sent with, for the least error of the sum.

    Args:
        prior: How often each slice has each value.
        weights: What slices count.
        noise_var: The variance of the noise over the energy of a parameter.
        num_devices: How many send.
    """
    values = torch.arange(prior.shape[1], dtype=torch.float64)
    variances = prior @ values.square() - (prior @ values).square()
    errors = torch.empty(len(prior), UNITS + 1, dtype=torch.float64)
    for i, of_slice in enumerate(prior):
        of_sum = sum_prior(of_slice, num_devices)
        errors[i, 0] = num_devices * variances[i]
        for units in range(1, UNITS + 1):
            noise = float(noise_var * variances[i]) * UNITS / units
            errors[i, units] = uncertainty(noise, of_sum, len(of_sum))[1]
    errors *= weights.square()[:, None]
    least, chosen = errors[0], []
    for of_slice in errors[1:]:
        # of all units of the first slices, how many the next one takes
        spent, own = torch.arange(UNITS + 1)[:, None], torch.arange(UNITS + 1)[None]
        together = torch.where(own <= spent, least[(spent - own).clamp(min=0)] + of_slice[own], torch.inf)
        least, best = together.min(dim=1)
        chosen.append(best)
    left, units = UNITS, []
    for best in reversed(chosen):
        units.append(int(best[left]))
        left -= units[-1]
    return torch.tensor([left, *reversed(units)], dtype=torch.float64) / UNITS
