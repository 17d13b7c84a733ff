"""The receiver of MD-AirComp for fading, whose first antenna hears in phase."""

from typing import ClassVar

from jaxtyping import Complex
from torch import Tensor

from aircomp.decoders.fading.md_aircomp import MdAirComp, MdAirCompSettings
from aircomp.decoders.fading.receiver import Receiver
from aircomp.schemes.digital.counting import CODEWORD, QIAO
from aircomp.schemes.digital.received import Received, ReceiverSettings
from aircomp.schemes.registry import scheme


class MdAirCompLinkSettings(ReceiverSettings):
    """Options of MD-AirComp's receiver on the digital link."""

    decoder: MdAirCompSettings = MdAirCompSettings()


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
