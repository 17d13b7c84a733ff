"""The page of the architecture is true: its drawing, its table of rooms, and its recipes, which run as they are pasted."""

import ast
import importlib
import re
import sys
from pathlib import Path

import pytest

import aircomp
from aircomp.cli import main
from aircomp.schemes.settings import SCHEMES

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
SOURCE = Path(aircomp.__file__).parent
TEXT = PAGE.read_text(encoding="utf-8")
EVERYWHERE = {"common", "errors"}
BLOCK = re.compile(r"^```(python|toml|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)
RECIPES = dict(re.findall(r"^### An? (\w+)\n(.*?)(?=^### |\Z)", TEXT, re.DOTALL | re.MULTILINE))


def imported(room: str) -> set[str]:
    """The rooms that a room imports."""
    folder, found = SOURCE / room, set()
    for path in folder.rglob("*.py") if folder.is_dir() else [folder.with_suffix(".py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aircomp"):
                found |= {node.module.split(".")[1]} if "." in node.module else {each.name for each in node.names}
            if isinstance(node, ast.Import):
                found |= {each.name.split(".")[1] for each in node.names if each.name.startswith("aircomp.")}
    return found - EVERYWHERE - {room, "__version__"}


def rows():
    """The table of rooms: name and what it may import."""
    lines = [line.split("|")[1:-1] for line in TEXT.split("## The rooms")[1].split("## Five recipes")[0].splitlines()]
    cells = [(line[0], line[2]) for line in lines if line and line[0].strip().startswith("`")]
    return [(re.findall(r"`(\w+)`", name)[0], allowed) for name, allowed in cells]


def test_the_table_has_every_room():
    rooms = {path.parent.name for path in SOURCE.glob("*/__init__.py")} | {"link"}
    assert {name for name, _ in rows()} == rooms


def test_a_room_imports_what_the_table_says_and_nothing_else():
    above = set()
    for name, allowed in rows():
        words = set(re.findall(r"`(\w+)`", allowed))
        if "all above but" in allowed:
            words = above - words - EVERYWHERE
        assert imported(name) == words, name
        above.add(name)


def test_the_drawing_is_that_of_the_link():
    (drawing,) = re.findall(r"^```text\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    assert drawing in (SOURCE / "link.py").read_text(encoding="utf-8")


def test_there_are_five_recipes():
    assert list(RECIPES) == ["scheme", "channel", "decoder", "rule", "study"]


@pytest.fixture
def leaving():
    """Let what a recipe enters and imports leave with it: other tests go through all schemes."""
    yield
    for names in (SCHEMES.loaded, sys.modules):
        for name in [name for name in names if name.startswith("toy")]:
            del names[name]


@pytest.mark.seconds
@pytest.mark.usefixtures("leaving")
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_runs_as_it_is_pasted(recipe, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    blocks = BLOCK.findall(RECIPES[recipe])
    assert len(blocks) == 2
    for kind, code in blocks:
        if saved := re.match(r"# (toy_\w+\.(?:py|toml))\n", code):
            Path(saved[1]).write_text(code, encoding="utf-8")
            importlib.invalidate_caches()
        elif kind == "sh":
            main(code.split()[1:])
        else:
            exec(compile(code, str(PAGE), "exec"), {"__name__": "recipe"})
    if recipe == "study":
        assert "analog" in capsys.readouterr().out
        assert (tmp_path / "runs" / "toy-study" / "report.html").is_file()
