"""The digital link with a receiver for fading; a file for each receiver is beside it."""

from typing import Any, ClassVar

from jaxtyping import Complex, Float
from torch import Tensor

from aircomp.common.packing import pack
from aircomp.decoders.fading.receiver import Receiver
from aircomp.errors import ConfigError
from aircomp.schemes.base import Scheme, SchemeContext
from aircomp.schemes.digital.counting import codebook_of
from aircomp.schemes.digital.link import Digital
from aircomp.schemes.digital.radio import Radio
from aircomp.schemes.digital.repetition import Repetition
from aircomp.schemes.settings import ReceiverSettings, SchemeSettings


class Received(Digital):
    """The digital link with a receiver."""

    settings_class: type[SchemeSettings] = ReceiverSettings
    designed_codebook: ClassVar[str] = "low-coherence"

    @classmethod
    def make_receiver(cls, codebook: Complex[Tensor, "codewords pairs"], options: Any) -> Receiver:
        """Build the receiver for a codebook.

        Args:
            codebook: One unit-norm codeword a row; a complex use is two real ones.
            options: The receiver's own settings; None: the usual ones.
        """
        raise NotImplementedError

    @classmethod
    def make(cls, settings: ReceiverSettings, context: SchemeContext) -> Scheme:
        """Build the link, the receiver, and copies if asked for."""
        codebook = codebook_of(cls.designed_codebook, settings, context)
        return cls.heard(settings, context, codebook, cls.make_receiver(packed(cls.name, codebook), settings.decoder))

    @classmethod
    def heard(cls, settings: ReceiverSettings, context: SchemeContext, codebook: Tensor, receiver: Receiver) -> Scheme:
        """Put a receiver, and copies if asked for, around the link."""
        radio = Radio(cls(settings, context, codebook, NoDecoder()), receiver)
        return radio if settings.repeat == 1 else Repetition(radio, settings.repeat)


class NoDecoder:
    """In the place of a decoder where a receiver counts."""

    def decode(self, received: Tensor, popularity: Tensor, **known: Any) -> Any:
        """Refuse: nobody calls it."""
        raise AssertionError("a receiver decodes in its place")


def packed(name: str, codebook: Float[Tensor, "codewords uses"]) -> Complex[Tensor, "codewords pairs"]:
    """Return a codebook of complex uses, each of two real ones.

    Raises:
        ConfigError: If the uses of a codeword do not go two at a time.
    """
    check_even(name, codebook)
    return pack(codebook)


def check_even(name: str, codebook: Float[Tensor, "codewords uses"]) -> None:
    """See that the uses of a codeword go two at a time.

    Raises:
        ConfigError: If they do not.
    """
    if codebook.shape[1] % 2:
        raise ConfigError(
            f"uplink.codeword_length = {codebook.shape[1]}: {name!r} takes two real uses for a complex one; make it even"
        )
