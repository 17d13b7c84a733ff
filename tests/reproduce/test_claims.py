import statistics

import pytest

from aircomp.reproduce.catalogue import RESULTS
from aircomp.reproduce.claims import CLAIMS, Claim, judge


def row(name, values):
    return {"way": name, "x": statistics.fmean(values), "x_std": 0.1, "x_values": values, "seeds": len(values)}


def verdict(one, other, spread, **claim):
    """Judge two ways whose seeds vary much, but alike: their difference varies by `spread` only."""
    seeds = (-0.2, 0.0, 0.2)
    varied = [other + seed + spread * sign for seed, sign in zip(seeds, (-1, 0, 1), strict=True)]
    rows = [row("a", [one + seed for seed in seeds]), row("b", varied)]
    (found,) = judge([Claim("a against b", "x", {"way": "a"}, {"way": "b"}, **claim)], rows)
    assert (found["one"], found["other"], found["one_std"]) == (pytest.approx(one), pytest.approx(other), 0.1)
    return found["verdict"]


# three differences with a spread of .01: 2.92 standard errors are 2.92 · .01 / √3 = .0169
@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [(0.80, 0.78, "seen"), (0.80, 0.785, "undecided"), (0.785, 0.80, "undecided"), (0.78, 0.80, "contradicted")],
)
def test_larger_must_be_more_than_chance(one, other, expected):
    assert verdict(one, other, 0.01) == expected


def test_one_seed_decides_nothing():
    claim = Claim("a against b", "x", {"way": "a"}, {"way": "b"})
    assert [found["verdict"] for found in judge([claim], [row("a", [0.9]), row("b", [0.1])])] == ["undecided"]


def test_a_margin_must_be_exceeded():
    assert verdict(0.80, 0.75, 0.001, margin=0.1) == "contradicted"
    assert verdict(0.80, 0.65, 0.001, margin=0.1) == "seen"


@pytest.mark.parametrize(
    ("other", "spread", "expected"),
    [(0.79, 0.001, "seen"), (0.81, 0.001, "seen"), (0.77, 0.02, "undecided"), (0.7, 0.02, "contradicted")],
)
def test_near_is_either_side_of_the_margin(other, spread, expected):
    assert verdict(0.80, other, spread, kind="near", margin=0.02) == expected


def test_a_claim_about_what_was_not_measured_is_left_out():
    assert judge([Claim("a against c", "x", {"way": "a"}, {"way": "c"})], [row("a", [1.0])]) == []


def test_every_result_has_claims():
    assert CLAIMS.keys() == RESULTS.keys()
