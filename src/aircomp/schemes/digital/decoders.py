"""Every decoder by name: those of the digital schemes for white noise, and the genie, which is told the truth."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.common.checks import check_choice
from aircomp.common.radio import SnrReference
from aircomp.common.settings import Settings
from aircomp.common.tensors import check_tensor
from aircomp.decoders.base import Decoder
from aircomp.decoders.simple import Genie
from aircomp.errors import ConfigError, unknown_name
from aircomp.schemes.digital.counting import Counting, sent_codebook
from aircomp.schemes.registry import scheme_class
from aircomp.schemes.settings import scheme_names

GENIE = "genie"


@cache
def counting_schemes() -> dict[str, type[Counting]]:
    """Return the schemes that are a decoder for white noise on the digital link."""
    found = {name: scheme_class(name) for name in scheme_names()}
    return {name: entered for name, entered in found.items() if issubclass(entered, Counting)}


def decoder_names() -> list[str]:
    """Return the names that `make_decoder` knows."""
    return [*counting_schemes(), GENIE]


def trained_decoders() -> dict[str, tuple[str, ...]]:
    """Return the forms of the layers that each trained decoder runs."""
    return {name: entered.forms for name, entered in counting_schemes().items() if entered.forms}


def make_decoder(
    name: str, codebook: Float[Tensor, "codewords uses"], *, snr_reference: SnrReference = "round", **options: Any
) -> Decoder:
    """Build a decoder for a random-access codebook.

    Args:
        name: One of `decoder_names()`.
        codebook: One unit-norm codeword per row.
        snr_reference: What the receiver knows of its noise: one variance for each `slot`, or else one for the round.
        **options: The decoder's own (`uplink.decoder` among the settings), such as `max_iterations=100` for amp-da or
            `agreement=0.0` for gamp; `layer=CommunicationLayer.load("runs/layer")` for amp-da-net and gamp-net (by default
            the package's); `truth=counts` for the genie.

    Examples:
        >>> import torch
        >>> make_decoder("nnls", torch.eye(4)).decode(torch.eye(4), torch.ones(4)).counts.diagonal().tolist()
        [1, 1, 1, 1]
    """
    check_choice("decoder", name, decoder_names())
    check_choice("snr_reference", snr_reference, get_args(SnrReference))
    if name == GENIE:
        _check_options(name, options, "truth")
        return Genie(**options)
    check_tensor("codebook", codebook, "codewords uses", "floating")
    found = counting_schemes()[name]
    if found.forms:
        _check_options(name, options, "layer")
        return found.make_decoder(codebook, options.get("layer"), snr_reference)
    field = found.settings_class.model_fields.get("decoder")
    if field is None:
        _check_options(name, options)
        return found.make_decoder(codebook, None, snr_reference)
    own: Any = field.annotation  # a class of settings
    return found.make_decoder(codebook, own(**options), snr_reference)


def _check_options(name: str, options: dict[str, Any], *known: str) -> None:
    for option in options:
        if not known:
            raise ConfigError(f"the decoder {name!r} has no options; leave out {option!r}")
        if option not in known:
            raise unknown_name(f"option of the decoder {name!r} called", option, known)


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
    """The decoder's own options; the usual ones if None."""
    device: str | torch.device = "cpu"


def decoder_and_codebook(choice: DecoderChoice) -> tuple[Decoder, Float[Tensor, "codewords uses"], str]:
    """Return a decoder, the random-access codebook that it decodes, and the codebook's kind."""
    check_choice("decoder", choice.decoder, decoder_names())
    found = counting_schemes().get(choice.decoder)
    designed = Counting.designed_codebook if found is None else found.designed_codebook
    kind = designed if choice.codebook == "auto" else choice.codebook
    sizes = (kind, choice.num_codewords, choice.codeword_length)
    where: dict[str, Any] = {"layer": choice.layer, "seed": choice.seed, "device": choice.device}
    if found is None:
        codebook = sent_codebook(*sizes, **where)
        return make_decoder(GENIE, codebook, truth=None), codebook, kind
    own = found.parts(*sizes, options=choice.settings, snr_reference=choice.snr_reference, **where)
    return own[1], own[0], kind
