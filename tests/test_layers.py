"""The layout keeps its promise: stages do not import each other, extras stay where they belong."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import aircomp

SOURCE = Path(aircomp.__file__).parent
STAGES = {"device", "quantize", "encode", "channel", "decode", "aggregation", "server"}
COMMON = {"common", "errors"}
ROOT = {"__init__", "__main__", "errors", "link"}
"""The modules that belong to no room."""


def imports(path: Path) -> set[str]:
    """Return the dotted aircomp modules that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def parts(path: Path) -> set[str]:
    """Return the top-level parts of aircomp that a file imports."""
    return {name.split(".")[1] for name in imports(path) if name.startswith("aircomp.")}


def test_stages_do_not_import_each_other():
    wrong = {
        str(path.relative_to(SOURCE)): parts(path) - COMMON - {stage}
        for stage in STAGES
        for path in (SOURCE / stage).glob("*.py")
        if parts(path) - COMMON - {stage}
    }
    assert wrong == {}


def test_nothing_imports_the_command_line_or_plain_kernels():
    wrong = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for part, owners in {
            "cli": {"cli", "__main__.py"},
            "plain": {"plain", "bench"},
            "bench": {"bench", "cli"},
        }.items()
        if part in parts(path) and path.relative_to(SOURCE).parts[0] not in owners
    }
    assert wrong == set()


def test_only_the_command_line_knows_its_library():
    outside = [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] != "cli"]
    assert [path for path in outside if {"tyro", "rich"} & {name.split(".")[0] for name in imports(path)}] == []


def test_every_stage_folder_exists():
    assert {p.name for p in SOURCE.iterdir() if p.is_dir()} >= STAGES


def test_the_root_holds_no_crowd():
    assert {path.stem for path in SOURCE.glob("*.py")} <= ROOT


def test_rooms_do_not_import_each_other_in_a_circle():
    rooms = {path.name: set[str]() for path in SOURCE.iterdir() if path.is_dir()} | {name: set() for name in ROOT}
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        rooms[room] |= parts(path) & rooms.keys() - {room}
    rooms.pop("__init__")  # it imports public names when they are first used
    while free := [room for room, needed in rooms.items() if not needed & rooms.keys()]:
        for room in free:
            del rooms[room]
    assert rooms == {}


@pytest.mark.process
def test_every_module_can_be_imported_first():
    modules = [
        ".".join(["aircomp", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
        for path in SOURCE.rglob("*.py")
        if path.name not in ("__main__.py",)
    ]
    # one process that forgets aircomp between imports: a circular import shows whichever module comes first
    code = """
import importlib, sys
for name in sys.argv[1:]:
    for loaded in [m for m in sys.modules if m.split(".")[0] == "aircomp"]:
        del sys.modules[loaded]
    importlib.import_module(name)
"""
    subprocess.run([sys.executable, "-c", code, *modules], check=True)
