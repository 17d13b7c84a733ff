"""Every decoder by name, and the random-access codebook that each goes with."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.common import rng as rngs
from aircomp.common.checks import check_choice, check_tensor, check_type
from aircomp.common.settings import Settings
from aircomp.common.snr import SnrReference
from aircomp.decode.amp_da import AmpDa, AmpDaSettings
from aircomp.decode.base import Decoder
from aircomp.decode.gamp import Gamp, GampSettings
from aircomp.decode.posterior import Posterior, PosteriorSettings
from aircomp.decode.simple import Genie, Nnls, NnlsSettings, Omp
from aircomp.encode.codebook import make_codebook
from aircomp.errors import ConfigError, unknown_name
from aircomp.layer import CommunicationLayer
from aircomp.layer.zoo import DEFAULT, PAPER, layer_for, layer_names, layer_sizes

DESIGNED_CODEBOOK = {
    "amp-da": "bernoulli",
    "gamp": "two-bases",
    "amp-da-net": "layer",
    "gamp-net": "layer",
    "posterior": "two-bases",
    "omp": "two-bases",
    "nnls": "two-bases",
    "genie": "two-bases",
}
"""The random-access codebook that each decoder was designed for; `layer` is the one it was trained with."""

decoder_settings: dict[str, type[Settings]] = {
    "amp-da": AmpDaSettings,
    "gamp": GampSettings,
    "posterior": PosteriorSettings,
    "nnls": NnlsSettings,
}
"""The options of the decoders that have any."""

FORMS = {"amp-da-net": ("paper", "authors"), "gamp-net": ("gamp-net",)}
"""The decoders that are trained, and the forms of the layers that they run."""

PUBLISHED = ("amp-da", "amp-da-net")
"""Decoders that are run as published: their mean is of integers unless told otherwise."""

OBJECTS = {**dict.fromkeys(FORMS, "layer"), "genie": "truth"}
"""What decoders need besides that is no setting: a trained layer, the true counts."""


def decoder_names() -> list[str]:
    """Return the names that `make_decoder` knows."""
    return list(DESIGNED_CODEBOOK)


def make_decoder(
    name: str, codebook: Float[Tensor, "codewords uses"], *, snr_reference: SnrReference = "round", **options: Any
) -> Decoder:
    """Build a decoder for a random-access codebook.

    Args:
        name: One of `decoder_names()`.
        codebook: One unit-norm codeword per row.
        snr_reference: What the receiver knows of its noise: one variance for each `slot`, or else one for the round.
        **options: The decoder's own (`decoder_settings`), such as `max_iterations=100` for amp-da or `agreement=0.0` for
            gamp; `layer=CommunicationLayer.load("runs/layer")` for amp-da-net and gamp-net (by default the
            package's); `truth=counts` for the genie.

    Examples:
        >>> import torch
        >>> make_decoder("nnls", torch.eye(4)).decode(torch.eye(4), torch.ones(4)).counts.diagonal().tolist()
        [1, 1, 1, 1]
    """
    check_choice("decoder", name, decoder_names())
    check_choice("snr_reference", snr_reference, get_args(SnrReference))
    if name != "genie":
        check_tensor("codebook", codebook, "codewords uses", "floating")
    _check_options(name, options)
    own: Any = decoder_settings[name](**options) if name in decoder_settings else None
    match name:
        case "amp-da":
            return AmpDa(codebook, own)
        case "gamp":
            return Gamp(codebook, own, snr_reference=snr_reference)
        case "amp-da-net" | "gamp-net":
            return _trained(name, codebook, snr_reference, **options)
        case "posterior":
            return Posterior(codebook, own, snr_reference=snr_reference)
        case "omp":
            return Omp(codebook)
        case "nnls":
            return Nnls(codebook, own)
        case _:
            return Genie(**options)


def _check_options(name: str, options: dict[str, Any]) -> None:
    """Refuse options of decoders that have none; those that have some check their own."""
    if name in decoder_settings:
        return
    for option in options:
        if name not in OBJECTS:
            raise ConfigError(f"the decoder {name!r} has no options; leave out {option!r}")
        if option != OBJECTS[name]:
            raise unknown_name(f"option of the decoder {name!r} called", option, [OBJECTS[name]])


def _trained(
    name: str, codebook: Tensor, snr_reference: SnrReference, *, layer: CommunicationLayer | None = None
) -> Decoder:
    check_type("layer", layer, (CommunicationLayer, type(None)), "a CommunicationLayer; load one from its directory")
    layer = layer or CommunicationLayer.load(_bundled(name, *codebook.shape), device=str(codebook.device))
    if layer.form not in FORMS[name]:
        other = next(decoder for decoder, forms in FORMS.items() if layer.form in forms)
        raise ConfigError(
            f"{name} runs layers of form {' or '.join(FORMS[name])}, but this one has form {layer.form}; use {other}"
        )
    if not torch.equal(layer.codebook, codebook):
        raise ConfigError(f"{name} works only with the codebook it was trained with; pass its layer's codebook")
    return layer.decoder(snr_reference=snr_reference)


def _bundled(name: str, num_codewords: int, codeword_length: int) -> str:
    """Return the name of the package's layer for a trained decoder."""
    if name == "amp-da-net":
        if (num_codewords, codeword_length) != layer_sizes(DEFAULT):
            raise ConfigError(
                f"the paper's layer has 128 codewords of 64 channel uses, not {num_codewords} of {codeword_length}; "
                "train one with aircomp pretrain --preset paper and name its directory, or use gamp-net"
            )
        return PAPER
    return layer_for(num_codewords, codeword_length)


@dataclass(frozen=True, kw_only=True)
class DecoderChoice:
    """A decoder and the random-access codebook that it is to decode."""

    decoder: str = "gamp"
    """One of `decoder_names()`."""
    codebook: str = "auto"
    """gaussian, bernoulli, two-bases, layer (a trained one), or auto: the one the decoder was designed for."""
    num_codewords: int = 128
    codeword_length: int = 64
    layer: Path | None = None
    """Directory of a trained layer, or the name of one of the package; the package's of these sizes if None."""
    snr_reference: SnrReference = "round"
    seed: int = 0
    """What the codebook is drawn from."""
    settings: Settings | None = None
    """The decoder's own options, of its class in `decoder_settings`; the usual ones if None."""
    device: str | torch.device = "cpu"


def decoder_and_codebook(choice: DecoderChoice) -> tuple[Decoder, Float[Tensor, "codewords uses"], str]:
    """Return a decoder, the random-access codebook that it decodes, and the codebook's kind."""
    name = choice.decoder
    check_choice("decoder", name, decoder_names())
    kind = DESIGNED_CODEBOOK[name] if choice.codebook == "auto" else choice.codebook
    if name in FORMS and kind != "layer":
        raise ConfigError(f"{name} works only with the codebook it was trained with, not with {kind!r}; use auto")
    options: dict[str, Any] = {} if choice.settings is None else choice.settings.model_dump()
    if kind == "layer":
        layer = _layer(choice)
        codebook = layer.codebook
        options |= {"layer": layer} if name in FORMS else {}
    else:
        codebook = (
            drawn_codebook(kind, choice.num_codewords, choice.codeword_length, choice.seed).clone().to(choice.device)
        )
    return make_decoder(name, codebook, snr_reference=choice.snr_reference, **options), codebook, kind


def _layer(choice: DecoderChoice) -> CommunicationLayer:
    """Load the layer that is named, or the package's of the sizes asked for."""
    n, l = choice.num_codewords, choice.codeword_length  # noqa: E741
    layer = CommunicationLayer.load(choice.layer or _bundled(choice.decoder, n, l), device=str(choice.device))
    if len(layer.codebook) != n:
        fitting = [name for name in layer_names() if layer_sizes(name)[0] == n]
        raise ConfigError(
            f"the layer {choice.layer} has {len(layer.codebook)} codewords, but {n} are asked for; "
            f"take a layer that fits ({', '.join(fitting) or 'none comes with the package'}), or set "
            f"uplink.quantize.num_codewords = {len(layer.codebook)} (for saved rounds: in aircomp collect)"
        )
    return layer


@lru_cache(maxsize=16)
def drawn_codebook(kind: str, num_codewords: int, codeword_length: int, seed: int) -> Float[Tensor, "codewords uses"]:
    """Draw a codebook; one of low coherence takes a second, and the uplinks of a comparison share it."""
    return make_codebook(kind, num_codewords, codeword_length, rng=rngs.generator(seed, "random-access codebook"))
