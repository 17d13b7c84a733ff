"""From the received signal to counts: decoders by name."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Float
from torch import Tensor

from aircomp.decode.amp_da import AmpDa
from aircomp.decode.base import Decoder
from aircomp.decode.gamp import Gamp
from aircomp.decode.simple import Genie, Nnls, Omp
from aircomp.errors import ConfigError, unknown_name

# the random-access codebook each decoder was designed for
_DESIGNED = {
    "amp-da": "bernoulli",
    "amp-da-pooled": "bernoulli",
    "gamp": "two-bases",
    "omp": "two-bases",
    "nnls": "two-bases",
    "genie": "two-bases",
}


def decoder_names() -> list[str]:
    """Return the names that `make_decoder` knows."""
    return list(_DESIGNED)


def designed_codebook(name: str) -> str:
    """Return the kind of random-access codebook that a decoder was designed for."""
    return _DESIGNED.get(name, "two-bases")


def make_decoder(
    name: str, codebook: Float[Tensor, "codewords uses"], *, snr_reference: str = "round", **options: Any
) -> Decoder:
    """Build a decoder for a random-access codebook.

    Args:
        name: One of `decoder_names()`.
        codebook: One unit-norm codeword per row.
        snr_reference: What the receiver knows of its noise: one variance over the `round`, or one for each `slot`.
        **options: The decoder's own, such as `max_iterations=100` for amp-da or `iterations=20` for gamp.

    Example:
        >>> import torch
        >>> make_decoder("nnls", torch.eye(4)).decode(torch.eye(4), torch.ones(4)).counts.diagonal().tolist()
        [1, 1, 1, 1]
    """
    makers: dict[str, Callable[[], Decoder]] = {
        "amp-da": lambda: AmpDa(codebook, **options),
        "amp-da-pooled": lambda: AmpDa(codebook, activity="pooled", **options),
        "gamp": lambda: Gamp(codebook, noise="slot" if snr_reference == "slot" else "round", **options),
        "omp": lambda: Omp(codebook, **options),
        "nnls": lambda: Nnls(codebook, **options),
        "genie": lambda: Genie(**options),
    }
    if name not in makers:
        raise unknown_name("decoder", name, decoder_names())
    try:
        return makers[name]()
    except TypeError as error:
        raise ConfigError(f"the decoder {name!r} does not take these options ({error}); see its class") from None
