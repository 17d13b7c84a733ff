"""Signals of gains that nobody knows, told apart by their energies; with memory of gains, and with a trained schedule."""

from typing import Any, ClassVar

from jaxtyping import Complex
from torch import Tensor

from aircomp.decoders.fading.blind import Blind, Learned
from aircomp.decoders.fading.receiver import Receiver
from aircomp.decoders.fading.semi_blind import SemiBlind
from aircomp.decoders.settings import BlindNetSettings, BlindSettings, SemiBlindSettings
from aircomp.errors import ConfigError
from aircomp.layer.blind_net import BlindLayer
from aircomp.schemes.base import Scheme, SchemeContext
from aircomp.schemes.digital.counting import CODEWORD, LEARNED, codebook_of
from aircomp.schemes.digital.received import Received, packed
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import (
    BlindLinkSettings,
    BlindNetLinkSettings,
    ReceiverSettings,
    SemiBlindLinkSettings,
)

_OKUMUS = "multisource AMP: Okumuş et al. 2025"


@scheme("blind", sends=CODEWORD, needs="any", source=f"this package; {_OKUMUS}", ours=True)
class BlindLink(Received):
    """Gains that nobody knows."""

    settings_class = BlindLinkSettings

    @classmethod
    def make_receiver(cls, codebook: Complex[Tensor, "codewords pairs"], options: BlindSettings | None) -> Receiver:
        """Build the receiver."""
        return Blind(codebook, options)


@scheme("semi-blind", sends=CODEWORD, needs="any", source="this package", ours=True)
class SemiBlindLink(Received):
    """Gains that slots decoded before tell."""

    settings_class = SemiBlindLinkSettings

    @classmethod
    def make_receiver(cls, codebook: Complex[Tensor, "codewords pairs"], options: SemiBlindSettings | None) -> Receiver:
        """Build the receiver."""
        return SemiBlind(codebook, options)


@scheme("blind-net", sends=LEARNED, needs="any", source=f"this package, trained; {_OKUMUS}", ours=True)
class BlindNetLink(Received):
    """The blind receiver that was trained, with a codebook of its own."""

    settings_class = BlindNetLinkSettings
    designed_codebook: ClassVar[str] = "layer"

    @classmethod
    def make(cls, settings: ReceiverSettings, context: SchemeContext) -> Scheme:
        """Build the link with the trained codewords, or with drawn ones if asked for."""
        layer = BlindLayer.load(settings.layer, device=context.device)
        own, uses = settings.codebook in ("auto", "layer"), layer.codebook.shape[1]
        if settings.layer is not None:  # which has a length of its own
            settings = settings.changed(codeword_length=uses)
        if own and uses != settings.codeword_length:
            raise ConfigError(
                f"uplink.codeword_length = {settings.codeword_length}, but the trained codewords have {uses} uses; "
                "give a layer of that length, or set uplink.codebook = 'low-coherence'"
            )
        codebook = layer.codebook if own else codebook_of("low-coherence", settings, context)
        receiver = trained_receiver(packed(cls.name, codebook), settings.decoder, layer.net)
        return cls.heard(settings, context, codebook, receiver)

    @classmethod
    def make_receiver(cls, codebook: Complex[Tensor, "codewords pairs"], options: BlindNetSettings | None) -> Receiver:
        """Build the receiver with the schedule of the package."""
        return trained_receiver(codebook, options, BlindLayer.load().net)


def trained_receiver(codebook: Complex[Tensor, "codewords pairs"], options: Any, learned: Learned) -> Receiver:
    """Build a receiver with a trained schedule.

    Args:
        codebook: One unit-norm codeword a row.
        options: `BlindNetSettings`; the usual ones if None.
        learned: The schedule.
    """
    options = options or BlindNetSettings()
    blind = BlindSettings(agreement=options.agreement)
    if options.memory:
        return SemiBlind(codebook, SemiBlindSettings(blind=blind), learned)
    return Blind(codebook, blind, learned)
