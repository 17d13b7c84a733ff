"""Every case of Appendix C, by hand. Codeword j is the j-th unit vector, so the result shows the weights over M."""

import pytest
import torch

from aircomp.aggregation.rules import aggregate


def weights(counts: list[int], keep: float) -> list[float]:
    unit_vectors = torch.eye(len(counts), dtype=torch.float64)
    return aggregate("trimmed-mean", torch.tensor([counts]), unit_vectors, keep=keep)[0].tolist()


def test_mass_reached_exactly_keeps_full_counts():
    # K = 10, M = 8: 5 + 3 fit exactly
    assert weights([5, 3, 1, 1], 0.8) == [5 / 8, 3 / 8, 0, 0]


def test_the_codeword_that_overshoots_keeps_a_part_of_its_count():
    # K = 10, M = 8: after 6, the next has 3 but only 2 are left
    assert weights([6, 3, 1], 0.8) == [6 / 8, 2 / 8, 0]


def test_a_single_codeword_may_overshoot_alone():
    assert weights([9, 1], 0.8) == [1, 0]


def test_a_tied_group_that_fits_keeps_full_counts():
    # K = 10, M = 8: the two fours fill it
    assert weights([4, 4, 1, 1], 0.8) == [1 / 2, 1 / 2, 0, 0]


def test_a_cut_inside_a_tied_group_shares_what_is_left():
    # the appendix's own example: 3, 3, 3 tied with mass 5 left, here after 11 of M = 16 = 0.8 · 20
    expected = [11 / 16, 5 / 3 / 16, 5 / 3 / 16, 5 / 3 / 16]
    assert weights([11, 3, 3, 3], 0.8) == pytest.approx(expected, rel=1e-12)


def test_the_appendix_example_in_vectors():
    # their average is (2, 3), times 5, over M; M = 5 = ceil(5/9 · 9) when the tied group comes first
    codewords = torch.tensor([[1.0, 0.0], [2.0, 3.0], [3.0, 6.0]], dtype=torch.float64)
    result = aggregate("trimmed-mean", torch.tensor([[3, 3, 3]]), codewords, keep=5 / 9)
    torch.testing.assert_close(result, torch.tensor([[2.0, 3.0]], dtype=torch.float64), rtol=1e-12, atol=0)


def test_a_cut_between_two_members_of_a_tied_group_still_shares_evenly():
    # mass 6 would hold two of three threes; taking two would depend on their order
    assert weights([3, 3, 3], 6 / 9) == pytest.approx([1 / 3, 1 / 3, 1 / 3], rel=1e-12)


def test_retained_mass_is_rounded_up_and_rounding_errors_are_not():
    # 0.8 · 7 = 5.6 becomes 6
    assert weights([4, 2, 1], 0.8) == [4 / 6, 2 / 6, 0]
    # 0.28 · 25 is 7.000000000000001 in binary, and is 7
    assert weights([7, 6, 6, 6], 0.28) == [1, 0, 0, 0]


def test_keeping_everything_is_the_mean():
    assert weights([4, 2, 1, 1], 1.0) == [4 / 8, 2 / 8, 1 / 8, 1 / 8]


def test_each_slot_is_trimmed_by_its_own_number_of_devices():
    counts = torch.tensor([[6, 3, 1], [1, 0, 4]])
    result = aggregate("trimmed-mean", counts, torch.eye(3, dtype=torch.float64))
    expected = torch.tensor([[6 / 8, 2 / 8, 0], [0, 0, 1]], dtype=torch.float64)  # M = 8 of 10, 4 of 5
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=0)
