"""What holds of every decoder."""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.common.checks import check_callable, check_methods
from aircomp.common.rng import fixed_generator
from aircomp.decoders.base import Decoded, Decoder
from aircomp.errors import ShapeError

_NUM_CODEWORDS, _NUM_SLOTS, _NUM_ACTIVE = 64, 40, 8


def check_decoder(make: Callable[[Float[Tensor, "codewords uses"]], Decoder]) -> None:
    """Check the properties that every decoder must have.

    Args:
        make: Builds the decoder for a random-access codebook, one unit-norm codeword a row. Two of those used here have
            64 orthonormal codewords, one has twelve in eight channel uses, two of them equal.

    Raises:
        AssertionError: With a sentence that says what the decoder did.
    """
    check_callable("make", make, "of a codebook that returns a decoder")
    rotation = torch.linalg.qr(torch.randn(_NUM_CODEWORDS, _NUM_CODEWORDS, generator=fixed_generator("codebook"))).Q
    for codebook in (torch.eye(_NUM_CODEWORDS), rotation):
        decoder = make(codebook)
        check_methods("what make returned", decoder, "decode")
        popularity, counts = _round(_NUM_SLOTS)
        clean = counts.to(codebook.dtype) @ codebook
        noisy = clean + 0.05 * torch.randn(clean.shape, generator=fixed_generator("noise"))
        _check_noise_free(decoder, clean, popularity, counts)
        _check_given_number(decoder, noisy, popularity)
        _check_order(decoder, noisy, popularity)
        _check_popularity(decoder, noisy, popularity)
        _check_edges(decoder, noisy, popularity)
    _check_any_input(make)


def check_decoded(decoded: Decoded, num_slots: int, num_codewords: int) -> None:
    """Check what holds of every result, whatever was decoded.

    Args:
        decoded: What the decoder returned.
        num_slots: Slots that it was given.
        num_codewords: Codewords of its codebook.

    Raises:
        AssertionError: With a sentence that says what the decoder did.
    """
    shape, hat = (num_slots, num_codewords), decoded.num_active_hat
    assert decoded.counts.shape == shape, f"counts have shape {tuple(decoded.counts.shape)}, expected {shape}"
    assert decoded.mean.shape == shape, f"mean has shape {tuple(decoded.mean.shape)}, expected {shape}"
    assert decoded.noise_var.shape == (num_slots,), f"noise_var has shape {tuple(decoded.noise_var.shape)}"
    assert not decoded.counts.is_floating_point(), f"counts are {decoded.counts.dtype}, expected integers"
    assert (decoded.counts >= 0).all(), "some counts are negative"
    assert torch.isfinite(decoded.mean).all(), "some soft counts are not finite"
    assert (decoded.mean >= 0).all(), "some soft counts are negative"
    assert torch.isfinite(decoded.noise_var).all(), "some noise variances are not finite"
    assert (decoded.noise_var >= 0).all(), "some noise variances are negative"
    assert 0 <= hat < math.inf, f"num_active_hat is {hat}, expected zero or more devices"
    sums = decoded.counts.sum(1)
    assert (sums == decoded.num_active).all(), f"rows sum to {sums.unique().tolist()}, not to {decoded.num_active}"


def _round(num_slots: int) -> tuple[Float[Tensor, " codewords"], Int[Tensor, "slots codewords"]]:
    """Draw a round: each device takes a codeword in every slot, the popular ones more often (Zipf's law)."""
    popularity = 1 / torch.arange(1, _NUM_CODEWORDS + 1)
    popularity /= popularity.sum()
    rows = popularity.expand(num_slots, -1)
    chosen = torch.multinomial(rows, _NUM_ACTIVE, replacement=True, generator=fixed_generator("counts"))
    counts = torch.zeros(num_slots, _NUM_CODEWORDS, dtype=torch.int64)
    return popularity, counts.scatter_add_(1, chosen, torch.ones_like(chosen))


def _check_noise_free(decoder: Decoder, clean: Tensor, popularity: Tensor, counts: Tensor) -> None:
    for rows in (slice(None), slice(1)):
        decoded = decoder.decode(clean[rows], popularity)
        check_decoded(decoded, len(clean[rows]), _NUM_CODEWORDS)
        wrong = (decoded.counts != counts[rows]).any(1).sum().item()
        assert wrong == 0, f"without noise, on orthonormal codewords, {wrong} of {len(clean[rows])} slots are wrong"
    decoded = decoder.decode(clean, popularity, noise_var=0.0)
    assert torch.equal(decoded.counts, counts), "a given noise variance of zero breaks noise-free decoding"


