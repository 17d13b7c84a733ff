"""Compile a file of C once, with the machine's own compiler, and load it: for kernels that torch has no operation for.

Where there is no compiler, or `AIRCOMP_NATIVE=0` is set, there is no library, and callers compute the same with torch. A
library is kept in the user's cache directory under a name that tells its source, compiler and processor, and is loaded only
from a directory that nobody else may write to.
"""

import contextlib
import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

from aircomp.common.cache import user_cache
from aircomp.errors import ConfigError

log = logging.getLogger(__name__)

COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O3", "-std=gnu11", "-shared", "-fPIC", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi")
# Instructions that torch found on this processor, so that a cache directory may be shared by machines that differ.
PROCESSOR_FLAGS = {"AVX512": ("-march=x86-64-v4",), "AVX2": ("-march=x86-64-v3",)}
PATIENCE = 120  # seconds; compiling takes about one


def compiled(source: Path) -> ctypes.CDLL | None:
    """Return the library of a C file, compiled if it has not been, or None where that cannot be done."""
    switch = os.environ.get("AIRCOMP_NATIVE", "1")
    if switch not in ("0", "1"):
        raise ConfigError(f"AIRCOMP_NATIVE is {switch!r}; expected 1 to use compiled kernels or 0 not to")
    if switch == "0":
        return None
    try:
        command = _compiler()
        library = _folder() / f"{source.stem}-{_key(source, command)}.so"
        with contextlib.suppress(OSError):  # it is not there, or damaged
            return ctypes.CDLL(str(library))
        _compile(command, source, library)
        return ctypes.CDLL(str(library))
    except (OSError, subprocess.SubprocessError, _NotHere) as error:
        log.info("kernels are not compiled, so decoding takes longer: %s", error)
        return None


class _NotHere(Exception):
    """Why nothing can be compiled or kept on this machine."""


def _compiler() -> list[str]:
    if os.name != "posix":
        raise _NotHere(f"this works on Linux and macOS, not on {platform.system()}")
    chosen = os.environ.get("CC")
    if chosen:
        return shlex.split(chosen)
    found = next(filter(None, map(shutil.which, COMPILERS)), None)
    if found is None:
        raise _NotHere(f"there is no C compiler ({', '.join(COMPILERS)})")
    return [found]


def _folder() -> Path:
    """Return where libraries are kept: a directory that is ours alone."""
    try:
        folder = user_cache() / "compiled"
    except RuntimeError as error:
        raise _NotHere(str(error)) from None
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise _NotHere(f"{folder} may be written to by others; remove it, and it is made anew")
    return folder


def _flags() -> tuple[str, ...]:
    return FLAGS + PROCESSOR_FLAGS.get(torch.backends.cpu.get_cpu_capability(), ())


def _key(source: Path, command: list[str]) -> str:
    described = "\0".join([*command, *_flags(), platform.system(), platform.machine()])
    return hashlib.sha256(described.encode() + b"\0" + source.read_bytes()).hexdigest()[:16]


def _compile(command: list[str], source: Path, library: Path) -> None:
    """Compile beside the target and rename, so that processes that do so at once are not in each other's way."""
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        made = Path(scratch) / library.name
        subprocess.run(
            [*command, *_flags(), "-o", str(made), str(source)], check=True, capture_output=True, timeout=PATIENCE
        )
        made.replace(library)
