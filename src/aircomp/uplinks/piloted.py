"""What schemes with pilots among their slots share: the round that they plan, and what its pilots tell."""

from jaxtyping import Float
from torch import Tensor

from aircomp.channel.base import AtReceiver
from aircomp.decode.heard_pilots import PilotEstimate, hear_pilots
from aircomp.encode.carrier import Air, plan_air
from aircomp.encode.pilots import pilot_sequence
from aircomp.errors import ConfigError
from aircomp.quantize.fragment import num_slots
from aircomp.uplinks.base import UplinkContext


def check_pilots(name: str, pilots: int | None, told: str = "the number of devices") -> None:
    """Refuse to do without pilots.

    Args:
        name: The scheme.
        pilots: How many slots carry pilots; None: `plan_round` decides.
        told: What the scheme learns from them.

    Raises:
        ConfigError: If there are none.
    """
    if pilots == 0:
        raise ConfigError(f"uplink.pilots = 0: {name} learns {told} from pilots; expected at least 1")


def plan_round(num_params: int, fragment_length: int, uses: int, pilots: int | None, context: UplinkContext) -> Air:
    """Return the slots that the digital link has for an update, with pilots in the place of some.

    Args:
        num_params: Parameters of the update.
        fragment_length: Parameters that the digital link puts into a slot.
        uses: Channel uses of a slot.
        pilots: How many slots carry pilots; None: `plan_air` decides.
        context: What the link is made for.
    """
    return plan_air(num_slots(num_params, fragment_length), uses, pilots=pilots, block_uses=context.block_uses)


def hear_devices(heard: Float[Tensor, "slots uses"], air: Air, csi: AtReceiver) -> PilotEstimate:
    """Return what the pilots of every coherence block tell."""
    return hear_pilots(heard, pilot_sequence(air.uses), air.places, csi.slot_blocks(air.slots, air.uses))
