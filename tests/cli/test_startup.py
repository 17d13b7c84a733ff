"""What is told without torch, whose import takes longer than all else that these commands do."""

import subprocess
import sys

import pytest

from aircomp.cli import COMMANDS
from aircomp.schemes.settings import SCHEMES, SchemeSettings, scheme_names

pytestmark = pytest.mark.process

SCRIPT = """
import sys, time
from aircomp.cli import main
for args in sys.argv[1:]:
    try:
        main(args.split())
    except SystemExit as stop:
        code = stop.code or 0
    else:
        code = 0
    print("torch" in sys.modules, code, time.process_time())
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


def run(*commands: str) -> "subprocess.CompletedProcess[str]":
    """Run commands one after the other in one process; after each stand whether torch was imported, its code, and seconds."""
    return subprocess.run([sys.executable, "-c", SCRIPT, *commands], capture_output=True, text=True, check=True)


def told(*commands: str) -> list[str]:
    return [
        line.rpartition(" ")[0] for line in run(*commands).stdout.splitlines() if line.startswith(("True", "False"))
    ]


def test_importing_the_package_imports_no_torch():
    script = "import sys, aircomp; print({'torch', 'numpy', 'pydantic', 'tyro'} & {*sys.modules})"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"


def test_help_needs_no_torch():
    assert told("--help", "--version") == ["False 0", "False 0"]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_imports_torch_for_a_mistyped_flag_or_for_its_help(command):
    words = " ".join([command, *WITH_MORE.get(command, [])])
    found = run(f"{words} --nosuch", f"{words} --help")
    mistake, *_, helped = [line.rpartition(" ") for line in found.stdout.splitlines() if line.startswith("False")]
    assert (mistake[0], helped[0]) == ("False 2", "False 0")
    assert "--nosuch" in found.stderr
    assert float(mistake[2]) < MOST_SECONDS


def test_a_mistake_is_told_without_torch():
    mistakes = [
        "nosuch",
        "schemes --num-active x",
        "simulate digits --uplink fsk-mv --uplink.rate -1",
        "simulate digits --channel fading --power.threshold 2",
        "pretrain --preset blind-net --fading.antennas 0",
    ]
    assert told(*mistakes) == ["False 2"] * len(mistakes)


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
