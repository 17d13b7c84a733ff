"""The layout keeps its promise: stages do not import each other, extras stay where they belong."""

import ast
import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import aircomp

SOURCE = Path(aircomp.__file__).parent
STAGES = {"device", "quantize", "encode", "channel", "decoders", "aggregation", "server"}
COMMON = {"common", "errors"}
ROOT = {"__init__", "__main__", "errors", "link"}
"""The modules that belong to no room."""
MOST_FILES = 85
"""Of the package, that one round of the digits imports: those of the parts that its settings name."""


@functools.cache
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
        for path in (SOURCE / stage).rglob("*.py")
        if parts(path) - COMMON - {stage}
    }
    assert wrong == {}


def test_nothing_imports_the_command_line():
    outside = [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] not in ("cli", "__main__.py")]
    assert [path for path in outside if "cli" in parts(path)] == []


def test_nothing_imports_what_is_not_in_the_package():
    outside = ("plain", "helpers", "tests", "benchmarks", "tools", "examples")
    assert [path for path in SOURCE.rglob("*.py") if {name.split(".")[0] for name in imports(path)} & {*outside}] == []


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
    assert circles(rooms) == {}


def test_every_module_can_be_imported_first():
    # without a circle, whichever module comes first finds all that it needs complete
    needed = {path: loaded_by(path) for path in SOURCE.rglob("*.py")}
    assert circles(needed) == {}


@pytest.mark.process
def test_one_round_imports_the_parts_that_its_settings_name_and_no_others():
    script = "import sys, aircomp; aircomp.simulate('digits', rounds=1, workers=1); print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    modules = {name for name in found.stdout.splitlines()[-1].split() if name.partition(".")[0] == "aircomp"}
    others = (
        "channel.fading",
        "decoders.net.gamp_net",
        "schemes.digital.pilots",
        "data.readers",
        "engines.local",
        "device.together",
    )
    assert modules & {f"aircomp.{name}" for name in others} == set()
    assert len(modules) <= MOST_FILES


def test_a_circle_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr("test_layers.SOURCE", tmp_path)
    texts = {
        "__init__.py": "",
        "a.py": "import aircomp.room.b",
        "room/__init__.py": "from aircomp.room.b import f",
        "room/b.py": "from aircomp.room import c\ndef f():\n    import aircomp.a",
        "room/c.py": "",
    }
    (tmp_path / "room").mkdir()
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    assert circles({tmp_path / name: loaded_by(tmp_path / name) for name in texts}) == {}
    (tmp_path / "room/c.py").write_text("try:\n    from aircomp.room import f\nexcept ImportError:\n    pass")
    found = circles({tmp_path / name: loaded_by(tmp_path / name) for name in texts})
    assert {path.name for path in found} == {"a.py", "__init__.py", "b.py", "c.py"}


def circles(needed: dict[Any, set[Any]]) -> dict[Any, set[Any]]:
    """Return what is left of a graph after all that needs nothing, again and again, was taken away."""
    left = dict(needed)
    while free := [name for name, others in left.items() if not others & left.keys()]:
        for name in free:
            del left[name]
    return left


def loaded_by(path: Path) -> set[Path]:
    """Return the files of aircomp that have to be complete when a file is imported: what it imports outside functions."""
    todo: list[ast.AST] = [ast.parse(path.read_text())]
    found = set[Path]()
    while todo:
        match todo.pop():
            case ast.ImportFrom(module=str(module), names=names):
                found |= {file for alias in names for file in files_of(f"{module}.{alias.name}", path)}
            case ast.Import(names=names):
                found |= {file for alias in names for file in files_of(alias.name, path)}
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.If(test=ast.Name(id="TYPE_CHECKING")):
                pass
            case node:
                todo += ast.iter_child_nodes(node)
    return found


def files_of(module: str, importer: Path) -> set[Path]:
    """Return the file of a dotted name, and the packages on the way to it; those around the importer are begun already."""
    names = module.split(".")
    steps = [SOURCE.joinpath(*names[1:end]) for end in range(1, len(names) + 1)] if names[0] == "aircomp" else []
    files = [file for step in steps for file in (step / "__init__.py", step.with_suffix(".py")) if file.exists()]
    return {file for file in files if file is files[-1] or file.parent not in importer.parents}
