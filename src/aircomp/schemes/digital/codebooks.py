"""The random-access codebook of a digital scheme: drawn from the seed that both sides know, or a trained one."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.common import rng as rngs
from aircomp.encode.codebook import make_codebook
from aircomp.layer.zoo import layer_for


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
