"""One round of federated edge learning (Sec. II), as a pure function of the state before it.

active devices ─► local training ─► corruption ─► error feedback ─► uplink ─► aggregate ─► server step
▲              │
└── memory ◄───┘ what the transmission left out
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.channel.base import Attack
from aircomp.common import rng as rngs
from aircomp.common.boundary import ask
from aircomp.common.checks import describe
from aircomp.common.tensors import all_finite, has_numbers, on_disk
from aircomp.device.feedback import add_memory, feedback_ratio, remember
from aircomp.device.local import LocalResult
from aircomp.engines.trainer import BASE_STATION, Executor, Task
from aircomp.errors import ShapeError, TrainingDiverged
from aircomp.federation.experiment import Buffers, Experiment
from aircomp.federation.participation import active_devices
from aircomp.link import Exchange, Link, communicate, diagnose
from aircomp.measure.metrics import quantization_nmse
from aircomp.schemes.meter import record_of
from aircomp.server.step import ServerState, step

MEMORIES_IN_RAM = 2**29
"""Bytes of error memories up to which all of them stay in RAM."""
Transform = Callable[[Float[Tensor, " params"]], Float[Tensor, " params"]]


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
    uplink_memory: Mapping[str, Tensor] = field(default_factory=dict)
    """What the uplink remembers of the last round that had one."""
    side_information: tuple[str, ...] = ()
    """What reached the base station outside the radio in the last round that had one."""


def keep_memory(memories: dict[int, Tensor], device: int, memory: Float[Tensor, " params"]) -> None:
    """Set a device's error memory: in a file if all of them would take more than `MEMORIES_IN_RAM`."""
    number = len(memories.keys() | {device})
    memories[device] = on_disk(memory) if number * memory.nbytes > MEMORIES_IN_RAM else memory


@dataclass(frozen=True)
class Federation:
    """What stays the same over all rounds."""

    experiment: Experiment
    link: Link
    executor: Executor
    before: Transform | None = None
    """Applied to each update before error feedback and quantisation (the paper's nomographic pre-processing)."""
    after: Transform | None = None
    """Applied to the aggregate before the server step (nomographic post-processing)."""
    shares: Sequence[float] | None = None
    """What each device multiplies its update with, its share of the samples over the mean share, which it knows as the base
    station does; None: one."""


Record = dict[str, Any]  # numbers, and a dictionary of seconds by stage
"""One line of metrics.jsonl, or the row of a result."""


class Stopwatch:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time of the block to the stage's seconds."""
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


@dataclass(frozen=True)
class Messages:
    """The devices that transmit in a round and what each wants to say."""

    devices: tuple[int, ...]
    norms: list[float]
    """Of their updates, without error memory."""
    messages: Float[Tensor, "devices params"]
    silent: dict[int, tuple[float, Tensor]]
    """The norm of the update and the message of each active device that stays silent."""
    attack: Attack | None = None
    """What attackers among those that transmit do beside what their messages say."""


@dataclass(frozen=True)
class Round:
    """What happened in a round, for those who look on (collection, tests)."""

    exchange: Exchange
    """What went over the radio."""
    buffers: Float[Tensor, "active buffers"]
    """Of the active devices after local training; they do not go over the radio."""
    after: FederationState
    """The federation after the round."""


def run_round(
    state: FederationState, federation: Federation, watch: Stopwatch
) -> tuple[FederationState, Record, Round | None]:
    """Run the round that follows `state`; a round without a transmitting device changes nothing but the counter."""
    experiment, index = federation.experiment, state.rounds_done
    active = active_devices(
        experiment.participation, experiment.devices.total, index, rng=rngs.generator(experiment.seed, "active", index)
    )
    record: Record = {"round": index + 1, "num_active": 0}
    if not active:
        return replace(state, rounds_done=index + 1), record, None
    own_data = experiment.server.base == "own-data"
    with watch.stage("train"):
        results = train_devices(state, federation, (BASE_STATION, *active) if own_data else active)
        base = results.pop(0) if own_data else results[0]  # the authors' base station is the first active device
    record["train_loss"] = sum(r.loss for r in results) / len(results)
    with watch.stage("uplink"):
        updates = torch.stack([_applied("before", federation.before, r.update) for r in results])
        results = [replace(r, update=updates.new_zeros(0)) for r in results]  # one copy of all updates is enough
        sent = prepare_messages(state, federation, active, updates)
        record["num_active"] = len(sent.devices)
        if not sent.devices:
            memories = _keep_silent(state, sent, experiment)
            return replace(state, rounds_done=index + 1, memories=memories), record, None
        messages = sent.messages.to(experiment.device)
        own = _applied("before", federation.before, base.update).to(experiment.device) if own_data else messages[0]
        exchange = communicate(federation.link, own, messages, state.uplink_memory, index, sent.attack)
        update = _applied("after", federation.after, exchange.update.to(state.weights.device))
        memories, ratio = _remember(state, experiment, sent, exchange.sent.reconstruction.cpu())
    with watch.stage("server"):
        state = replace(
            state,
            rounds_done=index + 1,
            memories=memories,
            uplink_memory=exchange.memory,
            side_information=exchange.air.side_information,
        )
        state = update_model(state, experiment, update)
        left = dict(zip(active, results, strict=True))
        state = update_buffers(state, experiment.buffers, left, sent.devices, base, exchange.output.num_active_hat)
    with watch.stage("measure"):
        hat = exchange.output.num_active_hat
        record |= ({} if hat is None else {"num_active_hat": hat}) | {"feedback_ratio": ratio}
        record["quantization_nmse"] = quantization_nmse(sent.messages, exchange.sent.reconstruction.cpu())
        record |= diagnose(federation.link, exchange)
        record |= record_of(exchange.air)
    return state, record, Round(exchange, torch.stack([r.buffers for r in results]), state)


