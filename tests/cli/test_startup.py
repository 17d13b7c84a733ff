"""What is told without torch, whose import takes longer than all else that these commands do."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

SCRIPT = """
import sys
from aircomp.cli import main
try:
    main(sys.argv[1:])
except SystemExit as stop:
    print("torch" in sys.modules, stop.code or 0)
else:
    print("torch" in sys.modules, 0)
"""


def told(*args: str) -> str:
    run = subprocess.run([sys.executable, "-c", SCRIPT, *args], capture_output=True, text=True, check=True)
    return run.stdout.splitlines()[-1]


def test_importing_the_package_imports_no_torch():
    script = "import sys, aircomp; print({'torch', 'numpy', 'pydantic', 'tyro'} & {*sys.modules})"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"


@pytest.mark.parametrize("args", [["--help"], ["--version"]])
def test_help_needs_no_torch(args):
    assert told(*args) == "False 0"


@pytest.mark.parametrize(
    "args",
    [
        ["nosuch"],
        ["schemes", "--nosuch"],
        ["layers", "--nosuch"],
        ["report", "--nosuch"],
        ["export", "--nosuch"],
        ["data", "list", "--nosuch"],
        ["schemes", "--num-active", "x"],
    ],
    ids=" ".join,
)
def test_a_mistake_is_told_without_torch(args):
    assert told(*args) == "False 2"
