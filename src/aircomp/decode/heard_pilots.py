"""What shared pilots tell: how many devices sent them, and how much noise there is."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from aircomp.decode.base import MAX_DEVICES


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
    in_slots = each.mean().expand(len(received)).clone()
    for rows in blocks:
        first, last, _ = rows.indices(len(received))
        within = (places >= first) & (places < last)
        if within.any():
            in_slots[rows] = each[within].mean()
    in_slots = in_slots.clamp(0.0, MAX_DEVICES)
    rest = (heard - in_slots[places, None] * sent).square().sum() / max(heard.numel() - len(blocks), 1)
    error = float((rest / max(len(places), 1)).sqrt())
    return PilotEstimate(float(in_slots.mean()), float(rest), in_slots.to(received), error)


def in_phase(received: Tensor) -> Float[Tensor, "slots uses"]:
    """Return what the first antenna heard in phase: power control lets signals arrive there."""
    return received[0].real if received.is_complex() else received[0]
