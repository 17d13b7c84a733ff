"""What computes: the package's compiled kernels or torch alone, for which processor, in which versions.

It decides the last bits of every result. So it stands in every `result.json`, and a run that was begun with other
arithmetic is resumed only if that is asked for. The number of threads is no part of it (`aircomp.common.threads`).

The kernels' library lies in the package and is loaded from nowhere else. It has code for several classes of processors and
tells which of them this one is. Where it was not built, or with `AIRCOMP_NATIVE=0`, torch computes the same to rounding, and
the log says once that it takes longer.
"""

import contextlib
import ctypes
import functools
import hashlib
import logging
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import aircomp
from aircomp.common.artefact import read_json, write_json
from aircomp.errors import ArtefactError, ConfigError

log = logging.getLogger(__name__)

FOLDER = Path(aircomp.__file__).parent / "decoders" / "kernels"
LIBRARY = FOLDER / "kernels.library"  # no module of Python, which .so would be taken for
DIGEST = hashlib.sha256().digest_size
"""Bytes at the library's end that are a hash of those before."""
HISTORY = "arithmetic.json"
"""File of a run's directory: what computed it, one entry for each that took part."""


class Kernels:
    """The functions of a library for one class of processors.

    Args:
        library: Its path.
        variant: A class of processors; by default what this one is.

    Raises:
        OSError: If there is no such library, it is damaged, or it was built from other sources.
    """

    def __init__(self, library: Path, variant: str | None = None):
        # reading a pipe would hang, and loading half a library kills
        content = library.read_bytes() if library.is_file() else b""
        if hashlib.sha256(content[:-DIGEST]).digest() != content[-DIGEST:]:
            raise OSError(f"{library.name} is damaged")
        self._library = ctypes.CDLL(str(library))
        try:
            key, chosen = self._library.kernels_key, self._library.kernels_variant
        except AttributeError:
            raise OSError(f"{library.name} is no library of kernels") from None
        key.restype = chosen.restype = ctypes.c_char_p
        self.key: str = key().decode()
        self.variant: str = variant or chosen().decode()
        if self.key != source_key():
            raise OSError(f"{library.name} was built from other sources")

    def function(self, name: str) -> Any:
        """Return a function by its name; its types are the caller's to set."""
        return getattr(self._library, f"{name}_{self.variant}")


def source_key() -> str:
    """Return the hash of the kernels' sources."""
    parts = sorted(path for path in FOLDER.glob("*.[ch]") if path.name != "choose.c")
    return hashlib.sha256(b"".join(path.read_bytes() for path in parts)).hexdigest()


@functools.cache
def _kernels() -> Kernels | None:
    switch = os.environ.get("AIRCOMP_NATIVE", "1")
    if switch not in ("0", "1"):
        raise ConfigError(f"AIRCOMP_NATIVE is {switch!r}; expected 1 to use compiled kernels or 0 not to")
    if switch == "0":
        return None
    try:
        return Kernels(LIBRARY)
    except OSError as error:
        if multiprocessing.parent_process() is None:  # workers need not repeat it
            why = error if LIBRARY.exists() else "the package was installed without a C compiler, so it has no kernels"
            log.warning("decoding takes two to five times as long: %s; install the package anew with a C compiler", why)
        return None


_off = False


def kernels() -> Kernels | None:
    """Return the kernels that compute, or None where torch alone does."""
    return None if _off else _kernels()


@contextlib.contextmanager
def switched_off() -> Iterator[None]:
    """Compute with torch's operations alone, to compare with them."""
    global _off
    before, _off = _off, True
    try:
        yield
    finally:
        _off = before


def arithmetic_identity() -> str:
    """Return what computes in this process, as one value that is equal where results have the same bits.

    Examples:
        >>> arithmetic_identity().startswith("torch ")
        True
    """
    found = kernels()
    own = "no kernels" if found is None else f"kernels {found.key[:12]} for {found.variant}"
    return f"torch {torch.__version__} for {torch.backends.cpu.get_cpu_capability().lower()}, {own}"


def keep_arithmetic(directory: Path, *, resume: bool, other: bool) -> None:
    """Write down what computes a run, after what did before where the run is resumed.

    Args:
        directory: Of the run.
        resume: Whether a run goes on that may be there.
        other: Whether it may go on with other arithmetic.

    Raises:
        ArtefactError: If it may not, but would.
    """
    path, now = directory / HISTORY, arithmetic_identity()
    past = _history(path) if resume and os.path.lexists(path) else []
    if past and past[-1] != now and not other:
        raise ArtefactError(
            f"{directory} was computed with {past[-1]}, and here is {now}, whose last bits differ; add --other-arithmetic "
            "to resume it all the same, or start anew with --overwrite"
        )
    if past[-1:] != [now]:
        write_json(path, [*past, now])


def _history(path: Path) -> list[str]:
    found = read_json(path)
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ArtefactError(f"{path} does not tell what computed the run; start anew with --overwrite")
    return found
