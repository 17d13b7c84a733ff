"""The posterior by sampling, on the digital link: the best that any decoder with its prior can do, and slow."""

from jaxtyping import Float
from torch import Tensor

from aircomp.common.radio import SnrReference
from aircomp.decoders.amp.posterior import Posterior
from aircomp.decoders.base import Decoder
from aircomp.decoders.settings import PosteriorSettings
from aircomp.schemes.digital.counting import CODEWORD, Counting
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import PosteriorLinkSettings


@scheme("posterior", sends=CODEWORD, needs="in phase", source="this package, by sampling", ours=True)
class PosteriorLink(Counting):
    """The posterior by sampling."""

    settings_class = PosteriorLinkSettings

    @classmethod
    def make_decoder(
        cls, codebook: Float[Tensor, "codewords uses"], options: PosteriorSettings | None, snr_reference: SnrReference
    ) -> Decoder:
        """Build the decoder."""
        return Posterior(codebook, options, snr_reference=snr_reference)
