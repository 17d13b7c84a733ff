"""AMP-DA on the digital link: MD-AirComp's decoder, as the authors of the paper run it."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from aircomp.common.radio import SnrReference
from aircomp.decoders.amp.amp_da import AmpDa
from aircomp.decoders.base import Decoder
from aircomp.decoders.settings import AmpDaSettings
from aircomp.schemes.digital.counting import CODEWORD, QIAO, TARIZZO, Counting
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import AmpDaLinkSettings


@scheme(
    "amp-da",
    sends=CODEWORD,
    needs="in phase",
    source=f"{QIAO}, as {TARIZZO} run it",
    checked="verified",
    against="slot by slot it is the authors' algorithm, written plainly",
)
class AmpDaLink(Counting):
    """AMP-DA as the authors run it."""

    settings_class = AmpDaLinkSettings
    designed_codebook: ClassVar[str] = "bernoulli"
    readout = "integers"

    @classmethod
    def make_decoder(
        cls, codebook: Float[Tensor, "codewords uses"], options: AmpDaSettings | None, snr_reference: SnrReference
    ) -> Decoder:
        """Build the decoder."""
        return AmpDa(codebook, options)
