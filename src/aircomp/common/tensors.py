"""Tensors: checks of what callers pass, and files of them that survive.

The axes of all tensors, by the names that signatures use.

| axis        | paper | meaning                                                         |
|-------------|-------|-----------------------------------------------------------------|
| `devices`   | K_a   | devices that transmit in this round                             |
| `params`    | W     | parameters of the global model, flattened                       |
| `slots`     | J     | fragments of one update; each occupies one transmission slot    |
| `fragment`  | d     | entries of one fragment                                         |
| `codewords` | n     | size of the quantisation codebook and of the random-access one  |
| `uses`      | l     | real channel uses of one slot                                   |

Codebooks are stored one codeword per **row** (the paper writes columns): summed codewords are
`counts @ codebook`.
"""

import hashlib
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, TypeGuard, TypeVar

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from aircomp.common.artefact import check_file, write_atomically
from aircomp.common.checks import check_type, describe
from aircomp.errors import ArtefactError, ConfigError, ShapeError

D = TypeVar("D", bound=Any)  # a dataclass
Kind = Literal["real", "floating"]
"""Which numbers a tensor holds: any real ones, or floating-point ones."""


def has_numbers(value: Any) -> TypeGuard[Tensor]:
    """Tell whether something is a tensor with all its numbers in memory, unlike sparse ones and those of `meta`."""
    return isinstance(value, Tensor) and value.layout is torch.strided and not value.is_meta


def all_finite(values: Tensor) -> bool:
    """Return whether all real numbers of a tensor are finite; one pass and no mask, unlike `torch.isfinite`."""
    return values.numel() == 0 or all(math.isfinite(end) for end in torch.stack(torch.aminmax(values)).tolist())


def check_device(name: str, value: Any) -> None:
    """Refuse a place that this machine or this build of torch does not have.

    Raises:
        ConfigError: Naming the argument.
    """
    try:
        place = torch.device(value)
    except (RuntimeError, TypeError, ValueError):
        raise ConfigError(f"{name} is {describe(value)}; expected cpu or cuda") from None
    if place.type not in ("cpu", "cuda") or (place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count()):
        raise ConfigError(
            f"{name} = {str(place)!r}, but this machine or this build of torch has none; use --device cpu"
        )


def moved(value: D, device: str | torch.device) -> D:
    """Return a dataclass with its tensors on a device, and with those of the dataclasses that it lists."""
    found = {field.name: getattr(value, field.name) for field in fields(value)}
    new = {name: each.to(device) for name, each in found.items() if isinstance(each, Tensor)}
    lists = {name: [moved(part, device) for part in each] for name, each in found.items() if isinstance(each, list)}
    return replace(value, **new, **lists)


def check_generator(name: str, value: Any) -> None:
    """Refuse what is not a source of randomness.

    Raises:
        ConfigError: Naming the argument.
    """
    check_type(name, value, torch.Generator, "a torch.Generator, such as torch.Generator().manual_seed(0)")


def check_tensor(name: str, value: Any, axes: str, kind: Kind = "real") -> None:
    """Refuse what is not a tensor with so many axes, of the right kind of numbers, all finite.

    Args:
        name: Of the argument.
        value: What was given.
        axes: Their names, separated by spaces.
        kind: Which numbers.

    Raises:
        ShapeError: Naming the argument.
    """
    wanted = f"expected a tensor of finite {KINDS[kind]} [{', '.join(axes.split())}]"
    if not has_numbers(value) or value.ndim != len(axes.split()) or not _is_kind(value, kind):
        raise ShapeError(f"{name} is {describe(value)}; {wanted}")
    if value.is_floating_point() and not all_finite(value):
        raise ShapeError(f"{name} is {describe(value)} with values that are not finite; {wanted}")


KINDS = {"real": "real numbers", "floating": "floating-point numbers"}


def _is_kind(tensor: Tensor, kind: Kind) -> bool:
    if tensor.is_complex() or tensor.dtype == torch.bool:
        return False
    return kind == "real" or tensor.is_floating_point()


