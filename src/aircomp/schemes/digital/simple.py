"""Two textbook decoders on the digital link: greedy pursuit and least squares."""

from jaxtyping import Float
from torch import Tensor

from aircomp.common.radio import SnrReference
from aircomp.decoders.base import Decoder
from aircomp.decoders.settings import NnlsSettings
from aircomp.decoders.simple import Nnls, Omp
from aircomp.schemes.digital.counting import CODEWORD, Counting
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import NnlsLinkSettings, OmpLinkSettings


@scheme(
    "omp",
    sends=CODEWORD,
    needs="in phase",
    source="Tropp and Gilbert 2007",
    checked="recalled",
    against="exact counts without noise",
)
class OmpLink(Counting):
    """Orthogonal matching pursuit."""

    settings_class = OmpLinkSettings

    @classmethod
    def make_decoder(
        cls, codebook: Float[Tensor, "codewords uses"], options: None, snr_reference: SnrReference
    ) -> Decoder:
        """Build the decoder."""
        return Omp(codebook)


@scheme(
    "nnls",
    sends=CODEWORD,
    needs="in phase",
    source="Lawson and Hanson 1974",
    checked="recalled",
    against="exact counts without noise",
)
class NnlsLink(Counting):
    """Non-negative least squares."""

    settings_class = NnlsLinkSettings

    @classmethod
    def make_decoder(
        cls, codebook: Float[Tensor, "codewords uses"], options: NnlsSettings | None, snr_reference: SnrReference
    ) -> Decoder:
        """Build the decoder."""
        return Nnls(codebook, options)
