import math
import statistics

import pytest
import torch

from aircomp.common.rng import generator
from aircomp.studies.results import judged as judged_of
from aircomp.studies.scales import SCALES
from aircomp.studies.study import RESULTS, ClaimOfEach
from aircomp.studies.study import Claim as MadeClaim
from aircomp.studies.verdicts import HEADINGS, claim_tables, describe, judge

DIGITS, LAPTOP = SCALES["digits"], SCALES["laptop"]
TRIALS = 1500
CHANCE = 4 * math.sqrt(0.05 * 0.95 / TRIALS)
"""Four standard deviations of the share of `TRIALS` that is 5 % on average: a sound test leaves it once in 16,000 times."""


def Claim(says, field, a, b, **criterion):
    return MadeClaim(says=says, field=field, a=a, b=b, **criterion)


def row(name, values, field="x"):
    mean = statistics.fmean(values)
    return {"way": name, field: mean, f"{field}_std": 0.1, f"{field}_values": list(values), "seeds": len(values)}


def judged(a, b, *, field="x", scale=DIGITS, **claim):
    (found,) = judge(
        [Claim("a against b", field, {"way": "a"}, {"way": "b"}, **claim)],
        [row("a", a, field), row("b", b, field)],
        scale,
    )
    return found


def verdict(a, b, **options):
    return judged(a, b, **options)["verdict"]


def simulated(seeds, difference, spread, trials=TRIALS, **claim):
    """Return the share of each verdict over many results whose seeds vary much, but alike, and differ by what is known."""
    rng = generator(0, "simulated results")
    b = 0.8 + 0.2 * torch.randn(trials, seeds, dtype=torch.float64, generator=rng)
    a = b + difference + spread * torch.randn(trials, seeds, dtype=torch.float64, generator=rng)
    found = [verdict(x, y, **claim).split()[0] for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    return {name: found.count(name) / trials for name in ("seen", "contradicted", "undecided")}


@pytest.mark.parametrize("seeds", [3, 10])
def test_equal_ways_are_told_apart_once_in_twenty_times_to_either_side(seeds):
    found = simulated(seeds, difference=0.0, spread=0.01)
    assert found["seen"] == pytest.approx(0.05, abs=CHANCE)
    assert found["contradicted"] == pytest.approx(0.05, abs=CHANCE)


def test_a_difference_of_the_margin_is_seen_once_in_twenty_times():
    assert simulated(10, difference=0.1, spread=0.01, margin=0.1)["seen"] == pytest.approx(0.05, abs=CHANCE)


def test_ways_as_far_apart_as_the_margin_are_near_once_in_twenty_times():
    for difference in (
        0.02,
        -0.02,
    ):  # six standard errors from the other end: one end decides
        found = simulated(10, difference=difference, spread=0.02, kind="near", margin=0.02)
        assert found["seen"] == pytest.approx(0.05, abs=CHANCE)
        assert found["contradicted"] == pytest.approx(0.05, abs=CHANCE)


def test_what_differs_clearly_is_seen_and_what_is_equal_is_near():
    # six standard errors (.01 / √10) beyond the margin: t's quantile for ten seeds is 1.83
    clear = 6 * 0.01 / math.sqrt(10)
    settings = {"seeds": 10, "spread": 0.01, "trials": 200}
    assert simulated(difference=clear, **settings)["seen"] > 0.98
    assert simulated(difference=-clear, **settings)["contradicted"] > 0.98
    assert simulated(difference=0.0, kind="near", margin=clear, **settings)["seen"] > 0.98
    assert simulated(difference=2 * clear, kind="near", margin=clear, **settings)["contradicted"] > 0.98


def test_few_seeds_that_vary_are_not_near_although_their_means_are():
    assert verdict([0.80, 0.84, 0.76], [0.80, 0.76, 0.84], kind="near", margin=0.02) == "undecided on digits"


# differences of d − .01, d, d + .01: the quantile for three seeds is 2.92, that is 2.92 · .01 / √3 = .0169
@pytest.mark.parametrize(
    ("difference", "expected"), [(0.018, "seen"), (0.016, "undecided"), (-0.016, "undecided"), (-0.018, "contradicted")]
)
def test_three_seeds_take_the_quantile_for_three(difference, expected):
    seeds = (0.6, 0.8, 1.0)
    a = [seed + difference + more for seed, more in zip(seeds, (-0.01, 0, 0.01), strict=True)]
    assert verdict(a, seeds) == f"{expected} on digits"


def test_one_seed_decides_nothing():
    assert verdict([0.9], [0.1]) == "undecided on digits: 1 seed, needs 2"


def test_points_of_few_test_images_take_ten_seeds():
    three, ten = [0.9, 0.91, 0.92], [0.9 + 0.001 * seed for seed in range(10)]
    options = {"field": "test_accuracy_last5"}
    assert verdict(three, [0.1, 0.1, 0.1], **options) == "undecided on digits: 3 seeds, needs 10"
    assert verdict(ten, [0.1] * 10, **options) == "seen on digits"
    assert verdict(three, [0.1, 0.1, 0.1]) == "seen on digits", "other numbers do not count test images"
    assert verdict(three, [0.1, 0.1, 0.1], scale=LAPTOP, **options) == "seen on laptop", "nor are there few"
    nine_pairs = [None, *ten[1:]]
    found = judge(
        [Claim("", "test_accuracy", {"way": "a"}, {"way": "b"})],
        [row("a", ten, "test_accuracy"), row("b", ten, "test_accuracy") | {"test_accuracy_values": nine_pairs}],
        DIGITS,
    )
    assert found[0]["verdict"] == "undecided on digits: 9 seeds, needs 10"


def test_a_row_says_what_was_compared_with_what():
    found = judged([0.9, 0.8], [0.5, 0.5], margin=0.1)
    names = ["claim", "section", "a", "a_value", "a_value_std", "b", "b_value", "b_value_std", "margin", "verdict"]
    assert list(found) == names
    assert (found["a"], found["a_value"], found["b"], found["b_value"]) == ("a", pytest.approx(0.85), "b", 0.5)
    assert found["margin"] == "A − B > 0.1"
    assert judged([1.0, 1.0], [1.0, 1.0], kind="near", margin=0.05)["margin"] == "|A − B| < 0.05"
    assert list(HEADINGS.values()) == ["A", "value", "B", "value", "margin", "verdict"]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({"uplink": "perfect"}, "perfect aggregation"),
        ({"uplink": "amp-da", "snr_db": 0.0}, "AMP-DA at 0 dB"),
        (
            {"error_feedback": "off", "noise": "×10", "rule": "trimmed-mean"},
            "trimmed mean, error feedback off, noise ×10",
        ),
    ],
)
def test_rows_are_named_by_what_they_hold(where, words):
    assert describe(where) == words


