"""The trellis lattice: its points, its cell, and how near to an ideal lattice it is."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aircomp.decoders import trellis
from aircomp.decoders.trellis import CELL, TAPS, Q, padded, remainders
from plain import trellis as plain


def draws(*shape, seed=0, scale=1.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def point(symbols, shift):
    """Return a point of the lattice: a codeword, and any multiples of q on top."""
    codeword = torch.tensor(plain.outputs(symbols, TAPS, Q), dtype=torch.float64).flatten()
    return codeword + Q * torch.tensor(shift, dtype=torch.float64)


STEPS = 12
symbols = st.lists(st.integers(0, Q - 1), min_size=STEPS, max_size=STEPS)
shifts = st.lists(st.integers(-9, 9), min_size=2 * STEPS, max_size=2 * STEPS)


@settings(deadline=None, max_examples=50)
@given(symbols, shifts, symbols, shifts)
def test_points_and_their_sums_leave_nothing(first, shift, second, other_shift):
    a, b = point(first, shift), point(second, other_shift)
    for each in (a, b, a + b, a - b):
        assert not remainders(each).any()


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(2, 12))
def test_the_remainder_of_a_sum_of_remainders_is_that_of_the_sum(seed, devices):
    values = draws(devices, 2 * STEPS, seed=seed, scale=3.0)
    together, apart = remainders(values.sum(0)), remainders(remainders(values).sum(0))
    # float32 inside: targets of up to Q are rounded to 3e-7, sums of twelve to 4e-6
    torch.testing.assert_close(apart, together, atol=1e-5, rtol=0)


@pytest.mark.parametrize("search", ["compiled", "torch"])
def test_it_finds_the_point_that_a_plain_search_finds(search, monkeypatch):
    if search == "torch":
        monkeypatch.setattr(trellis, "ready", lambda targets: False)
    values = draws(5, 40, scale=2.0)
    expected = np.stack([plain.remainders(row.numpy(), TAPS, Q) for row in values])
    torch.testing.assert_close(remainders(values), torch.from_numpy(expected), atol=1e-5, rtol=0)


def test_sequences_are_cut_where_they_are_long_and_found_apart():
    values = draws(3 * trellis.LONGEST, scale=2.0)
    each = values.unflatten(0, (3, -1))
    assert torch.equal(remainders(values), torch.stack([remainders(row) for row in each]).flatten())


@settings(deadline=None)
@given(st.integers(0, 20_000))
def test_padded_numbers_fill_sequences_of_equal_length(number):
    filled = padded(number)
    pieces = max(math.ceil(filled / trellis.LONGEST), 1)
    assert filled >= number
    assert filled % (2 * pieces) == 0
    assert filled - number < 2 * pieces + 2


def test_the_cell_has_the_mean_square_that_plans_reckon_with():
    uniform = Q * torch.rand(200, 1024, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    # sequences of 1024: the sample mean over 200 is known to .2 %
    assert float(remainders(uniform).square().mean()) == pytest.approx(CELL, rel=0.01)
    # 1.27 of the 1.53 dB that any lattice can have over the cube of volume √5, whose mean square is 5/12
    assert 10 * math.log10((5 / 12) / CELL) > 1.2


@pytest.mark.parametrize(("margin_db", "most"), [(1.5, 0.07), (2.0, 0.02), (2.5, 0.006)])
def test_two_decibels_above_an_ideal_lattice_nearly_nothing_is_wrapped(margin_db, most):
    noise = draws(200, 1024, scale=math.sqrt(CELL / 10 ** (margin_db / 10)))
    wrong = (remainders(noise) - noise).square().mean() / noise.square().mean()
    assert float(wrong) < most
