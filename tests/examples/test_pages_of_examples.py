"""Examples: short, from public names alone, and the same on their page. The tests of a release run them."""

import ast
import re
from pathlib import Path

import pytest

import aircomp
import aircomp.testing

ROOT = Path(__file__).parents[2]
EXAMPLES = ("tabular", "regression", "characters", "lora", "unequal_clients", "own_loop", "recorded_gains")


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_forty_lines_at_most_and_its_page_holds_it_word_for_word(name):
    code = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "howto" / f"{name.replace('_', '-')}.md").read_text(encoding="utf-8")
    assert len(code.splitlines()) <= 40
    assert re.findall(r"```python\n(.*?)```", page, re.S)[0] == code


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_uses_public_names_alone(name):
    tree = ast.parse((ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8"))
    imported = [
        node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and "aircomp" in (node.module or "")
    ]
    assert imported == []
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "aircomp"
    }
    assert used
    assert used <= set(aircomp.__all__)
