"""Generalised approximate message passing (Rangan 2011) on the digital link, with estimates from the whole round."""

from jaxtyping import Float
from torch import Tensor

from aircomp.common.radio import SnrReference
from aircomp.decoders.amp.gamp import Gamp
from aircomp.decoders.base import Decoder
from aircomp.decoders.settings import GampSettings
from aircomp.schemes.digital.counting import CODEWORD, Counting
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import GampLinkSettings


@scheme("gamp", sends=CODEWORD, needs="in phase", source="this package; GAMP: Rangan 2011", ours=True)
class GampLink(Counting):
    """Generalised approximate message passing."""

    settings_class = GampLinkSettings

    @classmethod
    def make_decoder(
        cls, codebook: Float[Tensor, "codewords uses"], options: GampSettings | None, snr_reference: SnrReference
    ) -> Decoder:
        """Build the decoder."""
        return Gamp(codebook, options, snr_reference=snr_reference)
