"""How values travel between base station and devices: a few bytes of header for each, then its numbers.

    count │ name length, name │ type, number of axes, sizes │ numbers, little-endian │ next value …

Counts and sizes are unsigned integers of seven bits a byte, as in LEB128. The length of the form is what a broadcast costs.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from aircomp.errors import ConfigError

TYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)
"""What can travel; a value's type is its place here."""
LONGEST_NAME = 64


def to_wire(values: Mapping[str, Tensor], who: str) -> bytes:
    """Put named tensors into bytes.

    Args:
        values: The tensors, in order.
        who: Who sends them, with the verb, for the error.

    Raises:
        ConfigError: If one cannot travel, naming it.
    """
    parts = [_number(len(values))]
    for name, value in values.items():
        if not isinstance(value, Tensor) or value.dtype not in TYPES:
            given = str(value.dtype) if isinstance(value, Tensor) else type(value).__name__
            raise ConfigError(
                f"{who} {name!r}, which is {given} and cannot be sent; expected a tensor of "
                f"{', '.join(str(kind).removeprefix('torch.') for kind in TYPES)}"
            )
        text = str(name).encode()
        if not 0 < len(text) <= LONGEST_NAME:
            raise ConfigError(f"{who} a value named {name!r}; expected 1 to {LONGEST_NAME} bytes")
        raw = value.detach().cpu().contiguous()
        head = [_number(len(text)), text, bytes([TYPES.index(raw.dtype), raw.ndim])]
        parts += [*head, *(_number(size) for size in raw.shape), raw.flatten().view(torch.uint8).numpy().tobytes()]
    return b"".join(parts)


def from_wire(wire: bytes, device: str | torch.device = "cpu") -> dict[str, Tensor]:
    """Read what `to_wire` wrote; devices know nothing of a broadcast but this."""
    number, at = _read(wire, 0)
    found = {}
    for _ in range(number):
        length, at = _read(wire, at)
        name, at = wire[at : at + length].decode(), at + length
        kind, axes, at = TYPES[wire[at]], wire[at + 1], at + 2
        shape = []
        for _ in range(axes):
            size, at = _read(wire, at)
            shape.append(size)
        end = at + math.prod(shape) * kind.itemsize
        # frombuffer refuses empty buffers, and warns of read-only ones
        raw = torch.frombuffer(bytearray(wire[at:end]), dtype=kind) if end > at else torch.empty(0, dtype=kind)
        found[name], at = raw.reshape(shape).to(device), end
    return found


def _number(value: int) -> bytes:
    found = bytearray()
    while value >= 128:
        found.append(value % 128 + 128)
        value //= 128
    return bytes([*found, value])


def _read(wire: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at a place, and the place behind it."""
    value, shift = 0, 0
    while wire[at] >= 128:
        value, shift, at = value + (wire[at] % 128 << shift), shift + 7, at + 1
    return value + (wire[at] << shift), at + 1
