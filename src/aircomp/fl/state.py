"""Everything between two rounds as one explicit value, and its checkpoint on disk.

A checkpoint is one commit point, `state.safetensors`, replaced atomically. Error memories lie beside it, one file for
each device that has taken part, written only when they changed: with a thousand devices a round writes the active ones.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from aircomp.artefact import read_metadata, read_tensors, write_tensors
from aircomp.errors import ArtefactError
from aircomp.server.step import ServerState


@dataclass(frozen=True)
class FederationState:
    """The federation after `rounds_done` rounds. Generators are derived, so there is no random state to keep."""

    rounds_done: int
    weights: Float[Tensor, " params"]
    buffers: Float[Tensor, " buffers"]
    """The global model's buffers (running statistics)."""
    server: ServerState
    memories: Mapping[int, Float[Tensor, " params"]] = field(default_factory=dict)
    """Error memory of the devices that have taken part."""
    local_buffers: Mapping[int, Float[Tensor, " buffers"]] = field(default_factory=dict)
    """Buffers of the devices that have taken part, where buffers stay local."""
    snr_db: float | None = None
    """The base station's estimate of the SNR in the last round that had one."""


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
    tensors |= {f"local_buffers.{d}": b for d, b in state.local_buffers.items()}
    if state.server.first is not None:
        tensors["server.first"] = state.server.first
    if state.server.second is not None:
        tensors["server.second"] = state.server.second
    metadata = {
        "rounds_done": str(state.rounds_done),
        "server_step": str(state.server.step),
        "identity": identity,
        "memories": json.dumps(memories),
        "snr_db": json.dumps(state.snr_db),
    }
    write_tensors(directory / "state.safetensors", tensors, metadata)
    _remove_stale(directory, set(memories.values()))


def has_checkpoint(directory: Path) -> bool:
    """Return whether a round was saved here."""
    return (directory / "state.safetensors").exists()


def load_checkpoint(directory: Path, identity: str, num_params: int) -> FederationState | None:
    """Return the saved state, or None if the run was stopped before its first round was saved.

    Raises:
        ArtefactError: If the files are damaged or belong to another configuration or model.
    """
    path = directory / "state.safetensors"
    if not has_checkpoint(directory):
        return None
    tensors, metadata = read_tensors(path)
    if metadata.get("identity") != identity:
        raise ArtefactError(
            f"{path} was written by a run with other settings; resume with the same ones or choose --out"
        )
    if "weights" not in tensors or tensors["weights"].numel() != num_params:
        raise ArtefactError(f"{path} does not hold a model of {num_params} parameters; start anew with --overwrite")
    memories = {}
    for device, name in json.loads(metadata["memories"]).items():
        if Path(name).name != name:
            raise ArtefactError(f"{path} names a file outside its directory; start anew with --overwrite")
        memories[int(device)] = read_tensors(directory / name)[0]["memory"]
    prefix = "local_buffers."
    return FederationState(
        rounds_done=int(metadata["rounds_done"]),
        weights=tensors["weights"],
        buffers=tensors["buffers"],
        server=ServerState(tensors.get("server.first"), tensors.get("server.second"), int(metadata["server_step"])),
        memories=memories,
        local_buffers={int(k.removeprefix(prefix)): v for k, v in tensors.items() if k.startswith(prefix)},
        snr_db=json.loads(metadata.get("snr_db", "null")),
    )


def _manifest(directory: Path) -> dict[str, str]:
    path = directory / "state.safetensors"
    return json.loads(read_metadata(path)["memories"]) if path.exists() else {}


def _remove_stale(directory: Path, used: set[str]) -> None:
    for path in directory.glob("memory_*.safetensors"):
        if path.name not in used:
            path.unlink(missing_ok=True)
