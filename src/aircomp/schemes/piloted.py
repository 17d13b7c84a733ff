"""What schemes with pilots among their slots share: the round that they plan, and what its pilots tell."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.channel.base import AtReceiver
from aircomp.decoders.estimate.heard_pilots import PilotEstimate, hear_pilots
from aircomp.encode.carrier import Air, Carrier, plan_air
from aircomp.encode.pilots import pilot_sequence
from aircomp.quantize.fragment import num_slots
from aircomp.schemes.base import NOISE_VAR, NUM_DEVICES, Memory, SchemeContext
from aircomp.schemes.settings import PilotedSettings


def plan_round(num_params: int, settings: PilotedSettings, context: SchemeContext) -> Air:
    """Return the slots that the digital link has for an update, with pilots in the place of some; both sides know them.

    Args:
        num_params: Parameters of the update.
        settings: How many of them the digital link puts into a slot, uses of a slot, slots with pilots.
        context: What the link is made for.
    """
    slots = num_slots(num_params, settings.fragment_length)
    return plan_air(slots, settings.codeword_length, pilots=settings.pilots, block_uses=context.block_uses)


def carrier_of(scheme: Any, air: Air, numbers: int, together: int = 1) -> Carrier:
    """Return what puts so many numbers into the slots of a round.

    Args:
        scheme: One with a rotation, a context, and `PilotedSettings`.
        air: The slots of the round.
        numbers: How many a device sends.
        together: How many of them side by side make a value.
    """
    mixed_by = scheme.context.seed if scheme.settings.interleave else None
    return Carrier(air, numbers, scheme.rotation, mixed_by, together)


def hear_devices(heard: Float[Tensor, "slots uses"], air: Air, csi: AtReceiver) -> PilotEstimate:
    """Return what the pilots of every coherence block tell."""
    return hear_pilots(heard, pilot_sequence(air.uses), air.places, csi.slot_blocks(air.slots, air.uses))


def remember(told: PilotEstimate) -> Memory:
    """Return what the next round may depend on: the noise, and how many devices sent."""
    return {
        NOISE_VAR: torch.tensor(told.noise_var, dtype=torch.float64),
        NUM_DEVICES: torch.tensor(told.num_active, dtype=torch.float64),
    }
