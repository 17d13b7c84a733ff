"""Every decoder by name, and the random-access codebook that each goes with."""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.common import rng as rngs
from aircomp.common.checks import check_choice, check_number, check_tensor, check_type
from aircomp.common.snr import SnrReference
from aircomp.decode.amp_da import AmpDa
from aircomp.decode.base import Decoder
from aircomp.decode.gamp import Gamp
from aircomp.decode.posterior import Posterior
from aircomp.decode.simple import Genie, Nnls, Omp
from aircomp.encode.codebook import make_codebook
from aircomp.errors import ConfigError, unknown_name
from aircomp.layer import CommunicationLayer

DESIGNED_CODEBOOK = {
    "amp-da": "bernoulli",
    "amp-da-pooled": "bernoulli",
    "gamp": "two-bases",
    "amp-da-net": "layer",
    "posterior": "two-bases",
    "omp": "two-bases",
    "nnls": "two-bases",
    "genie": "two-bases",
}
"""The random-access codebook that each decoder was designed for; `layer` is the one it was trained with."""

# Devices of a slot choose alike more often than independent draws: measured 0.017 on ResNet fragments; of 0, 0.02, 0.04 and
# 0.08 between the second and the third decode best on ResNet, VGG and digits.
AGREEMENT = 0.03


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
        **options: The decoder's own, such as `max_iterations=100` for amp-da, `agreement=0.0` for gamp or
            `layer=CommunicationLayer.load("runs/layer")` for amp-da-net (the bundled one by default).

    Example:
        >>> import torch
        >>> make_decoder("nnls", torch.eye(4)).decode(torch.eye(4), torch.ones(4)).counts.diagonal().tolist()
        [1, 1, 1, 1]
    """
    check_choice("decoder", name, decoder_names())
    check_choice("snr_reference", snr_reference, get_args(SnrReference))
    if name != "genie":
        check_tensor("codebook", codebook, "codewords uses", "floating")
    _check_options(name, options)
    agreeing: dict[str, Any] = {"agreement": AGREEMENT} | options
    makers: dict[str, Callable[[], Decoder]] = {
        "amp-da": lambda: AmpDa(codebook, **options),
        "amp-da-pooled": lambda: AmpDa(codebook, activity="pooled", **options),
        "gamp": lambda: Gamp(codebook, snr_reference=snr_reference, **agreeing),
        "amp-da-net": lambda: _trained(codebook, snr_reference, **options),
        "posterior": lambda: Posterior(codebook, snr_reference=snr_reference, **agreeing),
        "omp": lambda: Omp(codebook, **options),
        "nnls": lambda: Nnls(codebook, **options),
        "genie": lambda: Genie(**options),
    }
    try:
        return makers[name]()
    except TypeError as error:
        raise ConfigError(f"the decoder {name!r} does not take these options ({error}); see its class") from None


def _check_options(name: str, options: dict[str, Any]) -> None:
    """Refuse options that the decoder does not have, and numbers that are none; their ranges are its own affair."""
    makers = {"gamp": Gamp, "amp-da-net": _trained, "posterior": Posterior, "omp": Omp, "nnls": Nnls, "genie": Genie}
    known = {
        p.name: p.default
        for p in inspect.signature(makers.get(name, AmpDa)).parameters.values()
        if p.kind is p.KEYWORD_ONLY
        and p.name not in ("snr_reference", "activity")  # which the name and snr_reference decide
    }
    for option, value in options.items():
        if not known:
            raise ConfigError(f"the decoder {name!r} has no options; leave out {option!r}")
        if option not in known:
            raise unknown_name(f"option of the decoder {name!r} called", option, known)
        if isinstance(known[option], int | float):
            check_number(option, value, high=sys.float_info.max, integer=isinstance(known[option], int))
    if options.get("layer") is not None:
        check_type("layer", options["layer"], CommunicationLayer, "a CommunicationLayer; load one from its directory")


def _trained(codebook: Tensor, snr_reference: SnrReference, *, layer: CommunicationLayer | None = None) -> Decoder:
    layer = layer or CommunicationLayer.load(device=str(codebook.device))
    if not torch.equal(layer.codebook, codebook):
        raise ConfigError("amp-da-net works only with the codebook it was trained with; pass its layer's codebook")
    return layer.decoder(snr_reference=snr_reference)


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
    """Directory of a trained layer; the bundled one if None."""
    snr_reference: SnrReference = "round"
    seed: int = 0
    """What the codebook is drawn from."""
    device: str | torch.device = "cpu"


def decoder_and_codebook(choice: DecoderChoice) -> tuple[Decoder, Float[Tensor, "codewords uses"], str]:
    """Return a decoder, the random-access codebook that it decodes, and the codebook's kind."""
    name = choice.decoder
    check_choice("decoder", name, decoder_names())
    kind = DESIGNED_CODEBOOK[name] if choice.codebook == "auto" else choice.codebook
    if name == "amp-da-net" and kind != "layer":
        raise ConfigError(f"amp-da-net works only with the codebook it was trained with, not with {kind!r}; use auto")
    options: dict[str, Any] = {}
    if kind == "layer":
        layer = CommunicationLayer.load(choice.layer, device=str(choice.device))
        codebook = layer.codebook
        options = {"layer": layer} if name == "amp-da-net" else {}
    else:
        rng = rngs.generator(choice.seed, "random-access codebook")
        codebook = make_codebook(kind, choice.num_codewords, choice.codeword_length, rng=rng).to(choice.device)
    return make_decoder(name, codebook, snr_reference=choice.snr_reference, **options), codebook, kind
