"""Files that survive: atomic writes, checked reads, hashes, run directories that are never lost.

Only safetensors, JSON, JSON lines and TOML; nothing pickled, nothing executed.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from aircomp.errors import ArtefactError


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary neighbour of `path`, then rename it: readers see all of it or nothing."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise ArtefactError(
            f"cannot write {path}: {error.strerror or error}; free some space or choose --out"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_atomically(path, lambda temporary: _write(temporary, text))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically, indented for people."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file, or say in one sentence what is wrong with it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ArtefactError(f"{path} does not exist; check the path") from None
    except (OSError, ValueError) as error:
        raise ArtefactError(f"{path} is not readable JSON ({error}); restore it or make it anew") from None


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file atomically."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}

    def write(temporary: Path) -> None:
        try:
            save_file(contiguous, temporary, metadata=metadata)
        except SafetensorError as error:  # it reports a full disk as its own error, not as OSError
            raise OSError(str(error)) from error

    write_atomically(path, write)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read a safetensors file and its metadata, or say in one sentence what is wrong with it."""
    if not path.is_file():
        raise ArtefactError(f"{path} does not exist; check the path")
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ArtefactError(f"{path} is damaged or not a safetensors file ({error}); make it anew") from None


def read_metadata(path: Path) -> dict[str, str]:
    """Read only the metadata of a safetensors file."""
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, OSError, ValueError) as error:
        raise ArtefactError(f"{path} is damaged or not a safetensors file ({error}); make it anew") from None


def tensor_hash(*tensors: Tensor) -> str:
    """Return a SHA-256 of shapes, types and bytes: the identity of a codebook or of weights."""
    digest = hashlib.sha256()
    for tensor in tensors:
        tensor = tensor.detach().cpu().contiguous()
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def config_hash(config: Any) -> str:
    """Return a short hash of a JSON-able configuration: the identity of a run."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


@contextlib.contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Hold `directory` for this process; a second run in it is refused, a dead one's lock is not in the way."""
    import fcntl

    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ArtefactError(
                f"the run directory {directory} is in use by another process; wait for it or choose --out"
            ) from None
        yield


def to_toml(values: dict[str, Any]) -> str:
    """Write nested dictionaries of numbers, strings, booleans, paths and lists as TOML; None is left out."""
    lines = [f"{k} = {_toml_value(v)}" for k, v in values.items() if not isinstance(v, dict) and v is not None]
    for name, group in values.items():
        if isinstance(group, dict):
            lines += ["", f"[{name}]", to_toml(group).rstrip("\n")]
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(v) for v in value) + "]"
    # JSON's strings, numbers and booleans are TOML's as well
    return json.dumps(value if isinstance(value, bool | int | float) else str(value))
