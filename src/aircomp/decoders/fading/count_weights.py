"""The counts of one codeword that a receiver weighs, and how likely each is beforehand."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor

from aircomp.decoders.amp.prior import MIN_SHAPE, excess

MAX_COUNT = 32
"""Largest count of one codeword that is weighed."""
QUANTILES = 5
"""Of the power that a number of devices has together."""


def largest_count(rate: float) -> int:
    """Return a count that Poisson draws of this rate exceed once in a million times."""
    return min(MAX_COUNT, math.ceil(rate + 5 * math.sqrt(rate) + 3))


@dataclass(frozen=True)
class CountTable:
    """The numbers of devices that are weighed, and the power that each may have together."""

    counts: Float[Tensor, " rows"]
    power: Float[Tensor, " rows"]
    log_share: Float[Tensor, " rows"]

    @classmethod
    def of(cls, max_count: int, power_var: float = 0.0) -> "CountTable":
        """Build the table; without a variance a count is its power."""
        counts = torch.arange(max_count + 1.0)
        if power_var == 0:
            return cls(counts, counts, torch.zeros_like(counts))
        counts = torch.cat([counts[:1], counts[1:].repeat_interleave(QUANTILES)])
        middles = (torch.arange(QUANTILES) + 0.5).double().repeat(max_count) / QUANTILES
        law = stats.gamma(a=counts[1:].double() / power_var, scale=power_var)
        power = torch.cat([counts[:1], torch.from_numpy(law.ppf(middles)).float()])
        return cls(counts, power, torch.where(counts > 0, -math.log(QUANTILES), 0.0))

    def log_prior(
        self, rate: Float[Tensor, "#slots codewords"], agreement: float
    ) -> Float[Tensor, "#slots rows codewords"]:
        """Return the log weight of every row for every codeword beforehand."""
        m, rate = self.counts[:, None].to(rate), rate[:, None]
        if agreement == 0:
            weight = m * rate.log() - torch.lgamma(m + 1)
        else:
            spread = excess(rate[:, 0], agreement)[:, None]
            shape = (rate / spread).clamp(min=MIN_SHAPE)
            weight = torch.lgamma(shape + m) - torch.lgamma(shape) - torch.lgamma(m + 1)
            weight = weight + m * torch.log(spread / (1 + spread))
        return weight + self.log_share[:, None].to(rate)
