import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aircomp.decoders.rounding import conclude, nearest_of_sum, round_to_sum
from aircomp.errors import ConfigError, DecodeDiverged, ShapeError
from plain.rounding import round_to_sum as plain_round_to_sum

# quarters: exact in float32, and full of ties
quarters = st.integers(-8, 20).map(lambda q: q / 4)
soft = st.one_of(quarters, st.floats(-3, 6, width=32))


def compositions(total, parts):
    return [c for c in itertools.product(range(total + 1), repeat=parts) if sum(c) == total]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(soft, min_size=4, max_size=4), min_size=1, max_size=5), st.integers(0, 6))
def test_no_other_integers_of_that_sum_are_nearer(rows, total):
    mean = torch.tensor(rows)
    every = torch.tensor(compositions(total, 4), dtype=torch.float64)
    for counts, values in (
        (round_to_sum(mean, total), mean.clamp_min(0).double()),
        (nearest_of_sum(mean, total), mean.double()),
    ):
        least = (values[:, None] - every).square().sum(2).amin(1)
        assert (counts >= 0).all()
        assert (counts.sum(1) == total).all()
        # float32 ranks gains (of a few units) that differ by its rounding in any order
        torch.testing.assert_close((values - counts).square().sum(1), least, rtol=0, atol=1e-5)


@settings(deadline=None, max_examples=50)
@given(st.lists(quarters, min_size=1, max_size=12), st.sampled_from([0, 1, 3, 10, 40, 400]))
def test_ties_go_to_the_lower_index_as_in_the_plain_version(row, total):
    mean = torch.tensor([row])
    assert torch.equal(round_to_sum(mean, total), plain_round_to_sum(mean, total))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=20))
def test_valid_counts_stay_as_they_are(row):
    counts = torch.tensor([row])
    assert torch.equal(round_to_sum(counts.float(), sum(row)), counts)


@pytest.mark.parametrize("total", [0, 3, 10, 40, 400])
@pytest.mark.parametrize("scale", [0.0, 1.0, 10.0])  # sums of 0, about 10, about 100
def test_fast_equals_plain_on_soft_counts_over_several_chunks(total, scale, rng):
    mean = scale * 20 * torch.rand(600, 128, generator=rng) ** 8 / 28
    fast, plain = round_to_sum(mean[:530], total), plain_round_to_sum(mean[500:530], total)
    assert (fast.sum(1) == total).all()
    assert torch.equal(fast[500:], plain)


def test_clipping_first_changes_the_answer():
    mean = torch.tensor([[1.2, -0.9]])
    assert round_to_sum(mean, 3).tolist() == [[2, 1]]
    assert nearest_of_sum(mean, 3).tolist() == [[3, 0]]


def test_values_far_below_zero_are_rounded_too():
    assert nearest_of_sum(torch.tensor([[-50.0, -48.7, -60.0], [-1e30, 0.0, -1e30]]), 2).tolist() == [[0, 2, 0]] * 2


def test_extreme_soft_counts_still_sum_to_the_total():
    mean = torch.tensor([[1e30, 1.0, 0.0], [3e38, 3e38, 3e38], [0.0, 1e-40, 0.0]])
    assert round_to_sum(mean, 5).sum(1).tolist() == [5, 5, 5]
    assert round_to_sum(torch.zeros(2, 3, dtype=torch.float64), 7).tolist() == [[3, 2, 2]] * 2


def test_no_slots_give_no_counts():
    assert round_to_sum(torch.zeros(0, 5), 3).shape == (0, 5)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_soft_counts_that_are_not_finite_are_refused(bad):
    with pytest.raises(ShapeError, match="finite"):
        round_to_sum(torch.tensor([[0.0, bad]]), 1)


def test_a_negative_total_is_refused():
    with pytest.raises(ShapeError, match="cannot sum to -1"):
        round_to_sum(torch.zeros(1, 2), -1)


def test_conclude_estimates_the_number_of_devices_from_all_slots():
    mean = torch.tensor([[1.5, 1.0], [2.0, 1.1]])
    decoded = conclude(mean, torch.zeros(2), None)
    assert decoded.num_active_hat == pytest.approx(2.8)
    assert decoded.counts.tolist() == [[2, 1], [2, 1]]
    assert conclude(mean, torch.zeros(2), 1.0).counts.tolist() == [[1, 0], [1, 0]]


def test_conclude_refuses_what_no_decoder_should_report():
    with pytest.raises(ConfigError, match="num_active is -1"):
        conclude(torch.zeros(1, 2), torch.zeros(1), -1)
    with pytest.raises(DecodeDiverged, match="not finite"):
        conclude(torch.full((1, 2), torch.nan), torch.zeros(1), None)


def test_ties_at_the_threshold_are_not_split_by_rounding():
    # the bisection ends a hair below zero here, where 1 + 7e-9 rounds to 1 but 0 + 7e-9 does not round to 0
    mean = torch.tensor([[0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0]])
    assert torch.equal(round_to_sum(mean, 10), plain_round_to_sum(mean, 10))
