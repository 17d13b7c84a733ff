"""Counts from the covariance of many antennas."""

from jaxtyping import Complex
from torch import Tensor

from aircomp.decoders.fading.covariance import Covariance, CovarianceSettings
from aircomp.decoders.fading.receiver import Receiver
from aircomp.schemes.digital.counting import CODEWORD
from aircomp.schemes.digital.received import Received, ReceiverSettings
from aircomp.schemes.registry import scheme


class CovarianceLinkSettings(ReceiverSettings):
    """Options of the covariance receiver on the digital link."""

    decoder: CovarianceSettings = CovarianceSettings()


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
