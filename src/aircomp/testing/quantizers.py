"""What holds of everything that builds a quantisation codebook."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.common.checks import check_callable
from aircomp.common.rng import fixed_generator
from aircomp.quantize.codebook import Quantizer, nearest

_SLOTS, _FRAGMENT = 200, 6

Build = Callable[[Float[Tensor, "slots fragment"], torch.Generator], Quantizer]


def check_quantizer(build: Build) -> None:
    """Check the properties that every way to build a quantisation codebook must have.

    Args:
        build: Makes a `Quantizer` of the base station's fragments [slots, 6] with a generator.

    Raises:
        AssertionError: With a sentence that says what it did.
    """
    check_callable("build", build, "of fragments and a generator that returns a Quantizer")
    fragments = torch.randn(_SLOTS, _FRAGMENT, generator=fixed_generator("fragments")) ** 3
    for name, given in {"heavy-tailed": fragments, "equal": torch.ones_like(fragments), "one": fragments[:1]}.items():
        quantizer = build(given, fixed_generator("codebook"))
        _check_form(quantizer, given, name)
        again = build(given, fixed_generator("codebook"))
        assert torch.equal(quantizer.codebook, again.codebook), f"equal seeds give other codebooks of {name} fragments"
    quantizer = build(fragments, fixed_generator("codebook"))
    left = (fragments - quantizer.codebook[quantizer.base_indices]).square().sum()
    assert left < fragments.square().sum(), "quantising loses more than sending nothing"
    scaled = build(1e3 * fragments, fixed_generator("codebook"))
    same = torch.allclose(
        scaled.codebook, 1e3 * quantizer.codebook, rtol=1e-3, atol=1e-3 * float(fragments.abs().max())
    )
    assert same, "fragments a thousand times as large have another codebook than one a thousand times as large"


def _check_form(quantizer: Quantizer, fragments: Tensor, name: str) -> None:
    words, popularity = quantizer.codebook, quantizer.popularity
    assert words.ndim == 2, (
        f"the codebook of {name} fragments has shape {tuple(words.shape)}, expected [codewords, fragment]"
    )
    assert words.shape[1] == fragments.shape[1], f"codewords of {name} fragments have length {words.shape[1]}"
    assert torch.isfinite(words).all(), f"codewords of {name} fragments are not finite"
    assert popularity.shape == (len(words),), f"the popularity has shape {tuple(popularity.shape)}"
    assert (popularity >= 0).all(), "a popularity is negative"
    assert abs(float(popularity.sum()) - 1) < 1e-5, f"the popularity sums to {float(popularity.sum()):.6g}, not to one"
    assert quantizer.base_indices.shape == (len(fragments),), "not every slot has the base station's own choice"
    distance = (fragments - words[quantizer.base_indices]).norm(dim=1)
    least = (fragments - words[nearest(fragments[None], words)[0]]).norm(dim=1)
    tolerance = 1e-4 * float(fragments.norm(dim=1).max())
    assert (distance <= least + tolerance).all(), (
        f"the base station's own choices of {name} fragments are not the nearest"
    )
