"""The core needs none of the extras, and says which one to install where one is missing."""

import os
import pkgutil
import subprocess
import sys

import pytest

import aircomp
from helpers.settings import SMALL, flags

pytestmark = pytest.mark.process

EXTRAS = ("flwr", "huggingface_hub", "onnx", "onnxruntime", "onnxscript", "ray", "sionna", "tensorboard")
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
    walked = pkgutil.walk_packages(aircomp.__path__, "aircomp.")
    names = [m.name for m in walked if not m.name.startswith("aircomp.adapters.") and m.name != "aircomp.__main__"]
    assert len(names) > 60
    code = f"import importlib\nfor name in {names}: importlib.import_module(name)\n"
    small = flags(SMALL | {"rounds": 1, "engine": "serial"})
    done = without_extras(code + command("simulate", "digits", *small, "--out", "run"), tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "result.json").exists()


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        (command("simulate", "digits", "--engine", "ray", "--rounds", "1"), "ray"),
        (command("simulate", "digits", "--channel", "fading", "--channel.model", "tdl-a", "--rounds", "1"), "sionna"),
        (command("export", "--format", "onnx", "--out", "decoder.onnx"), "onnx"),
        ("import aircomp.adapters.flower", "flower"),
        ("import aircomp\naircomp.CommunicationLayer.load().save_pretrained('layer')", "hub"),
    ],
    ids=["ray", "sionna", "onnx", "flower", "hub"],
)
def test_what_needs_an_extra_says_which(code, extra, tmp_path):
    done = without_extras(code, tmp_path)
    assert done.returncode != 0
    assert f"aircomp[{extra}]" in done.stderr.splitlines()[-1], done.stderr
