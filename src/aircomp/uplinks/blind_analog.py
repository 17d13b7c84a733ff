r"""Analog transmission to many antennas, without any channel knowledge at the devices (composite pilot).

    devices:      messages and pilots, as analog transmission sends them (`uplinks/analog.py`), in phases that nobody knows
    base station: pilots of a block ──► sum of all gains h̄ on every antenna ──► h̄ᴴ y / N_r ──► as if it had arrived in phase

Device $k$ is then heard with $g_k = \bar h^H h_k / N_r$, of mean one and variance $K/N_r$ in Rayleigh fading. The pilots,
combined in the same way, tell $\sum_k g_k$, so the result is a mean with the weights $g_k$: right where devices agree. Of
updates with the correlation $r$ between devices the sum has the relative error $(K/N_r)/(1 + (K-1)r)$, also without noise;
quadrature errors, about half of it, are filtered out where a slot has fewer numbers than uses.
"""

import torch
from jaxtyping import Complex, Inexact
from torch import Tensor

from aircomp.channel.base import AtReceiver
from aircomp.common.packing import pack, unpack
from aircomp.encode.carrier import Air
from aircomp.encode.pilots import pilot_sequence
from aircomp.errors import ConfigError
from aircomp.uplinks.analog import AnalogUplink
from aircomp.uplinks.base import Announced, Memory, Relay, Sent
from aircomp.uplinks.outputs import Mean

NAME = "blind-analog"


class BlindAnalogUplink(Relay):
    """Analog transmission behind maximum-ratio combining by a pilot that all devices share.

    Args:
        link: What devices send.
    """

    name = NAME
    offers = Mean

    def __init__(self, link: AnalogUplink):
        super().__init__(link)
        self.side_information = link.side_information

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], announced: Announced, csi: AtReceiver
    ) -> tuple[Mean, Memory]:
        """Combine the antennas block by block, and hear the rest as the link does."""
        air: Air = announced.kept.carrier.air
        uses, packed = received.shape[2], not received.is_complex()
        pairs, sequence = received, pilot_sequence(uses).to(received)
        if packed:
            pairs, sequence = pack(received), pack(sequence)
        combined = torch.cat(
            [_combined(pairs[:, rows], sequence, _within(air, rows)) for rows in csi.slot_blocks(air.slots, air.uses)]
        )
        return self.link.decode((unpack(combined, uses) if packed else combined)[None], announced, csi)

    def diagnose(self, sent: Sent, announced: Announced, output: Mean) -> dict[str, float]:
        """Compare with the mean of what devices sent."""
        return self.link.diagnose(sent, announced, output)


def _within(air: Air, rows: slice) -> Tensor:
    """Return the places of a block's pilots, counted in it.

    Raises:
        ConfigError: If it has none.
    """
    places = air.places[(air.places >= rows.start) & (air.places < rows.stop)] - rows.start
    if not len(places):
        raise ConfigError(
            f"{NAME} needs a pilot in every coherence block, but {len(air.places)} pilots leave one without; expected more "
            "uplink.pilots, or longer blocks"
        )
    return places


def _combined(
    block: Complex[Tensor, "antennas slots pairs"], sequence: Complex[Tensor, " pairs"], places: Tensor
) -> Complex[Tensor, "slots pairs"]:
    """Weigh the antennas by the sum of gains that the pilots tell."""
    places = places.to(block.device)
    pilots = block[:, places]
    total = (pilots @ sequence.conj()).mean(dim=1)  # the sequence has energy one
    combined = torch.einsum("a,asp->sp", total.conj(), block) / len(block)
    # the noise of the pilots is in the weights, too, and its square would count as devices
    rest = (pilots - total[:, None, None] * sequence).abs().square().sum()
    noise = rest / (len(block) * max(pilots[0].numel() - 1, 1))
    combined[places] -= noise / len(places) * sequence
    return combined
