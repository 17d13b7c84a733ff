"""The two files of a trained artefact: its weights, and a description that has their hash.

layer.safetensors   the weights, by name
layer.json          version, configuration, training summary, hash of the weights
"""

from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

import aircomp
from aircomp.common.artefact import read_json, write_json
from aircomp.common.checks import check_path
from aircomp.common.tensors import expect_tensor, read_tensors, tensor_hash, write_tensors
from aircomp.errors import ArtefactError

MOST_BYTES = 2**28
"""What a file may claim."""
REMEDY = "restore it or train anew"

Trained = TypeVar("Trained")
N = TypeVar("N", bound=nn.Module)


def write_layer(
    directory: str | Path, weights: dict[str, Tensor], config: dict[str, Any], training: dict[str, Any]
) -> None:
    """Write the directory; each of the two files is replaced as a whole."""
    check_path("directory", directory)
    description = {
        "version": aircomp.__version__,
        "config": config,
        "training": training,
        "weights_hash": _weights_hash(weights),
    }
    write_tensors(Path(directory) / "layer.safetensors", weights)
    write_json(Path(directory) / "layer.json", description)


def read_layer(directory: Path, key: str, what: str, preset: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read both files; return the weights and the description.

    Args:
        directory: Where they lie.
        key: The section of the configuration that all of its kind have.
        what: What it is to be, for errors.
        preset: The preset that makes one, for errors.

    Raises:
        ArtefactError: If a file is missing, damaged, or describes something else.
    """
    path, description = directory / "layer.safetensors", read_json(directory / "layer.json")
    fields = {"config": dict, "training": dict, "weights_hash": str}
    is_layer = isinstance(description, dict) and all(isinstance(description.get(k), t) for k, t in fields.items())
    if not is_layer or not isinstance(description["config"].get(key), dict):
        raise ArtefactError(
            f"{directory / 'layer.json'} does not describe {what}; "
            f"give a directory made by aircomp pretrain --preset {preset}"
        )
    weights, _ = read_tensors(path, MOST_BYTES)
    if _weights_hash(weights) != description["weights_hash"]:
        raise ArtefactError(f"{path} does not hold the weights that layer.json describes; {REMEDY}")
    return weights, description


def filled(networks: N, directory: Path, weights: dict[str, Tensor], device: str | torch.device) -> N:
    """Return networks with the weights that were read, frozen, on a device.

    Raises:
        ArtefactError: If the weights are not those of such networks.
    """
    path, expected = directory / "layer.safetensors", networks.state_dict()
    for name, like in expected.items():
        expect_tensor(path, weights, name, like.dtype, like.shape, REMEDY)
    if len(weights) > len(expected):
        raise ArtefactError(f"{path} holds more than the networks that layer.json describes; {REMEDY}")
    networks.load_state_dict(weights)
    return networks.to(device).eval().requires_grad_(False)


def read_own_or_bundled(
    directory: str | Path | None, bundled: Sequence[str], read: Callable[[Path], Trained]
) -> Trained:
    """Read a directory of the user's, or without one the directory of that place in the package."""
    if directory is not None:
        check_path("directory", directory)
        return read(Path(directory))
    with resources.as_file(resources.files("aircomp").joinpath(*bundled)) as own:
        return read(own)


def _weights_hash(weights: dict[str, Tensor]) -> str:
    return tensor_hash(*(weights[name] for name in sorted(weights)))
