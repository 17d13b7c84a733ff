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

from aircomp.channel.snr import SnrReference
from aircomp.common import rng as rngs
from aircomp.common.checks import check_choice, check_number, check_tensor, check_type
from aircomp.decode.amp_da import AmpDa
from aircomp.decode.base import Decoder
from aircomp.decode.gamp import Gamp
from aircomp.decode.posterior import Posterior
from aircomp.decode.simple import Genie, Nnls, Omp
from aircomp.encode.codebook import make_codebook
from aircomp.errors import ConfigError, unknown_name
from aircomp.layer import CommunicationLayer

# the random-access codebook each decoder was designed for; "layer" is the one it was trained with
_DESIGNED = {
    "amp-da": "bernoulli",
    "amp-da-pooled": "bernoulli",
    "gamp": "two-bases",
    "amp-da-net": "layer",
    "posterior": "two-bases",
    "omp": "two-bases",
    "nnls": "two-bases",
    "genie": "two-bases",
}

# Devices of a slot choose alike more often than independent draws: measured 0.017 on ResNet fragments; of 0, 0.02, 0.04 and
# 0.08 between the second and the third decode best on ResNet, VGG and digits.
AGREEMENT = 0.03


def decoder_names() -> list[str]:
    """Return the names that `make_decoder` knows."""
    return list(_DESIGNED)


def make_decoder(
    name: str, codebook: Float[Tensor, "codewords uses"], *, snr_reference: str = "round", **options: Any
) -> Decoder:
    """Build a decoder for a random-access codebook.

    Args:
        name: One of `decoder_names()`.
        codebook: One unit-norm codeword per row.
        snr_reference: What the receiver knows of its noise: one variance over the `round`, or one for each `slot`.
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
    noise = "slot" if snr_reference == "slot" else "round"
    agreeing: dict[str, Any] = {"agreement": AGREEMENT} | options
    makers: dict[str, Callable[[], Decoder]] = {
        "amp-da": lambda: AmpDa(codebook, **options),
        "amp-da-pooled": lambda: AmpDa(codebook, activity="pooled", **options),
        "gamp": lambda: Gamp(codebook, noise=noise, **agreeing),
        "amp-da-net": lambda: _trained(codebook, noise, **options),
        "posterior": lambda: Posterior(codebook, noise=noise, **agreeing),
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
        if p.kind is p.KEYWORD_ONLY and p.name not in ("noise", "activity")  # which the name and snr_reference decide
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


def _trained(codebook: Tensor, noise: Any, *, layer: CommunicationLayer | None = None) -> Decoder:
    layer = layer or CommunicationLayer.load(device=str(codebook.device))
    if not torch.equal(layer.codebook, codebook):
        raise ConfigError("amp-da-net works only with the codebook it was trained with; pass its layer's codebook")
    return layer.decoder(noise=noise)


@dataclass(frozen=True)
class Pairing:
    """How a decoder gets its codebook: settings that a link and an evaluation share."""

    kind: str = "auto"
    """gaussian, bernoulli, two-bases, layer (a trained one), or auto: the one the decoder was designed for."""
    num_codewords: int = 128
    codeword_length: int = 64
    layer: Path | None = None
    """Directory of a trained layer; the bundled one if None."""
    snr_reference: str = "round"
    seed: int = 0
    device: str | torch.device = "cpu"


def pair(name: str, pairing: Pairing) -> tuple[Decoder, Float[Tensor, "codewords uses"], str]:
    """Return a decoder, the random-access codebook that it decodes, and the codebook's kind."""
    if name not in _DESIGNED:
        raise unknown_name("decoder", name, decoder_names())
    kind = _DESIGNED[name] if pairing.kind == "auto" else pairing.kind
    if name == "amp-da-net" and kind != "layer":
        raise ConfigError(f"amp-da-net works only with the codebook it was trained with, not with {kind!r}; use auto")
    if kind == "layer":
        layer = CommunicationLayer.load(pairing.layer, device=str(pairing.device))
        options = {"layer": layer} if name == "amp-da-net" else {}
        return make_decoder(name, layer.codebook, snr_reference=pairing.snr_reference, **options), layer.codebook, kind
    rng = rngs.generator(pairing.seed, "random-access codebook")
    codebook = make_codebook(kind, pairing.num_codewords, pairing.codeword_length, rng=rng).to(pairing.device)
    return make_decoder(name, codebook, snr_reference=pairing.snr_reference), codebook, kind
