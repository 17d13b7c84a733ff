r"""Analog transmission to many antennas, without any channel knowledge at the devices (composite pilot).

    devices:      messages and pilots, as analog transmission sends them (`schemes/analog.py`), in phases that nobody knows
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
from aircomp.schemes.analog import Baa
from aircomp.schemes.base import MEAN_ENERGY, Broadcast, Memory, Private, Relay, SchemeContext, Sent
from aircomp.schemes.outputs import Mean
from aircomp.schemes.piloted import plan_round
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import UncodedSettings


@scheme(
    "blind-analog",
    sends="its update, uncoded",
    needs="any, many antennas",
    source="composite pilot: Amiri et al. 2021",
    checked="recalled",
    against="the floor is (K/N_r)/(1 + (K − 1)r)",
)
class BlindAnalog(Relay):
    """Analog transmission behind maximum-ratio combining by a pilot that all devices share.

    Args:
        settings: Of what devices send.
        context: What the link is made for.
    """

    settings_class = UncodedSettings
    offers = Mean
    side_information = MEAN_ENERGY

    def __init__(self, settings: UncodedSettings, context: SchemeContext | None = None):
        super().__init__(Baa(settings, context))

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], broadcast: Broadcast, private: Private, csi: AtReceiver
    ) -> tuple[Mean, Memory]:
        """Combine the antennas block by block, and hear the rest as the link does."""
        air = plan_round(broadcast.num_params, self.link.settings, self.link.context)
        uses, packed = received.shape[2], not received.is_complex()
        pairs, sequence = received, pilot_sequence(uses).to(received)
        if packed:
            pairs, sequence = pack(received), pack(sequence)
        combined = torch.cat(
            [_combined(pairs[:, rows], sequence, _within(air, rows)) for rows in csi.slot_blocks(air.slots, air.uses)]
        )
        return self.link.decode((unpack(combined, uses) if packed else combined)[None], broadcast, private, csi)

    def diagnose(self, sent: Sent, broadcast: Broadcast, output: Mean) -> dict[str, float]:
        """Compare with the mean of what devices sent."""
        return self.link.diagnose(sent, broadcast, output)


def _within(air: Air, rows: slice) -> Tensor:
    """Return the places of a block's pilots, counted in it.

    Raises:
        ConfigError: If it has none.
    """
    places = air.places[(air.places >= rows.start) & (air.places < rows.stop)] - rows.start
    if not len(places):
        raise ConfigError(
            f"blind-analog needs a pilot in every coherence block, but {len(air.places)} pilots leave one without; expected "
            "more uplink.pilots, or longer blocks"
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
