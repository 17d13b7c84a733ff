"""Expected results of the arena: what they hold, what leaves them, and the tables that the docs make of them."""

import pytest

import aircomp
from aircomp.errors import ConfigError
from aircomp.studies import arena, expected
from aircomp.studies.arena import Comparison, Plan, check_whole, expected_rows, out_of_band, update_expected
from aircomp.studies.ranking import MEASURES, overview, winners

ROWS = [
    {
        "challenge": challenge,
        "value": value,
        "scheme": scheme,
        "side_information": "none",
        "ours": scheme == "digital",
        "seeds": 3,
        "raw_nmse": error * value,
        "raw_nmse_std": 0.001,
        "raw_nmse_values": [error * value - 0.001, error * value, error * value + 0.001],
    }
    for challenge in ("awgn", "phase")
    for value in (10.0, 20.0)
    for scheme, error in (("digital", 0.01), ("analog", 0.02))
]


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Keep expectations in a directory of the test; white noise and phases have been measured."""
    monkeypatch.setattr(expected, "folder", lambda: tmp_path / "expected")
    monkeypatch.setattr(arena, "jobs_of", lambda plan: ([], []))
    for name in ("phase", "awgn"):
        rows = [row for row in ROWS if row["challenge"] == name]
        update_expected(Comparison(Plan((name,)), rows, [], [], []), tmp_path)
    return tmp_path


def test_an_update_replaces_only_the_challenges_that_were_measured(kept):
    assert [row["challenge"] for row in expected_rows("round")] == ["awgn"] * 4 + ["phase"] * 4
    half = {"raw_nmse": 0.5, "raw_nmse_values": [0.5, 0.5, 0.5]}
    again = [row | half for row in ROWS if row["challenge"] == "awgn"]
    update_expected(Comparison(Plan(("awgn",)), again, [], [], []), kept)
    assert [row["raw_nmse"] == 0.5 for row in expected_rows("round")] == [True] * 4 + [False] * 4
    one = [row | half for row in ROWS if row["scheme"] == "analog"]
    update_expected(Comparison(Plan(("awgn", "phase"), ("analog",)), one, [], [], []), kept)
    assert len(expected_rows("round")) == 8, "other schemes stay"


def test_an_error_leaves_its_band_at_ten_percent_or_three_out_of_band(kept):
    assert out_of_band(ROWS, "round") == []
    assert out_of_band([ROWS[1] | {"raw_nmse": 1.09 * 0.2}], "round") == []
    (said,) = out_of_band([ROWS[1] | {"raw_nmse": 1.11 * 0.2}], "round")
    assert "raw_nmse of challenge awgn, scheme analog, value 10.0: 0.222 instead of 0.2 ± 0.02" in said
    assert out_of_band([ROWS[1] | {"scheme": "baa"}], "round") == ["awgn 10.0 baa was never measured"]


def test_only_whole_challenges_become_expected(small):
    check_whole(Plan(("awgn",)))
    for plan in (Plan(schemes=("mine:Scheme",)), Plan(settings={"rounds": 2}), Plan((small,))):
        with pytest.raises(ConfigError, match="and the challenges as they are"):
            check_whole(plan)


def test_an_overview_counts_points_and_margins(kept):
    (white, _) = overview(winners(ROWS, MEASURES["round"]))
    assert white["winners"] == "digital 2"
    assert white["our_verdicts"] == "wins 2"
    assert (white["our_lowest"], white["our_highest"]) == pytest.approx((3.01, 3.01), abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", Plan().chosen())
def test_a_rerun_is_as_expected(name, tmp_path_factory):
    """Half an hour on two cores for all challenges; they share the rounds that they have in common."""
    found = aircomp.arena([name], seeds=3, workers=2, out=tmp_path_factory.getbasetemp() / "arena")
    assert not found.failed
    assert out_of_band(found.rows, "round") == []
