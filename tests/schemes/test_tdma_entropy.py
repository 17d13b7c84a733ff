"""Entropy-coded scalars in turns; the conformance suite has what the scheme shares with others."""

import math

import pytest
import torch

from aircomp.channel.awgn import Awgn
from aircomp.link import Link
from aircomp.schemes.tdma_entropy import CLASSES, classes_of, code_length, quantized


def plain_length(numbers, classes):
    """Code one number after the other, each binary decision by what the code has seen of its kind so far."""
    seen, bits = {}, 0.0

    def decide(kind, value):
        nonlocal bits
        counts = seen.setdefault(kind, [0.5, 0.5])
        bits -= math.log2(counts[value] / sum(counts))
        counts[value] += 1

    for number, own in zip(numbers, classes, strict=True):
        digits = int(number).bit_length()
        for k in range(digits):
            decide(("more", own, k), 1)
        decide(("more", own, digits), 0)
        bits += digits > 0  # the sign
        if digits > 1:
            decide(("second", digits), int(number) >> (digits - 2) & 1)
            bits += digits - 2
    return bits


def test_the_code_is_as_long_as_one_that_codes_number_after_number(rng):
    numbers = (torch.randn(300, generator=rng).abs() * 4).floor()
    classes = torch.randint(CLASSES, (300,), generator=rng)
    found = code_length(numbers, classes)
    assert found == pytest.approx(plain_length(numbers.tolist(), classes.tolist()), rel=1e-9)


@pytest.mark.parametrize("rate", [0.2, 1.0, 3.0, 8.0])
def test_gaussian_numbers_err_by_little_more_than_their_rate_allows(rate, rng):
    """An entropy-coded scalar is at most πe/6 above the rate-distortion function, at low rates less; the rest is learning."""
    message = torch.randn(20_000, generator=rng)
    error = float((message - quantized(message, torch.zeros(20_000, dtype=torch.int64), rate * 20_000)).square().mean())
    least = 2 ** (-2 * rate)
    assert least < error < 1.1 * math.pi * math.e / 6 * least


@pytest.mark.parametrize("size", [0, 1, 2, 50])
@pytest.mark.parametrize("bits", [0.0, 70.0, 1e6])
def test_short_messages_and_few_bits_are_served(size, bits, rng):
    message = torch.randn(size, generator=rng)
    found = quantized(message, classes_of(torch.zeros(size)), bits)
    assert found.shape == message.shape
    assert float((message - found).square().sum()) <= float(message.square().sum())
    if bits > 1e5 and size:
        assert torch.allclose(found, message, rtol=1e-4, atol=1e-4)


def test_what_is_zero_arrives_as_zero():
    assert not quantized(torch.zeros(9), classes_of(torch.zeros(9)), 1e4).any()


def test_classes_have_parameters_of_like_predicted_size(rng):
    predicted = torch.randn(800, generator=rng)
    classes = classes_of(predicted)
    assert classes.bincount().tolist() == [100] * CLASSES
    assert all(predicted[classes == c].max() <= predicted[classes == c + 1].min() for c in range(CLASSES - 1))


@pytest.mark.parametrize("snr_db", [0.0, 10.0, 20.0])
def test_it_errs_less_than_the_largest_parameters_do(snr_db, rng):
    updates = torch.randn(5, 4000, generator=rng) * torch.randn(4000, generator=rng).exp()
    errors = [Link(name, Awgn(snr_db, "transmit")).send(updates).nmse for name in ("tdma-entropy", "tdma-topk")]
    assert errors[0] < 0.8 * errors[1]