def _applied(name: str, transform: Transform | None, update: Float[Tensor, " params"]) -> Float[Tensor, " params"]:
    """Apply a function of the user's own, if there is one, and check that it returns an update."""
    if transform is None:
        return update
    result = ask(transform, update)
    if not has_numbers(result) or result.shape != update.shape or result.dtype != update.dtype:
        raise ShapeError(f"{name} returned {describe(result)} for {describe(update)}; expected the same shape and type")
    if not all_finite(result):
        raise ShapeError(f"{name} returned values that are not finite; expected an update of finite numbers")
    return result


def train_devices(state: FederationState, federation: Federation, devices: tuple[int, ...]) -> list[LocalResult]:
    """Train the base station and the active devices, each from the global model."""
    tasks = [Task(state.rounds_done, device, state.local_buffers.get(device)) for device in devices]
    return federation.executor.map(tasks, state.weights, state.buffers)


def prepare_messages(
    state: FederationState, federation: Federation, active: tuple[int, ...], updates: Float[Tensor, "active params"]
) -> Messages:
    """Turn local updates, which are written over, into messages: weights, corruption, error feedback."""
    experiment, index = federation.experiment, state.rounds_done
    if federation.shares is not None:
        updates *= torch.tensor([federation.shares[device] for device in active])[:, None]
    messages, silent, attack = updates, [False] * len(active), None
    if experiment.corruption.kind != "none":
        from aircomp.device.corrupt import corrupt, corrupted_devices
        from aircomp.schemes.attack import attack_of

        settings, seed = experiment.corruption, experiment.seed
        bad = corrupted_devices(len(active), settings, rng=rngs.generator(seed, "corrupted", index))
        messages = corrupt(updates, bad, settings, rng=rngs.generator(seed, "corruption", index))
        silent = bad.tolist() if settings.kind == "silent" else silent
        attack = attack_of(bad, settings)
    norms = [float(message.norm()) for message in messages]
    for device, message in zip(active, messages, strict=True):
        message.copy_(add_memory(message, state.memories.get(device), experiment.feedback))
    speaking = [i for i, quiet in enumerate(silent) if not quiet]
    return Messages(
        devices=tuple(active[i] for i in speaking),
        norms=[norms[i] for i in speaking],
        messages=messages[speaking] if any(silent) else messages,
        silent={active[i]: (norms[i], messages[i]) for i, quiet in enumerate(silent) if quiet},
        attack=attack,
    )


def _remember(
    state: FederationState, experiment: Experiment, sent: Messages, reconstruction: Float[Tensor, "devices params"]
) -> tuple[dict[int, Tensor], float]:
    memories = _keep_silent(state, sent, experiment)
    ratios = []
    for i, (device, norm) in enumerate(zip(sent.devices, sent.norms, strict=True)):
        memory = remember(sent.messages[i], reconstruction[i], experiment.feedback, update_norm=norm)
        ratios.append(feedback_ratio(memory, norm))
        if memory is not None:
            keep_memory(memories, device, memory)
    return memories, sum(ratios) / len(ratios)


def _keep_silent(state: FederationState, sent: Messages, experiment: Experiment) -> dict[int, Tensor]:
    memories = dict(state.memories)
    for device, (norm, message) in sent.silent.items():
        memory = remember(message, torch.zeros_like(message), experiment.feedback, update_norm=norm)
        if memory is not None:
            keep_memory(memories, device, memory)
    return memories


def update_model(state: FederationState, experiment: Experiment, update: Float[Tensor, " params"]) -> FederationState:
    """Take the server's step.

    Raises:
        TrainingDiverged: If the global model stops being finite.
    """
    weights, server = step(state.weights, update, state.server, experiment.server)
    if not torch.isfinite(weights).all():
        raise TrainingDiverged(
            f"the global model is not finite after round {state.rounds_done}; "
            "lower server.learning_rate or check the uplink"
        )
    return replace(state, weights=weights, server=server)


def update_buffers(
    state: FederationState,
    policy: Buffers,
    results: dict[int, LocalResult],
    speaking: tuple[int, ...],
    base: LocalResult,
    num_active_hat: float | None,
) -> FederationState:
    """Treat the buffers of the active devices as declared.

    Args:
        state: The federation after the server's step.
        policy: Averaged exactly; or summed exactly and divided by the rounded estimate of the number of devices, as the
            authors' code has it; or each device's own; or left alone, because the base station recomputes them.
        results: What each device's training left.
        speaking: The devices that sent something; the others' buffers stay with them.
        base: What the base station's training left.
        num_active_hat: The base station's estimate of the number of devices.
    """
    if base.buffers.numel() == 0 or policy == "recomputed":
        return state
    if policy != "local":
        number = len(speaking)
        # uplinks that estimate none are refused before the run
        if policy == "estimated" and num_active_hat is not None:
            number = max(1, round(num_active_hat))
        return replace(state, buffers=torch.stack([results[d].buffers for d in speaking]).sum(dim=0) / number)
    own = dict(state.local_buffers) | {d: r.buffers for d, r in results.items()}
    return replace(state, local_buffers=own | {BASE_STATION: base.buffers}, buffers=base.buffers)
