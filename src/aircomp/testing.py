"""Checks for your own parts: what everything downstream relies on, as plain assertions with a sentence each.

from aircomp.testing import check_decoder

def test_my_decoder():
    check_decoder(MyDecoder)
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.checks import check_callable, check_methods
from aircomp.decode.base import Decoded, Decoder
from aircomp.errors import ShapeError
from aircomp.rng import generator

_NUM_CODEWORDS, _NUM_SLOTS, _NUM_ACTIVE = 64, 40, 8


def check_decoder(make: Callable[[Float[Tensor, "codewords uses"]], Decoder]) -> None:
    """Check the properties that every decoder must have.

    Args:
        make: Builds the decoder for a random-access codebook, one unit-norm codeword a row. The codebooks used here
            have 64 orthonormal codewords.

    Raises:
        AssertionError: With a sentence that says what the decoder did.
    """
    check_callable("make", make, "of a codebook that returns a decoder")
    rotation = torch.linalg.qr(torch.randn(_NUM_CODEWORDS, _NUM_CODEWORDS, generator=generator(0, "codebook"))).Q
    for codebook in (torch.eye(_NUM_CODEWORDS), rotation):
        decoder = make(codebook)
        check_methods("what make returned", decoder, "decode")
        popularity, counts = _round(_NUM_SLOTS)
        clean = counts.to(codebook.dtype) @ codebook
        noisy = clean + 0.05 * torch.randn(clean.shape, generator=generator(0, "noise"))
        _check_noise_free(decoder, clean, popularity, counts)
        _check_given_number(decoder, noisy, popularity)
        _check_order(decoder, noisy, popularity)
        _check_popularity(decoder, noisy, popularity)
        _check_edges(decoder, noisy, popularity)


def _round(num_slots: int) -> tuple[Float[Tensor, " codewords"], Int[Tensor, "slots codewords"]]:
    """Draw a round: each device takes a codeword in every slot, the popular ones more often (Zipf's law)."""
    popularity = 1 / torch.arange(1, _NUM_CODEWORDS + 1)
    popularity /= popularity.sum()
    rows = popularity.expand(num_slots, -1)
    chosen = torch.multinomial(rows, _NUM_ACTIVE, replacement=True, generator=generator(0, "counts"))
    counts = torch.zeros(num_slots, _NUM_CODEWORDS, dtype=torch.int64)
    return popularity, counts.scatter_add_(1, chosen, torch.ones_like(chosen))


def _check_form(decoded: Decoded, num_slots: int) -> None:
    shape = (num_slots, _NUM_CODEWORDS)
    assert decoded.counts.shape == shape, f"counts have shape {tuple(decoded.counts.shape)}, expected {shape}"
    assert decoded.mean.shape == shape, f"mean has shape {tuple(decoded.mean.shape)}, expected {shape}"
    assert decoded.noise_var.shape == (num_slots,), f"noise_var has shape {tuple(decoded.noise_var.shape)}"
    assert not decoded.counts.is_floating_point(), f"counts are {decoded.counts.dtype}, expected integers"
    assert (decoded.counts >= 0).all(), "some counts are negative"
    assert torch.isfinite(decoded.mean).all(), "some soft counts are not finite"
    assert torch.isfinite(decoded.noise_var).all(), "some noise variances are not finite"
    assert (decoded.noise_var >= 0).all(), "some noise variances are negative"
    sums = decoded.counts.sum(1)
    assert (sums == decoded.num_active).all(), f"rows sum to {sums.unique().tolist()}, not to {decoded.num_active}"


def _check_noise_free(decoder: Decoder, clean: Tensor, popularity: Tensor, counts: Tensor) -> None:
    for rows in (slice(None), slice(1)):
        decoded = decoder.decode(clean[rows], popularity)
        _check_form(decoded, len(clean[rows]))
        wrong = (decoded.counts != counts[rows]).any(1).sum().item()
        assert wrong == 0, f"without noise, on orthonormal codewords, {wrong} of {len(clean[rows])} slots are wrong"
    decoded = decoder.decode(clean, popularity, noise_var=0.0)
    assert torch.equal(decoded.counts, counts), "a given noise variance of zero breaks noise-free decoding"


def _check_given_number(decoder: Decoder, noisy: Tensor, popularity: Tensor) -> None:
    for num_active in (0, 1, _NUM_ACTIVE, 3 * _NUM_ACTIVE):
        decoded = decoder.decode(noisy, popularity, num_active=num_active)
        _check_form(decoded, len(noisy))
        assert decoded.num_active == num_active, f"num_active={num_active} was given, {decoded.num_active} came back"
    per_slot = torch.full((len(noisy),), 0.05**2)
    decoded = decoder.decode(noisy, popularity, noise_var=per_slot)
    _check_form(decoded, len(noisy))
    assert torch.allclose(decoded.noise_var, per_slot, rtol=1e-3), "a given noise variance did not come back"


def _check_order(decoder: Decoder, noisy: Tensor, popularity: Tensor) -> None:
    order = torch.randperm(len(noisy), generator=generator(0, "order"))
    straight, permuted = decoder.decode(noisy, popularity), decoder.decode(noisy[order], popularity)
    assert torch.equal(straight.counts[order], permuted.counts), "the order of the slots changes their counts"


def _check_popularity(decoder: Decoder, noisy: Tensor, popularity: Tensor) -> None:
    once, scaled = decoder.decode(noisy, popularity), decoder.decode(noisy, 7 * popularity)
    assert torch.equal(once.counts, scaled.counts), "a popularity that sums to seven instead of one changes the counts"


def _check_edges(decoder: Decoder, noisy: Tensor, popularity: Tensor) -> None:
    _check_form(decoder.decode(noisy[:0], popularity), 0)
    silent = decoder.decode(torch.zeros_like(noisy), popularity)
    _check_form(silent, len(noisy))
    assert silent.num_active == 0, f"in a round without signal the decoder sees {silent.num_active_hat:.3g} devices"
    broken = noisy.clone()
    broken[0, 0] = torch.nan
    try:
        decoder.decode(broken, popularity)
    except ShapeError:
        return
    raise AssertionError("a received signal with NaN was decoded; expected a ShapeError")
