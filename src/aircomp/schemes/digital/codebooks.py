"""The random-access codebook of a digital scheme: drawn from the seed that both sides know, or a trained one."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.common import rng as rngs
from aircomp.encode.codebook import make_codebook
from aircomp.errors import ConfigError
from aircomp.layer.communication import CommunicationLayer
from aircomp.layer.zoo import layer_for, layer_names, layer_sizes


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


def fitting_layer(layer: Path | str, num_codewords: int, device: str | torch.device = "cpu") -> CommunicationLayer:
    """Load a layer for so many codewords.

    Raises:
        ConfigError: If it has others.
    """
    found = CommunicationLayer.load(layer, device=str(device))
    if len(found.codebook) != num_codewords:
        fitting = [name for name in layer_names() if layer_sizes(name)[0] == num_codewords]
        raise ConfigError(
            f"the layer {layer} has {len(found.codebook)} codewords, but {num_codewords} are asked for; "
            f"take a layer that fits ({', '.join(fitting) or 'none comes with the package'}), or set "
            f"uplink.quantize.num_codewords = {len(found.codebook)} (for saved rounds: in aircomp collect)"
        )
    return found