def test_a_claim_about_what_was_not_measured_is_left_out():
    assert judge([Claim("a against c", "x", {"way": "a"}, {"way": "c"})], [row("a", [1.0])], DIGITS) == []


@pytest.mark.parametrize("name", RESULTS.names())
def test_every_result_has_claims_that_can_be_told_apart(name):
    claims = RESULTS.load(name).claims
    sides = [(claim.field, describe(claim.a), describe(claim.b)) for claim in claims]
    assert claims
    assert len(set(sides)) == len(sides)
    assert all(a != b for _, a, b in sides)


def test_a_claim_of_each_is_made_with_every_combination_or_those_that_are_listed():
    told = {"says": "{way} at {snr_db:g} dB", "field": "x", "b": {"way": "b", "snr_db": "each"}}
    told["a"] = {"way": "each", "snr_db": "each"}
    every = list(ClaimOfEach.parse(told | {"each": {"way": ["c", "d"], "snr_db": [0.0, 5.0]}}).claims())
    assert [claim.says for claim in every] == ["c at 0 dB", "c at 5 dB", "d at 0 dB", "d at 5 dB"]
    assert (every[1].a, every[1].b) == ({"way": "c", "snr_db": 5.0}, {"way": "b", "snr_db": 5.0})
    (listed,) = ClaimOfEach.parse(told | {"each": [{"way": "c", "snr_db": 0.0, "margin": 0.3}]}).claims()
    assert (listed.says, listed.margin) == ("c at 0 dB", 0.3)


# ── ties ──


def tied(*others, a, b, field="test_accuracy_last5", scale=LAPTOP, **claim):
    """Judge "a against b" beside other schemes."""
    rows = [row(name, values, field) for name, values in (("a", a), ("b", b), *others)]
    for each in rows:
        each[f"{field}_std"] = statistics.stdev(each[f"{field}_values"])
    (found,) = judge([Claim("a against b", field, {"way": "a"}, {"way": "b"}, **claim)], rows, scale)
    return found["verdict"]


