r"""The composite pilot of MD-AirComp+ for counts: all devices send one pilot, by which the base station combines antennas.

    pilots of a block ──► sum of all gains h̄ on every antenna ──► h̄ᴴ y / N_r ──► as if it had arrived in phase ──► widened

Device $k$ is then heard with $g_k = \bar h^H h_k / N_r$. In Rayleigh fading its mean is one, and its variance is
$(1 + (K-1)/2)/N_r$ in phase and $(K-1)/2N_r$ in quadrature. The widened likelihood expects such gains. The number of devices
comes from the received power, since the pilot tells it no better than $K/\sqrt{N_r}$. MD-AirComp+ is of Qiao et al. 2026
(arXiv 2602.18332), who count by the LASSO.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtReceiver
from aircomp.common.packing import pack
from aircomp.common.radio import GainModel
from aircomp.decoders.base import Decoded
from aircomp.decoders.fading.blind import Blind
from aircomp.decoders.fading.receiver import Reception, joined
from aircomp.decoders.fading.widened import Widened
from aircomp.encode.pilots import WithPilots, pilot_sequence
from aircomp.encode.signal import Codewords
from aircomp.schemes.base import Scheme, SchemeContext
from aircomp.schemes.digital.block_pilots import BlockPiloted, BlockPilots
from aircomp.schemes.digital.counting import codebook_of
from aircomp.schemes.digital.link import Digital
from aircomp.schemes.digital.received import NoDecoder, Received
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import DigitalSettings, MdAirCompPlusSettings


@dataclass(frozen=True)
class CompositePilot(BlockPilots):
    """One sequence that all devices send."""

    def check_devices(self, devices: int) -> None:
        """Take any number: they share the pilot."""

    def send(self, indices: Int[Tensor, "devices data"], codebook: Float[Tensor, "codewords uses"]) -> WithPilots:
        """Put the pilot before the data of every block."""
        return WithPilots(Codewords(indices, codebook), pilot_sequence(self.uses), self.places)

    def hear(
        self,
        received: Inexact[Tensor, "antennas slots uses"],
        num_devices: int,
        codebook: Float[Tensor, "codewords uses"],
        popularity: Float[Tensor, " codewords"],
        csi: AtReceiver,
    ) -> Decoded:
        """Combine the antennas of every block, and count as behind gains that are nearly one."""
        pilots, data = self.apart(received)
        antennas, words = len(pilots), pack(codebook)
        everything = torch.cat(data, dim=1)
        number, _ = Blind(words).estimate(everything.transpose(0, 1), popularity, Reception(everything, popularity))
        sequence = pack(pilot_sequence(self.uses)).repeat(self.pilots).to(pilots) / self.pilots
        total = (pilots @ sequence.conj()).T
        spread = max(number - 1, 0.0) / 2 / antennas
        model = GainModel(mean=1.0, var_real=spread + 1 / antennas, var_imag=spread)
        receiver, found = Widened(words), []
        for block, gains in zip(data, total, strict=True):
            heard = torch.einsum("a,asu->su", gains.conj(), block)[None] / antennas
            found += receiver.receive(Reception(heard, popularity, gain_model=model, num_active=number))
        return joined(found)


@scheme(
    "md-aircomp-plus",
    sends="codewords of a shared codebook, and one pilot for all",
    needs="any, many antennas",
    source="Qiao et al. 2026",
    checked="recalled",
    against="the combined gains have mean one and variance K/N_r",
)
class MdAirCompPlus(Digital):
    """The digital link with a composite pilot."""

    settings_class = MdAirCompPlusSettings

    @classmethod
    def make(cls, settings: DigitalSettings, context: SchemeContext) -> Scheme:
        """Build the link with its pilots."""
        codebook = codebook_of(Received.designed_codebook, settings, context)

        def plan(slots: int) -> BlockPilots:
            return CompositePilot(slots, codebook.shape[1], context.block_uses)

        return BlockPiloted(cls(settings, context, codebook, NoDecoder()), plan)