def _check_given_number(decoder: Decoder, noisy: Tensor, popularity: Tensor) -> None:
    for num_active in (0, 1, _NUM_ACTIVE, 3 * _NUM_ACTIVE):
        decoded = decoder.decode(noisy, popularity, num_active=num_active)
        check_decoded(decoded, len(noisy), _NUM_CODEWORDS)
        assert decoded.num_active == num_active, f"num_active={num_active} was given, {decoded.num_active} came back"
    per_slot = torch.full((len(noisy),), 0.05**2)
    decoded = decoder.decode(noisy, popularity, noise_var=per_slot)
    check_decoded(decoded, len(noisy), _NUM_CODEWORDS)
    assert torch.allclose(decoded.noise_var, per_slot, rtol=1e-3), "a given noise variance did not come back"


def _check_order(decoder: Decoder, noisy: Tensor, popularity: Tensor) -> None:
    order = torch.randperm(len(noisy), generator=fixed_generator("order"))
    straight, permuted = decoder.decode(noisy, popularity), decoder.decode(noisy[order], popularity)
    assert torch.equal(straight.counts[order], permuted.counts), "the order of the slots changes their counts"


def _check_popularity(decoder: Decoder, noisy: Tensor, popularity: Tensor) -> None:
    once, scaled = decoder.decode(noisy, popularity), decoder.decode(noisy, 7 * popularity)
    assert torch.equal(once.counts, scaled.counts), "a popularity that sums to seven instead of one changes the counts"


def _check_edges(decoder: Decoder, noisy: Tensor, popularity: Tensor) -> None:
    check_decoded(decoder.decode(noisy[:0], popularity), 0, _NUM_CODEWORDS)
    silent = decoder.decode(torch.zeros_like(noisy), popularity)
    check_decoded(silent, len(noisy), _NUM_CODEWORDS)
    assert silent.num_active == 0, f"in a round without signal the decoder sees {silent.num_active_hat:.3g} devices"
    for bad in (math.nan, math.inf):
        _check_refused(decoder, _with_first(noisy, bad), popularity, f"a received signal with {bad}")
    for bad in (math.nan, math.inf, -1.0):
        _check_refused(decoder, noisy, _with_first(popularity, bad), f"a popularity with {bad}")
    _check_refused(decoder, noisy, torch.zeros_like(popularity), "a popularity of zeros")


def _with_first(values: Tensor, first: float) -> Tensor:
    changed = values.clone()
    changed.view(-1)[0] = first
    return changed


def _check_refused(decoder: Decoder, received: Tensor, popularity: Tensor, what: str) -> None:
    try:
        decoder.decode(received, popularity)
    except ShapeError:
        return
    raise AssertionError(f"{what} was decoded; expected a ShapeError")


def _check_any_input(make: Callable[[Float[Tensor, "codewords uses"]], Decoder]) -> None:
    """Decode what no device ever sent: the result is wrong then, but still a result."""
    rng = fixed_generator("any input")
    codebook = torch.randn(12, 8, generator=rng)
    codebook[1] = codebook[0]
    codebook /= codebook.norm(dim=1, keepdim=True)
    decoder, noise, one = make(codebook), torch.randn(5, 8, generator=rng), torch.ones(5, 8)
    popular = torch.arange(1.0, 13).reciprocal()
    only_one = torch.eye(12)[3]
    broken = noise.clone()
    broken[2] *= 1e30
    cases: dict[str, tuple[Tensor, Tensor, dict[str, Any]]] = {
        "noise alone": (noise, popular, {}),
        "a huge signal": (1e30 * noise, popular, {}),
        "the largest signal": (torch.finfo(torch.float32).max * one, popular, {}),
        "a tiny signal": (1e-30 * noise, popular, {}),
        "a constant signal": (one, popular, {}),
        "a signal of rank one": (noise[:, :1] * noise[:1], popular, {}),
        "a signal against the popular codewords": (-10 * codebook[:5], popular, {}),
        "one huge slot among ordinary ones": (broken, popular, {}),
        "one slot": (noise[:1], popular, {}),
        "two hundred devices": (200 * codebook[:5] + noise, popular, {}),
        "a popularity of one codeword": (noise, only_one, {}),
        "a popularity of nearly one codeword": (noise, only_one + 1e-12, {}),
        "the largest popularity": (noise, torch.full_like(popular, torch.finfo(torch.float32).max), {}),
        "a given number of no devices": (noise, popular, {"num_active": 0}),
        "a given number of too many devices": (noise, popular, {"num_active": 300}),
        "a given noise that is none": (noise, popular, {"noise_var": 0.0}),
        "a given noise that is huge": (noise, popular, {"noise_var": 1e30}),
        "slots that are all of one kind": (
            noise,
            popular,
            {"slot_layers": torch.zeros(5, dtype=torch.int64), "bs_indices": torch.full((5,), 11)},
        ),
    }
    for what, (received, popularity, given) in cases.items():
        try:
            check_decoded(decoder.decode(received, popularity, **given), len(received), 12)
        except AssertionError as error:
            raise AssertionError(f"of {what}: {error}") from None
