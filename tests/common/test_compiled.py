import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aircomp.common.compiled import compiled
from aircomp.errors import ConfigError

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("AIRCOMP_NATIVE", raising=False)
    monkeypatch.delenv("CC", raising=False)
    return tmp_path / "cache" / "aircomp" / "compiled"


@pytest.fixture
def source(tmp_path) -> Path:
    path = tmp_path / "twice.c"
    path.write_text("int twice(int x) { return 2 * x; }\n")
    return path


def test_a_file_is_compiled_once_and_kept(source, cache):
    library = compiled(source)
    assert library is not None
    assert library.twice(21) == 42
    (kept,) = cache.iterdir()
    written = kept.stat().st_mtime_ns
    assert compiled(source) is not None
    assert [p.stat().st_mtime_ns for p in cache.iterdir()] == [written]
    assert cache.stat().st_mode & 0o777 == 0o700


def test_another_source_is_another_library(source, cache):
    compiled(source)
    source.write_text("int twice(int x) { return 3 * x; }\n")
    library = compiled(source)
    assert library is not None
    assert library.twice(21) == 63
    assert len(list(cache.iterdir())) == 2


def test_a_damaged_library_is_made_anew(source, cache):
    compiled(source)
    (kept,) = cache.iterdir()
    kept.unlink()  # not overwritten: this process has it mapped
    kept.write_bytes(b"no library")
    script = "import pathlib, sys, aircomp.common.compiled as c; print(c.compiled(pathlib.Path(sys.argv[1])).twice(4))"
    found = subprocess.run([sys.executable, "-c", script, str(source)], capture_output=True, text=True, check=True)
    assert found.stdout == "8\n"


def test_without_a_compiler_there_is_no_library(source, monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setenv("CC", "no-such-compiler")
    assert compiled(source) is None
    assert "decoding takes longer" in caplog.text
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", "")
    assert compiled(source) is None
    assert "there is no C compiler (cc, gcc, clang)" in caplog.text


def test_what_cannot_be_compiled_leaves_nothing_behind(source, cache):
    source.write_text("int twice(int x) { return")
    assert compiled(source) is None
    assert list(cache.iterdir()) == []


def test_a_directory_that_others_may_write_to_is_not_trusted(source, cache, caplog):
    caplog.set_level("INFO")
    compiled(source)
    os.chmod(cache, 0o777)
    assert compiled(source) is None
    assert "may be written to by others" in caplog.text


@pytest.mark.parametrize(("value", "expected"), [("0", type(None)), ("1", ctypes.CDLL)])
def test_the_environment_switches_it(source, monkeypatch, value, expected):
    monkeypatch.setenv("AIRCOMP_NATIVE", value)
    assert isinstance(compiled(source), expected)


def test_another_switch_is_refused(source, monkeypatch):
    monkeypatch.setenv("AIRCOMP_NATIVE", "yes")
    with pytest.raises(ConfigError, match="AIRCOMP_NATIVE is 'yes'; expected 1"):
        compiled(source)
