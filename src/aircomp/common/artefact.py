"""Files that survive: checked reads, atomic writes, hashes, locks. The one place that opens the files of a run.

Only safetensors, JSON, JSON lines and TOML; nothing pickled, nothing executed. Before a file is read, it is seen to be a
regular one (no pipe, device or directory) of a size that its kind may have.
"""

import contextlib
import errno
import hashlib
import json
import os
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tomli_w
from filelock import FileLock, Timeout

from aircomp.errors import ArtefactError

MOST_TEXT_BYTES = 64 * 2**20
"""No JSON, JSON lines or trace of ours is larger."""
MOST_TOML_BYTES, MOST_TOML_LINE = 64 * 2**10, 4096
"""The parser takes time in the square of a dotted key: a line of 4,096 characters takes a fifth of a second."""
MOST_LEVELS = 32
"""Nothing of ours is nested deeper, and a reader must not run out of stack."""


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary neighbour of `path`, then rename it: readers see all of it or nothing."""

    def replace(temporary: Path) -> None:
        write(temporary)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)

    _to_neighbour(path, replace)


def _to_neighbour(path: Path, write: Callable[[Path], None]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
    except (OSError, ValueError) as error:  # a value error is a path or a text that no file can have
        reason = getattr(error, "strerror", None) or error
        raise ArtefactError(f"cannot write {path}: {reason}; {_remedy(error)}") from error
    finally:
        with contextlib.suppress(OSError, ValueError):
            temporary.unlink()


def _remedy(error: OSError | ValueError) -> str:
    if isinstance(error, ValueError):
        return "choose names that a file can have"
    # safetensors tells the error of the system in words
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or "os error 28" in str(error)
    return f"{'free some space' if full else 'check its permissions'} or choose another --out"


def leftovers(directory: Path, pattern: str) -> list[Path]:
    """Return the temporary neighbours of the files of a pattern; where nobody writes, those of a killed process."""
    folder, name = (directory / pattern).parent, Path(pattern).name
    found = folder.glob(f".{name}.*.tmp") if folder == directory or not folder.is_symlink() else ()
    return [path for path in found if path.name.split(".")[-2].isdecimal()]


def check_writable(path: Path) -> None:
    """Check that a file can be written, before the work that fills it."""

    def probe(temporary: Path) -> None:
        temporary.touch()
        temporary.unlink()

    _to_neighbour(path, probe)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_atomically(path, lambda temporary: _write(temporary, text))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically, indented for people."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_toml(path: Path, values: Mapping[str, Any]) -> None:
    """Write nested settings as a TOML file, atomically; None, which TOML does not have, is left out."""
    write_text(path, tomli_w.dumps(_without_none(values)))


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in values.items() if value is not None}
    return {name: _without_none(value) if isinstance(value, dict) else value for name, value in kept.items()}


def check_file(path: Path, most_bytes: int) -> None:
    """Check that `path` is a regular file of at most `most_bytes` bytes, without opening it.

    Raises:
        ArtefactError: If it is missing, something else than a file, or larger.
    """
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise ArtefactError(f"{path} does not exist; check the path") from None
    except (OSError, ValueError) as error:
        raise ArtefactError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}); check it") from None
    if not stat.S_ISREG(found.st_mode):
        what = "directory" if stat.S_ISDIR(found.st_mode) else "pipe, socket or device"
        raise ArtefactError(f"{path} is a {what}; expected a file")
    if found.st_size > most_bytes:
        limit = f"{most_bytes >> 20} MB" if most_bytes >= 2**20 else f"{most_bytes >> 10} kB"
        raise ArtefactError(f"{path} is larger than {limit}, which no file of its kind is; check the path")


def read_text(path: Path, most_bytes: int = MOST_TEXT_BYTES) -> str:
    """Read a text file, or say in one sentence what is wrong with it."""
    check_file(path, most_bytes)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArtefactError(f"{path} is not readable text ({error}); restore it or make it anew") from None


def read_json(path: Path) -> Any:
    """Read a JSON file, or say in one sentence what is wrong with it."""
    return _parsed(path, read_text(path), json.loads, "JSON")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file, or say in one sentence what is wrong with it."""
    text = read_text(path, MOST_TOML_BYTES)
    if max(map(len, text.splitlines()), default=0) > MOST_TOML_LINE:
        raise ArtefactError(f"{path} has a line of more than {MOST_TOML_LINE} characters; break it into several")
    return _parsed(path, text, tomllib.loads, "TOML")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON lines, an object each; the last one may be half written, and is then left out."""
    lines = read_text(path).splitlines()
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = _parsed(path, line, json.loads, "JSON")
        except ArtefactError:
            if number == len(lines):
                break
            raise ArtefactError(f"line {number} of {path} is not JSON; restore it or make it anew") from None
        if not isinstance(record, dict):
            raise ArtefactError(f"line {number} of {path} is not an object; restore it or make it anew")
        records.append(record)
    return records


def _parsed(path: Path, text: str, parse: Callable[[str], Any], language: str) -> Any:
    try:
        value = parse(text)
        if _is_deep(value, MOST_LEVELS):
            raise RecursionError
    except RecursionError:
        raise ArtefactError(f"{path} is nested too deeply; restore it or make it anew") from None
    except ValueError as error:
        raise ArtefactError(f"{path} is not readable {language} ({error}); restore it or make it anew") from None
    return value


def _is_deep(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(_is_deep(each, levels - 1) for each in inner)


def config_hash(config: Any) -> str:
    """Return a short hash of a JSON-able configuration: the identity of a run."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


class InUse(ArtefactError):
    """A directory that another process works in."""


@contextlib.contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Lock `directory` for this process. A second run in it is refused; the lock of a dead process does not count."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        holder = FileLock(directory / ".lock", blocking=False)
        holder.acquire()
    except Timeout:
        raise InUse(
            f"the run directory {directory} is in use by another process; wait for it or choose another --out"
        ) from None
    except (OSError, ValueError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ArtefactError(f"cannot write in {directory}: {reason}; choose another --out") from None
    try:
        yield
    finally:
        holder.release()
