"""Whom the server asked, who answered, and what to say about the others."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from flwr.app import (  # noqa: TID253  only `aircomp.adapters.flower` leads here
    Array,
    ArrayRecord,
    ConfigRecord,
    Error,
    Message,
    RecordDict,
)
from flwr.common.constant import ErrorCode  # noqa: TID253
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.adapters.flower_records import ARRIVED, ROUND, SENT, ClientFailed

log = logging.getLogger(__name__)

GONE = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE)
"""What the SuperLink says of a node that left; such a reply does not name the node."""

WRAPPING = re.compile(r"^<class '[^']*'>:<'|^Exception ClientAppException occurred\. Message: |'>$")
"""What Flower puts around an exception's message."""


@dataclass(frozen=True)
class Answer:
    """A client's reply that carries something."""

    name: str
    device: int
    node: int
    content: RecordDict
    arrays: ArrayRecord
    update_norm: float
    feedback_ratio: float | None
    """If all codewords that it chose arrive. None: it sent its message whole, and does not know yet what arrives."""

    def indices(self, num_slots: int, num_codewords: int) -> Int[Tensor, " slots"]:
        """Return the indices that the client sent, or say what it sent instead."""
        sent = self.arrays[SENT].numpy()
        right = np.issubdtype(sent.dtype, np.integer) and sent.shape == (num_slots,)
        if not right or int(sent.min()) < 0 or int(sent.max()) >= num_codewords:
            raise ClientFailed(
                f"{self.name} sent {sent.dtype} of shape {sent.shape}; expected one index below {num_codewords} for "
                f"each of {num_slots} fragments: is its model or its version of aircomp another one?"
            )
        return torch.from_numpy(sent.astype(np.int64))

    def vector(self, num_params: int) -> Float[Tensor, " params"]:
        """Return the whole message that the client sent, for uplinks without a codebook."""
        sent = self.arrays[SENT].numpy()
        if not np.issubdtype(sent.dtype, np.floating) or sent.shape != (num_params,):
            raise ClientFailed(
                f"{self.name} sent {sent.dtype} of shape {sent.shape}; expected {num_params} real numbers: is its "
                "model or its version of aircomp another one?"
            )
        return torch.from_numpy(sent)


@dataclass(frozen=True)
class Arrived:
    """What a node's message stood for on the radio."""

    server_round: int
    """Of the message; 0: the node has never sent one."""
    stands_for: Float[Tensor, " params"] | None
    """None: all that the node sent."""

    def records(self, announced: ArrayRecord | ConfigRecord) -> dict[str, ArrayRecord | ConfigRecord]:
        """Return what the node is told of it, beside what all are told of the round."""
        told: dict[str, ArrayRecord | ConfigRecord] = {
            ROUND: ConfigRecord({**announced, "arrived": self.server_round})  # pyright: ignore[reportArgumentType]
        }
        if self.stands_for is not None:
            told[ARRIVED] = ArrayRecord({"arrived": Array(self.stands_for.numpy())})
        return told


@dataclass(frozen=True)
class Roll:
    """The nodes asked last, and what all nodes that ever answered call themselves."""

    asked: Sequence[int] = ()
    names: Mapping[int, str] = field(default_factory=dict)

    def asking(self, messages: Sequence[Message]) -> "Roll":
        """Return the roll with the receivers of these messages as those asked."""
        return replace(self, asked=[m.metadata.dst_node_id for m in messages])

    def name(self, node_id: int) -> str:
        """Return a node's name."""
        return self.names.get(node_id, f"node {node_id}")

    def raise_failures(self, server_round: int, replies: Sequence[Message]) -> None:
        """Raise ClientFailed with the names and reasons of all clients that failed; those that left did not fail."""
        failed = [r for r in replies if r.has_error() and r.error.code not in GONE]
        if failed:
            reasons = "; ".join(self._reason(r.metadata.src_node_id, r.error) for r in failed)
            raise ClientFailed(f"{len(failed)} of {len(self.asked)} clients failed in round {server_round}: {reasons}")

    def _reason(self, node_id: int, error: Error) -> str:
        """Return a failed client's name and reason: the exception's own message, which Flower has put last."""
        lines = [line.strip() for line in str(error.reason).splitlines() if line.strip()] or ["no reason given"]
        reason = WRAPPING.sub("", lines[-1])
        return reason if f"node {node_id}" in reason else f"{self.name(node_id)}: {reason}"


def collect(server_round: int, replies: Iterable[Message], roll: Roll) -> tuple[Roll, list[Answer]]:
    """Return the answers in the order of the devices' numbers, and the roll with the names that they gave.

    Raises:
        ClientFailed: If a client failed or answered without the mod, or if nobody answered.
    """
    replies = list(replies)
    roll.raise_failures(server_round, replies)
    valid = {r.metadata.src_node_id: r.content for r in replies if not r.has_error()}
    answers = [_answer(node, roll.name(node), content) for node, content in valid.items()]
    roll = replace(roll, names={**roll.names, **{n: a.name for n, a in zip(valid, answers, strict=True)}})
    lost = [roll.name(node) for node in roll.asked if node not in valid]
    if roll.asked and not answers:
        raise ClientFailed(
            f"no client answered in round {server_round}, asked were {', '.join(lost)}; "
            "see that their SuperNodes run, or wait longer with timeout="
        )
    if lost:
        log.warning("round %d goes on without %s, gone before the answer", server_round, ", ".join(lost))
    return roll, sorted(answers, key=lambda a: a.device)


def _answer(node: int, name: str, content: RecordDict) -> Answer:
    arrays = next((record for record in content.array_records.values() if SENT in record), None)
    if ROUND not in content or arrays is None:
        raise ClientFailed(f"{name} answered without aircomp's mod; give its app ClientApp(mods=[uplink_mod])")
    said = content.config_records[ROUND]
    ratio = said.get("feedback-ratio")
    return Answer(
        name=str(said["name"]),
        device=int(str(said["device"])),
        node=node,
        content=content,
        arrays=arrays,
        update_norm=float(str(said["update-norm"])),
        feedback_ratio=None if ratio is None else float(str(ratio)),
    )
