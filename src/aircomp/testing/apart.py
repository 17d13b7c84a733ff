"""Each side of a round in a process of its own, which has seen nothing of the other side and nothing of other rounds."""

import os
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import torch
from safetensors.torch import load, save

from aircomp.common.rng import fixed_generator
from aircomp.common.tensors import tensor_hash
from aircomp.errors import AirCompError
from aircomp.link import Link, aggregate, broadcast, carry, communicate, decode, encode, sound
from aircomp.schemes.base import Broadcast, Sent

_CHECKS = count()
"""Each check has messages of its own, so that none was seen before."""


class _Raised(Exception):
    """What a process raised, in words."""


def tensors_of(sent: Sent) -> list[Any]:
    """Return all that is sent, as tensors."""
    payload = [sent.payload] if isinstance(sent.payload, torch.Tensor) else []
    beside = [] if sent.delivered is None else [sent.delivered]
    return [*sent.signal.each(), sent.reconstruction, *beside, *sent.agreed.values(), *payload]


def remembers(make: Callable[[], Link], num_devices: int, num_params: int) -> str:
    """Return a sentence on what a verb knows beside its arguments; nothing if each does alone what it does in a run.

    A run sends another round first. Alone, `encode` is called in a process that never announced nor decoded anything, and
    `decode` in one that never encoded. So it does not matter where something is kept.

    Args:
        make: Builds the link.
        num_devices: How many devices send.
        num_params: The length of their messages.
    """
    rng = fixed_generator(f"messages of check {next(_CHECKS)}")
    before, base = torch.randn(2, num_params, generator=rng) ** 3
    others, messages = torch.randn(2, num_devices, num_params, generator=rng) ** 3

    def run() -> bytes:
        link = make()
        communicate(link, before.clone(), others.clone(), {}, 0)
        done = communicate(link, base.clone(), messages.clone(), {}, 1)
        return f"{_hash_of(done.sent)} {tensor_hash(done.update)}".encode()

    def announce() -> bytes:
        return broadcast(make(), base.clone(), {}, 1)[0].wire

    def send(wire: bytes) -> bytes:
        link, heard = make(), Broadcast.read(wire)
        csi = sound(link, num_devices, heard, 1)
        sent = encode(link, messages.clone(), heard, csi, 1)
        if sent.payload is not None or not link.scheme.uses_radio:  # it is handed over, which is declared
            return _hash_of(sent).encode()
        received = carry(link, sent, csi, 1).contiguous()
        agreed = {f"agreed {name}": value.contiguous() for name, value in sent.agreed.items()}
        return f"{_hash_of(sent)} ".encode() + save({"received": received, **agreed})

    def receive(carried: bytes) -> bytes:
        link, arrived = make(), load(carried)
        received = arrived.pop("received")
        announced, private = broadcast(link, base.clone(), {}, 1)
        csi = sound(link, num_devices, announced, 1)
        agreed = {name.removeprefix("agreed "): value for name, value in arrived.items()}
        output, _ = decode(link, received, replace(announced, agreed=agreed), private, csi)
        return tensor_hash(aggregate(link, output, base)).encode()

    try:
        signal, update = _alone(run).split()
        wire = _alone(announce)
    except _Raised:
        return ""  # what fails in a run fails in the other checks, too, which say why
    beside = "encode knows more than the broadcast and the messages: in a process of its own it"
    try:
        alone, _, carried = _alone(lambda: send(wire)).partition(b" ")
    except _Raised as error:
        return f"{beside} fails: {error}"
    if alone != signal:
        return f"{beside} sends other signals"
    beside = "decode knows more than what it hears and what was broadcast: in a process of its own it"
    try:
        same = not carried or _alone(lambda: receive(carried)) == update
    except _Raised as error:
        return f"{beside} fails: {error}"
    return "" if same else f"{beside} gives another update"


def _hash_of(sent: Sent) -> str:
    return tensor_hash(*tensors_of(sent))


def _alone(do: Callable[[], bytes]) -> bytes:
    """Return what a function returns in a process that is forked for it.

    Raises:
        _Raised: If it raises there.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            with os.fdopen(write, "wb") as pipe:
                pipe.write(_outcome(do))
        finally:
            os._exit(0)  # nothing of the caller's is closed or written here
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        kind, said = pipe.read(1), pipe.read()
    os.waitpid(pid, 0)
    if kind != b"+":
        raise _Raised(said.decode() or "it ends without a word")
    return said


def _outcome(do: Callable[[], bytes]) -> bytes:
    torch.set_num_threads(1)  # threads do not survive a fork
    try:
        return b"+" + do()
    except Exception as error:
        said = str(error) if isinstance(error, AirCompError) else f"{type(error).__name__}: {error}"
        return b"-" + said.encode()
