"""Slots that were sent several times: average the copies, and learn the noise from their differences."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

# estimates stay in this range: a decoder that leaves no noise, or only noise, must not give an infinite number
SNR_RANGE_DB = (-40.0, 80.0)


def combine(received: Float[Tensor, "copies uses"], repeat: int) -> tuple[Float[Tensor, "asked uses"], float | None]:
    """Average the copies of each slot, which lie behind each other; return the noise variance left in the averages.

    The signal is the same in all copies, so their differences are noise alone and tell its variance without decoding,
    pooled over the round. A single copy tells nothing: None.
    """
    if repeat == 1:
        return received, None
    copies = received.unflatten(0, (-1, repeat))
    combined = copies.mean(dim=1)
    if not torch.isfinite(combined).all():  # their sum is beyond the type's range
        combined = (copies / repeat).sum(dim=1)
    return combined, float(copies.double().var(dim=1).mean()) / repeat


def estimate_snr_db(combined: Float[Tensor, "asked uses"], noise_var: float, repeat: int) -> float:
    """Estimate the SNR of one channel use, before copies were averaged.

    Args:
        combined: What the decoder saw, copies averaged.
        noise_var: The noise variance in it.
        repeat: Number of copies.
    """
    power = float(combined.double().square().mean()) - noise_var
    low, high = SNR_RANGE_DB
    if power <= 0 or noise_var <= 0 or power == math.inf:
        return low if power <= 0 else high
    return min(max(10 * math.log10(power / (noise_var * repeat)), low), high)
