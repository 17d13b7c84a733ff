"""Every receiver for fading by name: those of the digital schemes that have one."""

from functools import cache
from typing import Any

from jaxtyping import Float
from torch import Tensor

from aircomp.common.checks import check_choice
from aircomp.decoders.fading.receiver import Receiver
from aircomp.layer.blind_net import BlindLayer
from aircomp.schemes.digital.counting import drawn_codebook
from aircomp.schemes.digital.received import Received, packed
from aircomp.schemes.registry import scheme_class
from aircomp.schemes.settings import scheme_names


@cache
def receiving_schemes() -> dict[str, type[Received]]:
    """Return the schemes that are a receiver on the digital link and nothing else."""
    found = {name: scheme_class(name) for name in scheme_names()}
    own = {name: entered for name, entered in found.items() if issubclass(entered, Received)}
    return {name: entered for name, entered in own.items() if "make_receiver" in vars(entered)}


def receiver_names() -> list[str]:
    """Return the names that `make_receiver` knows."""
    return list(receiving_schemes())


def make_receiver(name: str, codebook: Float[Tensor, "codewords uses"], settings: Any = None) -> Receiver:
    """Build a receiver for a random-access codebook of real uses, which go two at a time.

    Args:
        name: One of `receiver_names()`.
        codebook: One unit-norm codeword per row.
        settings: The receiver's own; the usual ones if None.

    Raises:
        ConfigError: If there is no such receiver, or a codeword has an odd number of uses.
    """
    check_choice("receiver", name, receiver_names())
    return receiving_schemes()[name].make_receiver(packed(name, codebook), settings)


def receiver_codebook(
    name: str, num_codewords: int, codeword_length: int, *, seed: int
) -> Float[Tensor, "codewords uses"]:
    """Return the codebook that a receiver is for: drawn from a seed, or the trained one of the package."""
    kind = receiving_schemes()[name].designed_codebook if name in receiving_schemes() else Received.designed_codebook
    if kind == "layer":
        return BlindLayer.load().codebook
    return drawn_codebook(kind, num_codewords, codeword_length, seed).clone()
