"""Signals that arrive in phase or nearly so, heard with a widened likelihood."""

from jaxtyping import Complex
from torch import Tensor

from aircomp.decoders.fading.receiver import Receiver
from aircomp.decoders.fading.widened import Widened
from aircomp.decoders.settings import WidenedSettings
from aircomp.schemes.digital.counting import CODEWORD
from aircomp.schemes.digital.received import Received
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import WidenedLinkSettings


@scheme("widened", sends=CODEWORD, needs="in phase, or nearly", source="this package", ours=True)
class WidenedLink(Received):
    """Signals that arrive in phase or nearly so, heard with a widened likelihood."""

    settings_class = WidenedLinkSettings

    @classmethod
    def make_receiver(cls, codebook: Complex[Tensor, "codewords pairs"], options: WidenedSettings | None) -> Receiver:
        """Build the receiver."""
        return Widened(codebook, options)
