"""Mean and covariance of a round's slots: all that estimates of devices, rates and noise need of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.common.threads import spread

SLOTS = 2048  # whose moments are taken at a time: they then stay in cache


@dataclass(frozen=True)
class RoundMoments:
    """All that a fit needs of a round's slots, in float64."""

    mean: Float[Tensor, " uses"]
    cov: Float[Tensor, "uses uses"]
    num_slots: int
    power: float
    """Mean square per channel use."""

    @classmethod
    def of(cls, received: Float[Tensor, "slots uses"]) -> "RoundMoments":
        """Take the moments of the slots of one round."""
        chunks, num_slots = received.detach().split(SLOTS), len(received)
        mean = _total(spread(lambda y: y.sum(0, dtype=torch.float64), chunks)) / max(1, num_slots)

        def scatter(y: Tensor) -> Tensor:
            centred = y.double() - mean
            return centred.mT @ centred

        around = _total(spread(scatter, chunks))
        power = (around.trace() / max(1, num_slots) + mean.square().sum()) / max(1, len(mean))
        return cls(mean=mean, cov=around / max(1, num_slots - 1), num_slots=num_slots, power=float(power))


def _total(parts: Sequence[Tensor]) -> Tensor:
    return reduce(torch.add, parts)
