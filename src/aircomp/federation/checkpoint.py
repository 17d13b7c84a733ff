"""The state between two rounds on disk.

A checkpoint is one commit point, `state.safetensors`, replaced atomically. Error memories lie beside it, one file for
each device that has taken part, written only when they changed: with a thousand devices a round writes the active ones.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aircomp.common.tensors import expect_tensor, read_metadata, read_tensors, write_tensors
from aircomp.device.update import FlatModel
from aircomp.errors import ArtefactError
from aircomp.federation.round import FederationState
from aircomp.server.step import ServerState

UPLINK = "uplink."
"""What the names of an uplink's own tensors begin with."""
FIXED = "fixed.safetensors"
"""File with what training does not move: frozen parameters, counters."""
REMEDY = "start anew with --overwrite"


def save_checkpoint(directory: Path, state: FederationState, previous: FederationState | None, identity: str) -> None:
    """Write `state`; what did not change since `previous` (the state that was saved last) is not written again."""
    old = _manifest(directory) if previous is not None else {}
    memories: dict[str, str] = {}
    for device, memory in state.memories.items():
        unchanged = previous is not None and previous.memories.get(device) is memory
        name = old.get(str(device)) if unchanged else None
        if name is None:
            name = f"memory_{device:06d}_{state.rounds_done:06d}.safetensors"
            write_tensors(directory / name, {"memory": memory})
        memories[str(device)] = name
    tensors = {"weights": state.weights, "buffers": state.buffers}
    # copied: the base station's own are the global ones too, and no file takes the same memory twice
    tensors |= {f"local_buffers.{d}": b.clone() for d, b in state.local_buffers.items()}
    tensors |= {UPLINK + name: value for name, value in state.uplink_memory.items()}
    if state.server.first is not None:
        tensors["server.first"] = state.server.first
    if state.server.second is not None:
        tensors["server.second"] = state.server.second
    metadata = {
        "rounds_done": str(state.rounds_done),
        "server_step": str(state.server.step),
        "identity": identity,
        "memories": json.dumps(memories),
        "side_information": json.dumps(state.side_information),
    }
    write_tensors(directory / "state.safetensors", tensors, metadata)
    _remove_stale(directory, set(memories.values()))


def has_checkpoint(directory: Path) -> bool:
    """Return whether a round was saved here."""
    return os.path.lexists(directory / "state.safetensors")


def load_checkpoint(directory: Path, identity: str, start: FederationState) -> FederationState | None:
    """Return the saved state, or None if the run was stopped before its first round was saved.

    Args:
        directory: Where it lies.
        identity: Of the run's settings; a checkpoint of others is refused.
        start: The state before the first round, whose types and shapes every later one shares.

    Raises:
        ArtefactError: If the files are damaged or belong to another configuration or model.
    """
    path = directory / "state.safetensors"
    if not has_checkpoint(directory):
        return None
    tensors, metadata = read_tensors(path)
    if metadata.get("identity") != identity:
        raise ArtefactError(
            f"{path} was written by a run with other settings; resume with the same ones or choose another --out"
        )
    manifest = _numbers(path, metadata)
    memories = {}
    for device, name in manifest["memories"].items():
        memory = directory / name
        memories[device] = _like(memory, read_tensors(memory)[0], "memory", start.weights)
    prefix = "local_buffers."
    local = {_device(path, name.removeprefix(prefix)): name for name in tensors if name.startswith(prefix)}
    moments = {"server.first": start.server.first, "server.second": start.server.second}
    kept = {name: None if like is None else _like(path, tensors, name, like) for name, like in moments.items()}
    return FederationState(
        rounds_done=manifest["rounds_done"],
        weights=_like(path, tensors, "weights", start.weights),
        buffers=_like(path, tensors, "buffers", start.buffers, finite=False),
        server=ServerState(kept["server.first"], kept["server.second"], manifest["server_step"]),
        memories=memories,
        local_buffers={d: _like(path, tensors, name, start.buffers, finite=False) for d, name in local.items()},
        uplink_memory=_uplink_memory(path, tensors),
        side_information=tuple(manifest["side_information"]),
    )


def _uplink_memory(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what the uplink remembered."""
    found = {name.removeprefix(UPLINK): tensor for name, tensor in tensors.items() if name.startswith(UPLINK)}
    for name, tensor in found.items():
        if not tensor.isfinite().all():
            raise ArtefactError(f"{path} holds {UPLINK}{name}, which is not finite; {REMEDY}")
    return found


def _like(path: Path, tensors: Mapping[str, Tensor], name: str, like: Tensor, *, finite: bool = True) -> Tensor:
    return expect_tensor(path, tensors, name, like.dtype, like.shape, REMEDY, finite=finite)


def _device(path: Path, word: str) -> int:
    if not word.removeprefix("-").isdecimal() or len(word) > 9:
        raise ArtefactError(f"{path} names the device {word[:20]!r}; {REMEDY}")
    return int(word)


def _numbers(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return what a checkpoint holds beside its tensors, checked."""
    try:
        memories = json.loads(metadata["memories"])
        found = {
            "rounds_done": int(metadata["rounds_done"]),
            "server_step": int(metadata["server_step"]),
            "memories": {_device(path, device): str(name) for device, name in memories.items()},
            "side_information": json.loads(metadata["side_information"]),
        }
        told = found["side_information"]
        if not isinstance(told, list) or not all(isinstance(each, str) for each in told):
            raise TypeError
        if found["rounds_done"] < 0:
            raise ValueError
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, ArtefactError):
            raise
        raise ArtefactError(f"{path} does not tell how far the run is; {REMEDY}") from None
    if any(Path(name).name != name for name in found["memories"].values()):
        raise ArtefactError(f"{path} names a file outside its directory; {REMEDY}")
    return found


def _manifest(directory: Path) -> dict[str, str]:
    path = directory / "state.safetensors"
    return json.loads(read_metadata(path)["memories"])


def _remove_stale(directory: Path, used: set[str]) -> None:
    for path in directory.glob("memory_*.safetensors"):
        if path.name not in used:
            path.unlink(missing_ok=True)


def save_fixed(checkpoint: Path, model: FlatModel) -> None:
    """Write what training does not move, once, at the start of a run."""
    if fixed := model.fixed():
        write_tensors(checkpoint / FIXED, {name: tensor.clone() for name, tensor in fixed.items()})


@torch.no_grad()
def load_fixed(checkpoint: Path, model: FlatModel) -> None:
    """Give a resumed run the frozen values that it began with, wherever the module's own come from."""
    if not (fixed := model.fixed()):
        return
    path = checkpoint / FIXED
    saved, _ = read_tensors(path)
    for name, tensor in fixed.items():
        tensor.copy_(expect_tensor(path, saved, name, tensor.dtype, tensor.shape, REMEDY, finite=False))
