"""The core needs none of the extras, and says which one to install where one is missing."""

import json
import os
import pkgutil
import subprocess
import sys

import pytest

import aircomp
from helpers.settings import SMALL, flags

pytestmark = pytest.mark.process

EXTRAS = ("flwr", "huggingface_hub", "mlxtend", "onnx", "onnxruntime", "onnxscript", "ray", "sionna", "tensorboard")
HIDE = f"""
import sys
class Hiding:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {EXTRAS} else self.finder.find_spec(name, path, target)
sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
"""


def without_extras(code: str, cwd) -> subprocess.CompletedProcess:
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", HIDE + code], capture_output=True, text=True, cwd=cwd, env=env, timeout=120, check=False
    )


def command(*args: str) -> str:
    return f"sys.argv = ['aircomp', *{list(args)!r}]\nfrom aircomp.cli import main\nsys.exit(main())"


def test_every_module_but_the_adapters_imports_and_a_run_works(tmp_path):
    walked = pkgutil.walk_packages(aircomp.__path__, "aircomp.")  # takes a library of compiled kernels for a module
    modules = [m.name for m in walked if m.module_finder.find_spec(m.name).origin.endswith(".py")]
    names = [name for name in modules if not name.startswith("aircomp.adapters.") and name != "aircomp.__main__"]
    assert len(names) > 60
    code = f"import importlib\nfor name in {names}: importlib.import_module(name)\n"
    small = flags(SMALL | {"rounds": 1, "engine": "serial"})
    done = without_extras(code + command("simulate", "digits", *small, "--out", "run"), tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "result.json").exists()


TAPPED = ("--channel", "standard", "--channel.model", "tdl-a")
NEEDING = {
    "ray": command("simulate", "digits", *flags(SMALL), "--engine", "ray", "--rounds", "1"),
    "sionna": command("simulate", "digits", *flags(SMALL), *TAPPED, "--engine", "serial", "--rounds", "1"),
    "mnist": command("simulate", "mnist"),
    "onnx": command("export", "--format", "onnx", "--out", "decoder.onnx"),
    "flower": "import aircomp.adapters.flower",
    "hub": "import aircomp\naircomp.CommunicationLayer.load().save_pretrained('layer')",
}
"""What needs each extra."""
TRY_ALL = f"""
import contextlib, io, json, traceback
found = {{}}
for extra, code in {NEEDING!r}.items():
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            found[extra] = [exec(code, {{"sys": sys}}) or 0, ""]
        except SystemExit as ended:
            found[extra] = [ended.code, said.getvalue()]
        except Exception:
            found[extra] = [1, traceback.format_exc()]
with open("found.json", "w") as file:
    json.dump(found, file)
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Return how each ended, and what it said: all of them in one process, which takes seconds to begin."""
    place = tmp_path_factory.mktemp("without")
    done = without_extras(TRY_ALL, place)
    assert done.returncode == 0, done.stderr
    return json.loads((place / "found.json").read_text())


@pytest.mark.parametrize("extra", NEEDING)
def test_what_needs_an_extra_says_which(extra, told):
    code, said = told[extra]
    assert code != 0
    assert f"aircomp[{extra}]" in said.splitlines()[-1], said
