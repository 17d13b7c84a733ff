"""What federated digits must reach; minutes on two cores, so run by hand with `make test-slow`."""

import statistics

import pytest

from aircomp.federation.simulate import simulate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def accuracy(uplink, seeds=(0, 1, 2), **overrides):
    return statistics.fmean(
        simulate("digits", uplink=uplink, seed=seed, **overrides).row["test_accuracy_last5"] for seed in seeds
    )


def test_digits_over_the_ideal_uplink_reach_93_per_cent_in_60_rounds():
    assert accuracy("ideal") >= 0.93


def test_perfect_aggregation_stays_within_4_points_of_the_ideal_uplink():
    assert accuracy("perfect") >= accuracy("ideal") - 0.04


def test_gamp_at_10_db_stays_within_1_point_of_perfect_aggregation():
    assert accuracy("gamp", snr_db=10.0) >= accuracy("perfect") - 0.01
