"""What is told without torch, whose import takes longer than all else that these commands do."""

import resource
import subprocess
import sys

import pytest

from aircomp.cli import COMMANDS
from aircomp.schemes.settings import SCHEMES, SchemeSettings, scheme_names

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
MOST_SECONDS = 2.0
"""Of processor time for a mistake: alone on a core it takes .3 to .6 s, on a busy machine up to twice that; with torch it
takes more than two seconds in the best case."""
WITH_MORE = {
    "simulate": ["digits"],
    "central": ["digits"],
    "collect": ["digits"],
    "data": ["list"],
    "list": ["data"],
    "evaluate": ["--fragments", "some"],
}
"""What a command needs to get as far as its flags."""


def run(*args: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", SCRIPT, *args], capture_output=True, text=True, check=True)


def told(*args: str) -> str:
    return run(*args).stdout.splitlines()[-1]


def test_importing_the_package_imports_no_torch():
    script = "import sys, aircomp; print({'torch', 'numpy', 'pydantic', 'tyro'} & {*sys.modules})"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"


@pytest.mark.parametrize("args", [["--help"], ["--version"]])
def test_help_needs_no_torch(args):
    assert told(*args) == "False 0"


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_imports_torch_for_a_mistyped_flag_or_for_its_help(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = run(command, *WITH_MORE.get(command, []), "--nosuch")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert found.stdout.splitlines()[-1] == "False 2"
    assert "--nosuch" in found.stderr
    assert after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime < MOST_SECONDS
    assert told(command, *WITH_MORE.get(command, []), "--help") == "False 0"


@pytest.mark.parametrize(
    "args",
    [
        ["nosuch"],
        ["schemes", "--num-active", "x"],
        ["simulate", "digits", "--uplink", "fsk-mv", "--uplink.rate", "-1"],
        ["simulate", "digits", "--channel", "fading", "--power.threshold", "2"],
        ["pretrain", "--preset", "blind-net", "--fading.antennas", "0"],
    ],
    ids=" ".join,
)
def test_a_mistake_is_told_without_torch(args):
    assert told(*args) == "False 2"


def test_the_settings_of_every_scheme_of_the_package_need_no_torch():
    script = f"""
import sys
from aircomp.schemes.settings import SchemeSettings
print([type(SchemeSettings(name=name)).__name__ for name in {scheme_names()}], "torch" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    on_the_classes = [SCHEMES[name].settings_class.__name__ for name in scheme_names()]
    assert found.stdout == f"{on_the_classes} False\n"
    assert all(type(SchemeSettings(name=name)) is SCHEMES[name].settings_class for name in scheme_names())
