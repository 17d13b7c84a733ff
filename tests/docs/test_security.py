"""The page about security names tests that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_promise_names_a_test_that_exists():
    named = re.findall(r"`(tests/[\w/.]+)`", (ROOT / "docs" / "security.md").read_text())
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).is_file()] == []
