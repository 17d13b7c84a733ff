"""Between Flower's records and our flat vectors, and what both sides of the adapter call things."""

from collections.abc import Sequence

import numpy as np
import torch
from flwr.app import Array, ArrayRecord  # noqa: TID253  only `aircomp.adapters.flower` leads here
from jaxtyping import Float
from torch import Tensor

from aircomp.errors import AirCompError, ConfigError, ShapeError, unknown_name

ROUND = "aircomp.round"
"""ConfigRecord, both ways: which round, which device, how its error feedback works."""
ANNOUNCED = "aircomp.codebook"
"""ArrayRecord to the devices: what the base station broadcasts, of which devices choose codewords. Not there if they send
their messages whole."""
ARRIVED = "aircomp.arrived"
"""ArrayRecord to a device: what its last message stood for on the radio, which the server works out in its place. Not there
if all that it sent arrived, or if it has never sent."""
SENT = "aircomp.sent"
"""The array that a reply carries in place of the parameters."""
MEMORY = "aircomp.common.memory"
"""ArrayRecord in a device's state: its error memory, or the last message whole (and the codewords that it chose for it),
until it is told what arrived of it."""


class ClientFailed(AirCompError, RuntimeError):
    """A client that raised, or that sent what cannot be used."""


def radio_names(arrays: ArrayRecord, parameters: Sequence[str] | None) -> list[str]:
    """Return the names of the arrays that travel over the radio: those given, or all.

    Raises:
        ConfigError: If a name does not exist or its array does not hold real numbers.
    """
    names = list(arrays) if parameters is None else list(parameters)
    for name in names:
        if name not in arrays:
            raise unknown_name("array", name, arrays)
        if not np.issubdtype(np.dtype(arrays[name].dtype), np.floating):
            raise ConfigError(
                f"the array {name!r} holds {arrays[name].dtype}, which no uplink can carry; name what travels over the "
                "radio: parameters=[name for name, _ in model.named_parameters()]"
            )
    return names


def flatten(arrays: ArrayRecord, names: Sequence[str]) -> Float[Tensor, " params"]:
    """Return the named arrays as one vector, in that order."""
    return torch.cat([torch.from_numpy(arrays[name].numpy()).reshape(-1) for name in names])


def unflatten(weights: Float[Tensor, " params"], arrays: ArrayRecord, names: Sequence[str]) -> dict[str, Array]:
    """Undo `flatten`: cut the vector into arrays of the shapes and types of `arrays`."""
    parts = weights.split([int(np.prod(arrays[name].shape)) for name in names])
    return {
        name: Array(part.numpy().reshape(arrays[name].shape).astype(arrays[name].dtype))
        for name, part in zip(names, parts, strict=True)
    }


def check_same_arrays(given: ArrayRecord, trained: ArrayRecord) -> None:
    """Raise ShapeError unless both records hold arrays of the same names and shapes."""
    if set(given) != set(trained):
        odd = sorted(set(given) ^ set(trained))
        raise ShapeError(
            f"the reply's arrays are not those of the message (only in one of them: {', '.join(odd)}); "
            "return the model's whole state_dict"
        )
    for name, array in given.items():
        if tuple(array.shape) != tuple(trained[name].shape):
            raise ShapeError(
                f"the reply's array {name!r} has shape {tuple(trained[name].shape)}; "
                f"expected {tuple(array.shape)}, as it was sent"
            )


def index_dtype(num_codewords: int) -> type[np.integer]:
    """Return the smallest type that holds an index: a byte up to 256 codewords, two beyond."""
    return np.uint8 if num_codewords <= 256 else np.int16
