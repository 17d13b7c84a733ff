"""Trained decoders on the digital link, each with the codebook that it was trained with."""

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.common.checks import check_type
from aircomp.common.radio import SnrReference
from aircomp.common.settings import Settings
from aircomp.decoders.base import Decoder
from aircomp.errors import ConfigError
from aircomp.layer.communication import CommunicationLayer, fitting_layer
from aircomp.layer.zoo import DEFAULT, PAPER, layer_for, layer_sizes
from aircomp.schemes.digital.counting import LEARNED, TARIZZO, Counting
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import AmpDaNetLinkSettings, GampNetLinkSettings


class Trained(Counting):
    """A trained decoder with its codebook."""

    designed_codebook: ClassVar[str] = "layer"

    @classmethod
    @abstractmethod
    def bundled(cls, num_codewords: int, codeword_length: int) -> str:
        """Return the name of the package's layer of these sizes."""

    @classmethod
    def make_decoder(
        cls, codebook: Float[Tensor, "codewords uses"], options: Any, snr_reference: SnrReference
    ) -> Decoder:
        """Return the decoder of a layer, whose codebook it must be.

        Args:
            codebook: The layer's.
            options: The layer; None: the package's of these sizes.
            snr_reference: What the receiver knows of its noise.
        """
        check_type("layer", options, (CommunicationLayer, type(None)), "a CommunicationLayer; load one")
        layer = options or CommunicationLayer.load(cls.bundled(*codebook.shape), device=str(codebook.device))
        if layer.form not in cls.forms:
            raise ConfigError(
                f"{cls.name} runs layers of form {' or '.join(cls.forms)}, but this one has form {layer.form}; use "
                f"{next(other.name for other in TRAINED if layer.form in other.forms)}"
            )
        if not torch.equal(layer.codebook, codebook):
            raise ConfigError(f"{cls.name} works only with the codebook it was trained with; pass its layer's codebook")
        return layer.decoder(snr_reference=snr_reference)

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
        """Return codebook and decoder of a layer."""
        if kind != "layer":
            raise ConfigError(
                f"{cls.name} works only with the codebook it was trained with, not with {kind!r}; use auto"
            )
        found = fitting_layer(layer or cls.bundled(num_codewords, codeword_length), num_codewords, device)
        return found.codebook, cls.make_decoder(found.codebook, found, snr_reference)


@scheme(
    "amp-da-net",
    sends=LEARNED,
    needs="in phase",
    source=TARIZZO,
    checked="verified",
    against="every layer is the authors', and the paper's text is followed in form paper",
)
class AmpDaNetLink(Trained):
    """The paper's network with its codebook."""

    settings_class = AmpDaNetLinkSettings
    forms: ClassVar[tuple[str, ...]] = ("paper", "authors")
    readout = "integers"

    @classmethod
    def bundled(cls, num_codewords: int, codeword_length: int) -> str:
        """Return the name of the paper's layer."""
        if (num_codewords, codeword_length) != layer_sizes(DEFAULT):
            raise ConfigError(
                f"the paper's layer has 128 codewords of 64 channel uses, not {num_codewords} of {codeword_length}; "
                "train one with aircomp pretrain --preset paper and name its directory, or use gamp-net"
            )
        return PAPER


@scheme("gamp-net", sends=LEARNED, needs="in phase", source=f"this package; after {TARIZZO}", ours=True)
class GampNetLink(Trained):
    """Our network with its codebook."""

    settings_class = GampNetLinkSettings
    forms: ClassVar[tuple[str, ...]] = ("gamp-net",)

    @classmethod
    def bundled(cls, num_codewords: int, codeword_length: int) -> str:
        """Return the name of our layer of these sizes."""
        return layer_for(num_codewords, codeword_length)


TRAINED: tuple[type[Trained], ...] = (AmpDaNetLink, GampNetLink)
