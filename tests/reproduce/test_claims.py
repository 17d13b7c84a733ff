import pytest

from aircomp.reproduce.catalogue import RESULTS
from aircomp.reproduce.claims import CLAIMS, Claim, judge


def row(name, value, std):
    return {"way": name, "x": value, "x_std": std, "seeds": 4}


def verdict(one, other, spread, **claim):
    rows = [row("a", one, spread), row("b", other, spread)]
    (found,) = judge([Claim("a against b", "x", {"way": "a"}, {"way": "b"}, **claim)], rows)
    assert (found["one"], found["other"], found["one_std"]) == (one, other, spread)
    return found["verdict"]


# four seeds with a spread of .02 each: the difference has a standard error of .02 / 2 · √2 = .0141
@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [(0.80, 0.77, "seen"), (0.80, 0.78, "undecided"), (0.78, 0.80, "undecided"), (0.77, 0.80, "contradicted")],
)
def test_larger_needs_two_standard_errors(one, other, expected):
    assert verdict(one, other, 0.02) == expected


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
    assert judge([Claim("a against c", "x", {"way": "a"}, {"way": "c"})], [row("a", 1.0, None)]) == []


def test_every_result_has_claims():
    assert CLAIMS.keys() == RESULTS.keys()
