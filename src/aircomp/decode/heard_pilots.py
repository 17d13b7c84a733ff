"""What shared pilots tell: how many devices sent them, and how much noise there is."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from aircomp.decode.base import MAX_DEVICES


@dataclass(frozen=True)
class PilotEstimate:
    """What the base station knows of a round from its pilots."""

    num_active: float
    """Not rounded, never negative."""
    noise_var: float
    """Per channel use."""


def hear_pilots(received: Float[Tensor, "pilots uses"], sequence: Float[Tensor, " uses"]) -> PilotEstimate:
    """Estimate the number of devices by the matched filter, and the noise by what it leaves over.

    The estimate of the number has the variance of the noise of one use, over the number of pilots.
    """
    heard, sent = received.double(), sequence.to(received).double()
    number = float((heard @ sent).mean())
    rest = (heard - number * sent).square().sum() / max(heard.numel() - 1, 1)
    return PilotEstimate(min(max(number, 0.0), MAX_DEVICES), float(rest))
