import io
import re

import pytest

from aircomp.cli.common import print_table

PROSE = "the mean energy of what devices want to send, which sets their common scale"
ROWS = [
    {"uplink": "md-aircomp-plus", "channel_uses": 863168, "energy": 13487.0, "error": 0.03635, "told": PROSE},
    {"uplink": "amp-da", "channel_uses": 0, "energy": None, "error": 1.25, "told": "none"},
]
COLUMNS = {
    "uplink": "uplink",
    "channel_uses": "channel uses of a round",
    "energy": "energy per device (codewords)",
    "error": "error of the decoded update",
    "told": "side information",
}


class Screen(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def printed(monkeypatch):
    """Print a table on a terminal of some columns, or into a file; return its lines."""

    def lines(rows, columns, width=None):
        out = io.StringIO() if width is None else Screen()
        monkeypatch.setattr("sys.stdout", out)
        monkeypatch.setenv("COLUMNS", str(width or 80))
        print_table("a table", rows, columns)
        return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()

    return lines


@pytest.mark.parametrize("width", [20, 60, 80, 100, 140])
def test_a_table_cuts_no_word_and_no_number_on_any_terminal(width, printed):
    lines = printed(ROWS, COLUMNS, width)
    words = {word for line in lines for word in line.split()}
    assert {"md-aircomp-plus", "863,168", "13,487", "0.03635", "(codewords)", *PROSE.split()} <= words
    assert "…" not in "".join(lines)
    assert width < 60 or max(map(len, lines)) <= width


def test_columns_that_do_not_fit_follow_in_a_further_table_with_the_names(printed):
    lines = printed(ROWS, COLUMNS, 60)
    assert sum("md-aircomp-plus" in line for line in lines) == sum(line.startswith("┏") for line in lines) == 2
    assert sum("a table" in line for line in lines) == 1


def test_every_part_of_a_table_begins_with_the_columns_that_tell_its_rows_apart(printed):
    points = [{"challenge": c, "value": v} for c in ("awgn", "phase") for v in (0, 10)]
    rows = [point | {f"measured {n}": 1000.0 * n + place for n in range(9)} for place, point in enumerate(points)]
    lines = printed(rows, {name: name for name in rows[0]}, 60)
    headings = [line for line in lines if "challenge" in line]
    assert len(headings) == sum(line.startswith("┏") for line in lines) > 1
    assert all("value" in line for line in headings)


def test_a_column_that_says_the_same_in_all_rows_is_told_once(printed):
    rows = [row | {"seeds": 3, "nothing": None} for row in ROWS]
    lines = printed(rows, COLUMNS | {"seeds": "seeds", "nothing": "never measured"}, 140)
    assert lines[0] == "a table; in all rows: seeds 3"
    assert not any("seeds" in line or "measured" in line for line in lines[1:])
    assert sum("md-aircomp-plus" in line for line in printed([ROWS[0], ROWS[0]], COLUMNS, 140)) == 2  # rows stay


def test_a_single_row_is_a_list_without_a_blank_heading(printed):
    lines = printed(ROWS[:1], COLUMNS)
    assert len(lines) == 1 + 2 + len(COLUMNS)


def test_a_file_has_no_edge(printed):
    lines = printed(ROWS, COLUMNS)
    assert len(lines) == 7  # a title, a heading between rules, two rows and a rule
    assert PROSE in lines[4]


def test_numbers_have_four_digits_and_thousands_are_set_apart(printed):
    numbers = (999.94, 999.96, 13487.4, 863168, 10**17 + 1, 2e9, -1234.5, 5e-7, 12.0, True, "2024")
    lines = printed([{str(i): number for i, number in enumerate(numbers)}], {str(i): "" for i in range(len(numbers))})
    shown = [line.split("│")[2].strip() for line in lines if line.startswith("│")]
    large = "100,000,000,000,000,001"
    assert shown == ["999.9", "1,000", "13,487", "863,168", large, "2e+09", "-1,234", "5e-07", "12", "True", "2024"]
