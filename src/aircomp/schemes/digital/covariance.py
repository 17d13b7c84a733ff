"""Counts from the covariance of many antennas."""

from jaxtyping import Complex
from torch import Tensor

from aircomp.decoders.fading.covariance import Covariance
from aircomp.decoders.fading.receiver import Receiver
from aircomp.decoders.settings import CovarianceSettings
from aircomp.schemes.digital.counting import CODEWORD
from aircomp.schemes.digital.received import Received
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import CovarianceLinkSettings


@scheme(
    "covariance",
    sends=CODEWORD,
    needs="any",
    source="Fengler et al. 2021",
    checked="derived",
    against="the conditions of a maximum, and least squares by another solver",
)
class CovarianceLink(Received):
    """Counts from the covariance of many antennas."""

    settings_class = CovarianceLinkSettings

    @classmethod
    def make_receiver(
        cls, codebook: Complex[Tensor, "codewords pairs"], options: CovarianceSettings | None
    ) -> Receiver:
        """Build the receiver."""
        return Covariance(codebook, options)