ALIKE = [0.650, 0.652, 0.648]
LOWER = [0.640, 0.642, 0.638]
TIE = "cannot judge: all schemes tie here, on laptop; it takes a set-up in which some differ by more than "


def test_nothing_is_contradicted_where_all_schemes_tie():
    # a collapse of ten points, where nobody loses more than one
    assert tied(("c", ALIKE), a=ALIKE, b=LOWER, margin=0.1) == TIE + "0.1"
    # b is a point above a, surely, and that is nothing
    assert tied(("c", ALIKE), a=LOWER, b=ALIKE) == TIE + "0.02"


def test_a_set_up_that_tells_some_schemes_apart_contradicts():
    fallen = [0.101, 0.099, 0.100]
    assert tied(("c", fallen), a=ALIKE, b=LOWER, margin=0.1) == "contradicted on laptop"
    assert tied(("c", fallen), a=LOWER, b=ALIKE) == "contradicted on laptop"


def test_two_schemes_that_differ_are_no_tie():
    assert tied(a=LOWER, b=[0.90, 0.91, 0.89]) == "contradicted on laptop"
    assert tied(a=LOWER, b=[0.90, 0.91, 0.89], kind="near", margin=0.05) == "contradicted on laptop"


def test_a_tie_is_seen_where_it_is_claimed_and_undecided_where_seeds_do_not_tell():
    assert tied(("c", ALIKE), a=ALIKE, b=LOWER, kind="near", margin=0.05) == "seen on laptop"
    assert tied(("c", ALIKE), a=ALIKE, b=[0.66, 0.64, 0.65]) == "undecided on laptop"


def test_a_difference_within_the_noise_is_a_tie_and_a_sure_one_is_none():
    noisy, sure = [0.9, 0.4, 0.8], [0.70, 0.71, 0.69]  # both five points above on average
    assert tied(("c", noisy), a=LOWER, b=ALIKE) == TIE + "0.02"
    assert tied(("c", sure), a=LOWER, b=ALIKE) == "contradicted on laptop"


def test_a_number_without_a_negligible_difference_is_contradicted_by_a_small_sure_one():
    assert tied(a=LOWER, b=ALIKE, field="num_active_mae") == "contradicted on laptop"


def test_only_rows_of_the_same_place_belong_to_a_comparison():
    def at(way, snr_db, values):
        return row(way, values, "count_accuracy") | {"snr_db": snr_db, "count_accuracy_std": 0.002}

    claim = Claim("", "count_accuracy", {"way": "a", "snr_db": 5.0}, {"way": "b", "snr_db": 5.0})
    rows = [at("a", 5.0, LOWER), at("b", 5.0, ALIKE), at("b", 0.0, [0.1, 0.1, 0.1])]
    assert judge([claim], rows, LAPTOP)[0]["verdict"] == TIE + "0.02"
    without_noise = row("c", [0.9, 0.9, 0.9], "count_accuracy")  # which has no SNR, and so belongs to all
    assert judge([claim], [*rows, without_noise], LAPTOP)[0]["verdict"] == "contradicted on laptop"


# ── who says it ──


@pytest.mark.parametrize("name", RESULTS.names())
def test_only_results_of_the_paper_have_claims_of_the_paper(name):
    result = RESULTS.load(name)
    assert result.statement.startswith("The paper (Sec. " if result.section else "We add: ")
    assert ("paper" in {claim.source for claim in result.claims}) == bool(result.section)
    sides = [where for claim in result.claims if claim.source == "paper" for where in (claim.a, claim.b)]
    assert not [where for where in sides if "gamp" in str(where)], "the paper says nothing of our schemes"


def test_there_are_two_tables():
    rows = [
        {"trained_on": name, "test_accuracy_last5": 0.5, "test_accuracy_last5_values": [0.5, 0.5]}
        for name in ("the other architecture", "the same architecture", "perfect aggregation")
    ]
    paper, ours = claim_tables(judged_of(RESULTS.load("generalisation"), rows, LAPTOP))
    assert (paper.title, ours.title) == ("The paper claims", "We add")
    assert [each["section"] for each in paper.rows] == ["Sec. V-B, Fig. 7"]
    assert (paper.columns["claim"], ours.columns["claim"]) == ("the paper claims", "we add")
    assert "section" not in ours.columns
    assert [each["claim"] for each in ours.rows] == ["It stays near perfect aggregation"]
