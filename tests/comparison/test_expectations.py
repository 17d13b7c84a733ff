"""Expected results of the arena: what they hold, what leaves them, and the tables that the docs make of them."""

import re
from pathlib import Path

import pytest

import aircomp
from aircomp.comparison import docs, expected
from aircomp.comparison.challenges import challenge_names
from aircomp.comparison.expected import KEPT, check_whole, deviations, update
from aircomp.comparison.judge import MEASURES, overview, winners
from aircomp.comparison.run import Comparison, Plan
from aircomp.errors import ConfigError

DOCS = Path(__file__).parents[2] / "docs"
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
    for name in ("phase", "awgn"):
        update(Comparison(Plan((name,)), [row for row in ROWS if row["challenge"] == name], [], [], []))
    return tmp_path


def test_an_update_replaces_only_the_challenges_that_were_measured(kept):
    found = expected.expected("round")
    assert found is not None
    assert [row["challenge"] for row in found["rows"]] == ["awgn"] * 4 + ["phase"] * 4
    again = [row | {"raw_nmse": 0.5} for row in ROWS if row["challenge"] == "awgn"]
    update(Comparison(Plan(("awgn",)), again, [], [], []))
    found = expected.expected("round")
    assert found is not None
    assert [row["raw_nmse"] == 0.5 for row in found["rows"]] == [True] * 4 + [False] * 4


def test_an_error_leaves_its_band_at_ten_percent_or_three_deviations(kept):
    assert deviations(ROWS, "round") == []
    assert deviations([ROWS[1] | {"raw_nmse": 1.09 * 0.2}], "round") == []
    (said,) = deviations([ROWS[1] | {"raw_nmse": 1.11 * 0.2}], "round")
    assert "raw_nmse of challenge awgn, scheme analog, value 10.0: 0.222 instead of 0.2 ± 0.02" in said
    assert deviations([ROWS[1] | {"scheme": "baa"}], "round") == ["awgn 10.0 baa was never measured"]


def test_only_whole_challenges_become_expected(small):
    check_whole(Plan(("awgn",)))
    for plan in (Plan(schemes=("analog",)), Plan(settings={"rounds": 2}), Plan((small,))):
        with pytest.raises(ConfigError, match="takes the challenges as they are"):
            check_whole(plan)


def test_an_overview_counts_points_and_margins(kept):
    (white, _) = overview(winners(ROWS, MEASURES["round"]))
    assert white["winners"] == "digital 2"
    assert white["our_verdicts"] == "wins 2"
    assert (white["our_lowest"], white["our_highest"]) == pytest.approx((3.01, 3.01), abs=0.01)


def test_blocks_are_filled_and_what_was_not_measured_is_said(kept):
    page = kept / "docs" / "page.md"
    page.parent.mkdir()
    kinds = ["points phase", "goals", "schemes awgn", "families awgn", "margins digital analog awgn", "figure awgn"]
    page.write_text("".join(f"<!-- arena round {kind} -->\nold\n<!-- end -->\n" for kind in [*kinds, "overview"]))
    page.write_text(page.read_text() + "<!-- arena training points awgn -->\n<!-- end -->\n")
    made = docs.pages(page.parent)
    text = made[page]
    assert "old" not in text
    assert "| 20 | `digital` | 0.2 | `analog` | 3.01 (2.98 to 3.04) | wins | `digital` | 3.01 | wins |" in text
    assert "| `phase` 20 | `digital` | `analog` | 3.01 | wins |" in text  # ten degrees are no goal
    assert "| `phase` 10 | `digital` | `analog` |" not in text
    assert "| `digital` | 0.1 ± 0.0 | 0.2 ± 0.0 |" in text
    assert "| 10 | 0.1 `digital` | 0.2 `analog` |" in text
    assert "| `awgn` 10 | 0.1 | 0.2 | 3.01 (" in text
    assert "Not measured yet: `aircomp arena --challenge awgn --task training --seeds 3`." in text
    assert "`aircomp arena --challenge phase --task round --seeds 3`" in text
    assert [path.name for path in made] == ["page.md", "arena-round-awgn.svg"]
    page.write_text(text)
    assert docs.pages(page.parent)[page] == text


def test_every_block_of_the_docs_is_of_a_known_kind():
    for page in DOCS.rglob("*.md"):
        for match in re.finditer(r"<!-- arena (\w+) (\w+)", page.read_text(encoding="utf-8")):
            assert match[1] in KEPT
            assert match[2] in (*docs.KINDS, "figure")


@pytest.mark.slow
@pytest.mark.parametrize("name", challenge_names())
def test_a_rerun_is_as_expected(name, tmp_path_factory):
    """Half an hour on two cores for all challenges; they share the rounds that they have in common."""
    found = aircomp.arena([name], seeds=3, workers=2, out=tmp_path_factory.getbasetemp() / "arena")
    assert not found.failed
    assert deviations(found.rows, "round") == []
