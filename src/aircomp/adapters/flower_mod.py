"""The device side under Flower: error feedback and quantisation around the user's training (Sec. II-B, III-A)."""

import json
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import (  # noqa: TID253  only `aircomp.adapters.flower` leads here
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    RecordDict,
)
from flwr.clientapp.typing import ClientAppCallable  # noqa: TID253
from jaxtyping import Float
from torch import Tensor

from aircomp.adapters.flower_records import (
    ANNOUNCED,
    ARRIVED,
    MEMORY,
    ROUND,
    SENT,
    ClientFailed,
    check_same_arrays,
    flatten,
    index_dtype,
)
from aircomp.device.feedback import add_memory, feedback_ratio, remember
from aircomp.device.settings import FeedbackSettings
from aircomp.errors import ShapeError
from aircomp.schemes.base import Broadcast
from aircomp.schemes.digital.link import choose_codewords, dequantize


def uplink_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Replace the arrays of a training reply by codeword indices, one for each requested fragment of the update.

    The codebook, which fragments are asked for and the kind of error feedback come in the message from
    `UplinkStrategy`; other messages pass untouched. What was left out stays in `context.state`. Among several mods it
    comes first, which makes it the last to touch the reply: `ClientApp(mods=[uplink_mod, fixedclipping_mod])` quantises
    the clipped update.

    Raises:
        ClientFailed: If the training raises or its arrays do not fit, naming the client.
    """
    if ROUND not in message.content:
        return call_next(message, context)
    announced = message.content.config_records[ROUND]
    try:
        return _answer(message, context, call_next)
    except Exception as error:  # the process's edge: Flower tells the server no more than this line
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ClientFailed(f"{client_name(context)} failed in round {announced['round']}: {reason}") from error


def client_name(context: Context) -> str:
    """Return what a client is called in messages: its partition, if it has one, and its node."""
    partition = context.node_config.get("partition-id")
    node = f"node {context.node_id}"
    return node if partition is None else f"client {partition} ({node})"


def _answer(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    ours, records = message.content.config_records[ROUND], message.content.array_records
    announced, arrived = records.get(ANNOUNCED), records.get(ARRIVED)
    # the training sees the message as it would be without us
    message.content = RecordDict({k: v for k, v in message.content.items() if k not in (ROUND, ANNOUNCED, ARRIVED)})
    given = _only_arrays(message.content, "message")
    reply = call_next(message, context)
    if reply.has_error():
        return reply
    trained = _only_arrays(reply.content, "reply")
    check_same_arrays(given, trained)

    names: list[str] = list(ours["parameters"])  # pyright: ignore[reportArgumentType, reportAssignmentType]
    update = flatten(trained, names) - flatten(given, names)
    device = _Device(context, FeedbackSettings.parse(json.loads(str(ours["feedback"]))))
    device.learn(arrived, ours)
    sent, told = device.send(update, announced, int(str(ours["round"])))
    beside = {name: array for name, array in trained.items() if name not in names}
    key = next(iter(reply.content.array_records))
    reply.content[key] = ArrayRecord({SENT: sent} | beside)
    number = int(context.node_config.get("partition-id", context.node_id))
    reply.content[ROUND] = ConfigRecord({"device": number, "name": client_name(context), **told})
    return reply


@dataclass(frozen=True)
class _Device:
    """What a device remembers between its rounds, in Flower's context."""

    context: Context
    feedback: FeedbackSettings

    def learn(self, arrived: ArrayRecord | None, ours: ConfigRecord) -> None:
        """Turn the last message into a memory, now that the server tells what it stood for.

        If the last reply was lost, the server tells of an older one or of none, and the device keeps its message whole.
        """
        kept = self.context.state.array_records.get(MEMORY)
        if kept is None or "message" not in kept:
            return
        text, (norm, sent_in) = (torch.from_numpy(kept[name].numpy()) for name in ("message", "norm and round"))
        stands_for = torch.zeros_like(text)
        if int(sent_in) == ours["arrived"]:
            meant = kept.get("chosen", kept["message"]) if arrived is None else arrived["arrived"]
            stands_for = torch.from_numpy(meant.numpy())
        memory = remember(text, stands_for, self.feedback, update_norm=float(norm))
        assert memory is not None  # a message is kept only where there is feedback
        self.context.state[MEMORY] = ArrayRecord({"memory": Array(memory.numpy())})

    def send(
        self, update: Float[Tensor, " params"], announced: ArrayRecord | None, server_round: int
    ) -> tuple[Array, dict[str, float]]:
        """Return what the device sends and what it tells beside it, and keep the message until it is known what arrived."""
        kept = self.context.state.array_records.get(MEMORY)
        memory = None if kept is None else torch.from_numpy(kept["memory"].numpy())
        if memory is not None and memory.shape != update.shape:
            raise ShapeError(
                f"the error memory has {memory.numel()} entries, the update {update.numel()}; the model changed within "
                "the run, so start a new one"
            )
        text, norm = add_memory(update, memory, self.feedback), float(update.norm())
        told, sent = {"update-norm": norm}, text.numpy()
        keep = {"message": sent}
        if announced is not None:
            sent, chosen = _quantize(text, announced)
            keep["chosen"] = chosen.numpy()
            told["feedback-ratio"] = feedback_ratio(remember(text, chosen, self.feedback, update_norm=norm), norm)
        if self.feedback.kind != "off":
            keep["norm and round"] = np.array([norm, server_round], dtype=np.float64)
            self.context.state[MEMORY] = ArrayRecord({name: Array(array) for name, array in keep.items()})
        return Array(sent), told


def _quantize(text: Float[Tensor, " params"], announced: ArrayRecord) -> tuple[np.ndarray, Float[Tensor, " params"]]:
    """Return an index for each asked fragment, and what they stand for."""
    downlink = {name: torch.from_numpy(array.numpy()) for name, array in announced.items()}
    broadcast = Broadcast(text.numel(), 0, downlink)
    indices = choose_codewords(text[None], broadcast)
    return indices[0].numpy().astype(index_dtype(len(downlink["codebook"]))), dequantize(indices, broadcast)[0]


def _only_arrays(content: RecordDict, what: str) -> ArrayRecord:
    records = list(content.array_records.values())
    if len(records) != 1:
        raise ShapeError(f"the {what} has {len(records)} ArrayRecords; expected one, the model's arrays")
    return records[0]
