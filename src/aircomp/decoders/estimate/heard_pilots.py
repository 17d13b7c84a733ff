"""What shared pilots tell: how many devices sent them, and how much noise there is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.decoders.base import MAX_DEVICES, Decoded

DEVIATIONS = 4.0
"""Standard errors by which a decoder's noise may exceed that of pilots …"""
MUCH_NOISE = 1.3
"""… and so many times that of pilots it may be besides: so much more does not harm (docs/notebook/2026-11-18-rate.md)."""


@dataclass(frozen=True)
class PilotEstimate:
    """What the base station knows of a round from its pilots."""

    num_active: float
    """Not rounded, never negative; the mean over the slots of the round."""
    noise_var: float
    """Per channel use."""
    in_slots: Float[Tensor, " slots"]
    """The number of every slot: in each coherence block others may be silent."""
    num_active_error: float
    """Standard error of the number where all slots have the same."""
    noise_error: float = 0.0
    """Standard error of the noise variance."""


def is_less_noise(pilot_noise: tuple[float, float] | None, noise_var: float) -> bool:
    """Whether the noise that a decoder found is more than pilots allow: it took its errors for noise.

    Args:
        pilot_noise: The noise variance by pilots, and its standard error; None: there are none.
        noise_var: What the decoder found.
    """
    if pilot_noise is None:
        return False
    variance, error = pilot_noise
    return noise_var > max(MUCH_NOISE * variance, variance + DEVIATIONS * error)


def hear_pilots(
    received: Float[Tensor, "slots uses"],
    sequence: Float[Tensor, " uses"],
    places: Int[Tensor, " pilots"],
    blocks: Sequence[slice] = (slice(None),),
) -> PilotEstimate:
    """Estimate the number of devices by the matched filter, and the noise by what it leaves over.

    The estimate of the number in a block has the variance of the noise of one use, over the number of its pilots. A block
    without pilots is taken to have as many devices as the others.

    Args:
        received: All slots of the round.
        sequence: The pilot.
        places: The slots that carry it, ascending.
        blocks: The slots of every coherence block.
    """
    heard, sent = received[places].double(), sequence.to(received).double()
    each, places = heard @ sent, places.to(received.device)
    in_slots, fitted = each.mean().expand(len(received)).clone(), 0
    for rows in blocks:
        first, last, _ = rows.indices(len(received))
        within = (places >= first) & (places < last)
        if within.any():
            in_slots[rows] = each[within].mean()
            fitted += 1
    in_slots = in_slots.clamp(0.0, MAX_DEVICES)
    free = max(heard.numel() - fitted, 1)
    rest = (heard - in_slots[places, None] * sent).square().sum() / free
    error = float((rest / max(len(places), 1)).sqrt())
    noise_error = float(rest) * math.sqrt(2 / free)
    return PilotEstimate(float(in_slots.mean()), float(rest), in_slots.to(received), error, noise_error)


def nearer(
    received: Float[Tensor, "slots uses"],
    codebook: Float[Tensor, "codewords uses"],
    first: Decoded,
    second: Decoded,
) -> Decoded:
    """Return in every slot the counts of two decodings that explain more of it, and all else of the second.

    Told too much noise message passing leaves counts open, told the right one it explodes in some slots: both show in what
    the soft counts leave of the signal.
    """

    def left(decoded: Decoded) -> Float[Tensor, "slots 1"]:
        return (received - decoded.mean.to(received) @ codebook.to(received)).square().sum(1, keepdim=True)

    keep = left(first) < left(second)
    counts, mean = torch.where(keep, first.counts, second.counts), torch.where(keep, first.mean, second.mean)
    return replace(second, counts=counts, mean=mean)
