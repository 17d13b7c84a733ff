"""The receiver of MD-AirComp for fading, whose first antenna hears in phase."""

from typing import ClassVar

from jaxtyping import Complex
from torch import Tensor

from aircomp.decoders.fading.md_aircomp import MdAirComp
from aircomp.decoders.fading.receiver import Receiver
from aircomp.decoders.settings import MdAirCompSettings
from aircomp.schemes.digital.counting import CODEWORD, QIAO
from aircomp.schemes.digital.received import Received
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import MdAirCompLinkSettings


@scheme(
    "md-aircomp",
    sends=CODEWORD,
    needs="in phase at the first antenna",
    source=QIAO,
    checked="verified",
    against="slot by slot it is the authors' algorithm, written plainly",
)
class MdAirCompLink(Received):
    """The receiver of MD-AirComp for fading, whose first antenna hears in phase."""

    settings_class = MdAirCompLinkSettings
    designed_codebook: ClassVar[str] = "bernoulli"

    @classmethod
    def make_receiver(cls, codebook: Complex[Tensor, "codewords pairs"], options: MdAirCompSettings | None) -> Receiver:
        """Build the receiver."""
        return MdAirComp(codebook, options)
