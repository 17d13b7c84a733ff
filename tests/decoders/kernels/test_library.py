"""The library of the kernels: built once, for several classes of processors, loaded from the package or not at all."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from aircomp.common import arithmetic
from aircomp.decoders.kernels import native
from aircomp.errors import ConfigError
from tools.build_kernels import NotBuilt, build

ROOT = Path(__file__).parents[3]
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture(autouse=True)
def as_at_the_start(monkeypatch):
    monkeypatch.delenv("AIRCOMP_NATIVE", raising=False)
    monkeypatch.delenv("CC", raising=False)
    arithmetic._kernels.cache_clear()
    yield
    arithmetic._kernels.cache_clear()


@needs_compiler
def test_what_is_installed_with_a_compiler_has_kernels_of_its_own_source():
    assert arithmetic.kernels() is not None, "run tools/build_kernels.py, or make env"


@needs_compiler
def test_a_library_of_other_sources_is_not_used(monkeypatch, tmp_path, caplog):
    for source in arithmetic.FOLDER.glob("*.[ch]"):
        (tmp_path / source.name).write_bytes(source.read_bytes())
    with (tmp_path / "trellis.c").open("a") as changed:
        changed.write("\n")
    monkeypatch.setattr(arithmetic, "FOLDER", tmp_path)
    assert arithmetic.kernels() is None
    assert "built from other sources; install the package anew" in caplog.text


def test_without_a_library_the_log_says_once_that_decoding_takes_longer(monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(arithmetic, "LIBRARY", tmp_path / "kernels.so")
    with torch.no_grad():
        assert not native.ready(torch.ones(1))
        assert not native.ready(torch.ones(1))
    (said,) = caplog.messages
    assert "times as long: the package was installed without a C compiler" in said


DAMAGE = {
    "empty": lambda path, whole: path.write_bytes(b""),
    "words": lambda path, whole: path.write_bytes(b"no library"),
    "words with a hash": lambda path, whole: path.write_bytes(b"words" + hashlib.sha256(b"words").digest()),
    "cut early": lambda path, whole: path.write_bytes(whole[:4096]),
    "cut in the middle": lambda path, whole: path.write_bytes(whole[: len(whole) // 2]),
    "cut late": lambda path, whole: path.write_bytes(whole[:-1]),
    "other bytes": lambda path, whole: path.write_bytes(whole[:70_000] + b"\xff" + whole[70_001:]),
    "a pipe": lambda path, whole: os.mkfifo(path),
    "a directory": lambda path, whole: path.mkdir(),
}


@needs_compiler
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_library_is_not_used(monkeypatch, tmp_path, caplog, damage):
    damaged = tmp_path / "kernels.so"
    DAMAGE[damage](damaged, arithmetic.LIBRARY.read_bytes())
    monkeypatch.setattr(arithmetic, "LIBRARY", damaged)
    assert arithmetic.kernels() is None
    assert "install the package anew" in caplog.text


def test_the_environment_switches_kernels_off(monkeypatch, caplog):
    monkeypatch.setenv("AIRCOMP_NATIVE", "0")
    assert arithmetic.kernels() is None
    assert not caplog.messages


def test_another_switch_is_refused(monkeypatch):
    monkeypatch.setenv("AIRCOMP_NATIVE", "yes")
    with pytest.raises(ConfigError, match="AIRCOMP_NATIVE is 'yes'; expected 1"):
        arithmetic.kernels()


@pytest.mark.parametrize(
    ("compiler", "why"),
    [("gcc '", "is no command"), ("no-such-compiler", "no-such-compiler failed"), ("false", "false failed: exit 1")],
)
def test_a_compiler_that_fails_leaves_nothing_behind(monkeypatch, tmp_path, compiler, why):
    monkeypatch.setenv("CC", compiler)
    with pytest.raises(NotBuilt, match=why):
        build(ROOT, tmp_path / "kernels.so")
    assert not list(tmp_path.iterdir())


def test_without_a_compiler_nothing_is_built(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NotBuilt, match=r"there is no C compiler \(cc, gcc, clang\)"):
        build(ROOT, tmp_path / "kernels.so")


@pytest.mark.slow
@needs_compiler
def test_kernels_are_clean_under_the_sanitizers(tmp_path):
    library, flags = tmp_path / "kernels.so", ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1"]
    built = build(ROOT, library, flags)
    runtime = [
        subprocess.run(["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    own = arithmetic.Kernels(arithmetic.LIBRARY).variant
    script = Path(__file__).with_name("odd_sizes.py")
    for variant in built[built.index(own) :]:
        run = subprocess.run(
            [sys.executable, str(script), str(library), variant],
            env={
                "LD_PRELOAD": ":".join(runtime),
                "ASAN_OPTIONS": "detect_leaks=0",
                "PYTHONPATH": f"{ROOT}/src:{ROOT}/tests",
                "OMP_NUM_THREADS": "1",
                "PATH": "",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr[-3000:]
        assert int(run.stdout) > 1000  # calls
