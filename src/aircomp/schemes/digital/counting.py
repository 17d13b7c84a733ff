"""The digital link with a decoder for white noise, and what can be wrapped around it; a file for each decoder is beside it.

link ──► matched energies ──► copies ──► pilots        two sizes of all that where rate = "auto"
link ──► first antenna, block by block ──► copies      over fading
"""

from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.common import rng as rngs
from aircomp.common.radio import SnrReference
from aircomp.common.settings import Settings
from aircomp.decoders.base import Decoder
from aircomp.encode.codebook import make_codebook
from aircomp.errors import ConfigError
from aircomp.layer.zoo import layer_for
from aircomp.quantize.settings import QuantizeSettings
from aircomp.schemes.base import Scheme, SchemeContext
from aircomp.schemes.digital.link import Digital, Wrapper
from aircomp.schemes.settings import (
    CountingSettings,
    OwnDecoderSettings,
    SchemeSettings,
    UnequalSettings,
)

QIAO, TARIZZO = "Qiao et al. 2024", "Tarizzo et al. 2025"
CODEWORD, LEARNED = "codewords of a shared codebook", "codewords of a learned codebook"


class Counting(Digital):
    """The digital link with a decoder for white noise."""

    settings_class: type[SchemeSettings] = CountingSettings
    designed_codebook: ClassVar[str] = "two-bases"
    """The random-access codebook that the decoder was designed for; `layer` is the one it was trained with."""
    forms: ClassVar[tuple[str, ...]] = ()
    """The forms of trained layers that the decoder runs; none: it is not trained."""

    @classmethod
    def make_decoder(
        cls, codebook: Float[Tensor, "codewords uses"], options: Any, snr_reference: SnrReference
    ) -> Decoder:
        """Build the decoder for a codebook.

        Args:
            codebook: One unit-norm codeword a row.
            options: The decoder's own settings; None: the usual ones.
            snr_reference: What the receiver knows of its noise.
        """
        raise NotImplementedError

    @classmethod
    def parts(
        cls,
        kind: str,
        num_codewords: int,
        codeword_length: int,
        *,
        layer: Path | str | None,
        options: Settings | None,
        snr_reference: SnrReference,
        seed: int,
        device: str | torch.device,
    ) -> tuple[Float[Tensor, "codewords uses"], Decoder]:
        """Return a random-access codebook of a kind, and the decoder for it."""
        codebook = sent_codebook(kind, num_codewords, codeword_length, layer=layer, seed=seed, device=device)
        return codebook, cls.make_decoder(codebook, options, snr_reference)

    @classmethod
    def make(cls, settings: CountingSettings, context: SchemeContext) -> Scheme:
        """Build the link and what the settings wrap around it."""
        link = cls._whole(settings, context)
        if not isinstance(settings, UnequalSettings) or settings.rate == "fixed" or context.block_uses:
            return link
        from aircomp.schemes.digital.rate import Rate, short_context, short_sizes

        return Rate(link, cls._whole(short_sizes(settings), short_context(context)))

    @classmethod
    def _whole(cls, settings: CountingSettings, context: SchemeContext) -> Digital | Wrapper:
        kind = cls.designed_codebook if settings.codebook == "auto" else settings.codebook
        if settings.layer is not None and kind != "layer":
            raise ConfigError(
                f"uplink.layer was given but has no effect: {cls.name!r} sends a codebook of kind {kind!r}; set "
                "uplink.codebook = 'layer', or leave it out"
            )
        codebook, decoder = cls.parts(
            kind,
            settings.quantize.num_codewords,
            settings.codeword_length,
            layer=settings.layer,
            options=getattr(settings, "decoder", None),
            snr_reference=context.snr_reference,
            seed=context.seed,
            device=context.device,
        )
        return wrapped(cls(settings, context, codebook, decoder), settings)