MOST_TENSOR_BYTES = 16 * 2**30
"""Tensors are mapped into memory and read when they are used, after their shapes were checked."""


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file atomically."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}

    def write(temporary: Path) -> None:
        temporary.touch()
        mode = temporary.stat().st_mode
        try:
            save_file(contiguous, temporary, metadata=metadata)
            temporary.chmod(mode)  # what the user's umask gives every file; it makes one that nobody else may read
        except SafetensorError as error:  # it reports a full disk as its own error, not as OSError
            raise OSError(str(error)) from error

    write_atomically(path, write)


def read_tensors(path: Path, most_bytes: int = MOST_TENSOR_BYTES) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read a safetensors file and its metadata, or say in one sentence what is wrong with it.

    Tensors are mapped, not copied: check them with `expect_tensor` before they are used.
    """
    check_file(path, most_bytes)
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise ArtefactError(f"{path} is damaged or not a safetensors file ({error}); make it anew") from None


def on_disk(values: Float[Tensor, " numbers"]) -> Float[Tensor, " numbers"]:
    """Return the same numbers in a file of the system's directory for such files, which goes when the tensor goes.

    Raises:
        ArtefactError: If the disk does not take them.
    """
    try:
        with tempfile.NamedTemporaryFile(prefix="aircomp-") as file:
            file.write(values.contiguous().numpy().data)
            file.flush()
            return torch.from_file(file.name, shared=False, size=values.numel(), dtype=values.dtype)
    except OSError as error:
        raise ArtefactError(
            f"{values.nbytes / 1e6:.0f} MB cannot be written to {tempfile.gettempdir()} ({error.strerror}); make room there, "
            "or let TMPDIR name another directory"
        ) from None


def read_metadata(path: Path) -> dict[str, str]:
    """Read only the metadata of a safetensors file."""
    return read_tensors(path)[1]


Content = torch.dtype | Literal["integers", "reals"]


_CONTENTS: dict[Content, tuple[torch.dtype, ...]] = {
    "integers": (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    "reals": (torch.float16, torch.bfloat16, torch.float32, torch.float64),
}


def expect_tensor(
    path: Path,
    tensors: Mapping[str, Tensor],
    name: str,
    content: Content,
    shape: Sequence[int | str],
    remedy: str,
    *,
    finite: bool = True,
) -> Tensor:
    """Return the tensor `name` of a file, after checking its type, shape and content.

    Args:
        path: The file, to be named in errors.
        tensors: What it holds.
        name: Which of them.
        content: Its type, or what it must be a kind of.
        shape: Its axes. A number is an exact length; a word stands for any length but zero.
        remedy: What to do about a file that holds something else.
        finite: Whether its numbers must be; a mask among a model's buffers may hold infinities.

    Raises:
        ArtefactError: If it is missing, of another type or shape, or not finite.
    """
    if name not in tensors:
        raise ArtefactError(f"{path} lacks {name}; {remedy}")
    tensor = tensors[name]
    fits = [
        size == axis if isinstance(axis, int) else size > 0 for size, axis in zip(tensor.shape, shape, strict=False)
    ]
    if tensor.ndim != len(shape) or not all(fits) or tensor.dtype not in _CONTENTS.get(content, (content,)):
        axes = ", ".join(map(str, shape))
        raise ArtefactError(
            f"{path}: {name} is {_type_name(tensor.dtype)} {list(tensor.shape)}; expected {_type_name(content)} [{axes}]; "
            f"{remedy}"
        )
    parts = tensor.flatten().split(2**24) if finite and tensor.is_floating_point() else ()
    if not all(torch.isfinite(part).all() for part in parts):
        raise ArtefactError(f"{path}: {name} holds numbers that are not finite; {remedy}")
    return tensor


def _type_name(content: Content) -> str:
    return str(content).removeprefix("torch.")


def tensor_hash(*tensors: Tensor) -> str:
    """Return a SHA-256 of shapes, types and bytes: the identity of a codebook or of weights."""
    digest = hashlib.sha256()
    for tensor in tensors:
        tensor = tensor.detach().cpu().contiguous()
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