def wrapped(link: Digital, settings: CountingSettings) -> Digital | Wrapper:
    """Put around a link what the settings ask for, and import no other wrapper."""
    found: Digital | Wrapper = link
    if link.context.block_uses:  # gains that differ would undo energies, and the receiver counts block by block
        given = {name: getattr(settings, name, None) for name in ("energy", "rate", "pilots")}
        for name, value in given.items():
            if value not in (None, 0, "equal", "fixed"):
                raise ConfigError(
                    f"uplink.{name} = {value!r} is for white noise; use channel.kind = 'awgn', or leave it out"
                )
        from aircomp.schemes.digital.radio import FirstAntenna, Radio

        found = Radio(link, FirstAntenna(link.decoder))
    rate = getattr(settings, "rate", "fixed")
    if unequal := not link.context.block_uses and getattr(settings, "energy", "equal") == "matched":
        from aircomp.schemes.digital.energies import MatchedEnergies

        found = MatchedEnergies(link, getattr(settings, "peak", None))
    if settings.repeat != 1:
        from aircomp.schemes.digital.repetition import Repetition

        found = Repetition(found, settings.repeat)
    if not link.context.block_uses and (settings.pilots or (settings.pilots is None and unequal)):
        from aircomp.schemes.digital.pilots import Pilots

        found = Pilots(found, settings.pilots, equal=not unequal, tells_noise=rate == "auto")
    return found


def with_decoder(decoder: Decoder, name: str, settings: SchemeSettings, context: SchemeContext) -> Scheme:
    """Build the digital link with a decoder of the user's own; its attribute `codebook`, if it has one, is sent with.

    Args:
        decoder: Counts from what the antenna saw.
        name: What results call it.
        settings: Of another scheme; those that it shares with the digital link hold.
        context: What the link is made for.
    """
    shared = OwnDecoderSettings.model_fields.keys() & settings.model_fields_set - {"name"}
    own = OwnDecoderSettings.model_construct(name=name, **{field: getattr(settings, field) for field in shared})
    if not isinstance(own.quantize, QuantizeSettings):  # of a scheme that does not quantise
        own = own.model_copy(update={"quantize": QuantizeSettings(fragment_length=own.quantize.fragment_length)})
    codebook = getattr(decoder, "codebook", None)
    if codebook is None:
        codebook = codebook_of("two-bases", own, context)
    return wrapped(Digital(own, context, codebook, decoder, name), own)


@lru_cache(maxsize=16)
def drawn_codebook(kind: str, num_codewords: int, codeword_length: int, seed: int) -> Float[Tensor, "codewords uses"]:
    """Draw a codebook; one of low coherence takes a second, and the schemes of a comparison share it."""
    return make_codebook(kind, num_codewords, codeword_length, rng=rngs.generator(seed, "random-access codebook"))


def sent_codebook(
    kind: str,
    num_codewords: int,
    codeword_length: int,
    *,
    layer: Path | str | None = None,
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> Float[Tensor, "codewords uses"]:
    """Return a codebook of a kind; `layer` is a trained one.

    Args:
        kind: One of `aircomp.encode.codebook.codebook_kinds()`, or layer.
        num_codewords: How many codewords.
        codeword_length: Real channel uses of each; a trained codebook has its own.
        layer: A trained layer's directory or name; the package's of these sizes if None.
        seed: What the others are drawn from.
        device: Where to put it.
    """
    if kind == "layer":
        from aircomp.layer.communication import fitting_layer  # only now: drawn codebooks need no networks

        return fitting_layer(layer or layer_for(num_codewords, codeword_length), num_codewords, device).codebook
    return drawn_codebook(kind, num_codewords, codeword_length, seed).clone().to(device)


def codebook_of(kind: str, settings: Any, context: Any) -> Float[Tensor, "codewords uses"]:
    """Return the codebook of a scheme: of the kind that its decoder was designed for, unless settings name another.

    Args:
        kind: What the decoder was designed for.
        settings: The scheme's (`DigitalSettings`).
        context: What it is made for (`SchemeContext`).
    """
    return sent_codebook(
        kind if settings.codebook == "auto" else settings.codebook,
        settings.quantize.num_codewords,
        settings.codeword_length,
        layer=settings.layer,
        seed=context.seed,
        device=context.device,
    )
