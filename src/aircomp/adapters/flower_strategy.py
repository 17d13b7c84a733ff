"""The server side under Flower: another strategy's selection, our uplink, aggregation and global step (Sec. II, III)."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from flwr.app import (  # noqa: TID253  only `aircomp.adapters.flower` leads here
    Array,
    ArrayRecord,
    ConfigRecord,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp import Grid  # noqa: TID253
from flwr.serverapp.strategy import Strategy  # noqa: TID253
from jaxtyping import Float
from torch import Tensor

from aircomp.adapters.flower_records import (
    ANNOUNCED,
    ROUND,
    ClientFailed,
    check_same_arrays,
    flatten,
    radio_names,
    unflatten,
)
from aircomp.adapters.flower_replies import Answer, Arrived, Roll, collect
from aircomp.aggregation.rules import Rule
from aircomp.aggregation.settings import Readout
from aircomp.channel.base import Channel, Csi, Direct
from aircomp.device.feedback import remember
from aircomp.device.settings import FeedbackSettings
from aircomp.errors import ConfigError, TrainingDiverged
from aircomp.link import Exchange, Link, aggregate, broadcast, carry, decode, encode, sound, within_cap
from aircomp.quantize.fragment import num_slots
from aircomp.schemes.base import Broadcast, Memory, Private, Scheme, Sent
from aircomp.schemes.digital.link import Digital, dequantize
from aircomp.schemes.meter import measure, record_of
from aircomp.server.settings import ServerSettings
from aircomp.server.step import ServerState, initial_state, step

log = logging.getLogger(__name__)

TrainBaseStation = Callable[[int, ArrayRecord], ArrayRecord]
"""Trains the arrays on the base station's own data, as a client would; the first argument is the round, from 1."""


@dataclass(frozen=True)
class _Round:
    """What is fixed when a round's messages leave."""

    arrays: ArrayRecord
    names: list[str]
    weights: Float[Tensor, " params"]
    base_update: Float[Tensor, " params"]
    announced: Broadcast
    private: Private


class UplinkStrategy(Strategy):
    """Wraps a strategy: it selects and evaluates as before, updates come over one of our uplinks.

    Clients need `uplink_mod`. Every client that answers counts the same, as on the radio: `num-examples` only weighs
    metrics. A client that fails ends the run with its name. One that left in the middle of a round was silent: the
    round goes on without it, with a warning and the metric `uplink.num_lost`.

    Args:
        strategy: Selects clients, configures and aggregates evaluation, and aggregates clients' metrics.
        uplink: Any of our uplinks, or your own.
        train_base_station: Returns the base station's own trained arrays; the codebook is built from its update.
        channel: What lies between clients and base station, such as `aircomp.channel.Awgn(10.0)`.
        aggregator: An aggregation rule's name, or a function of (counts, codewords).
        keep: Share of the mass that the trimmed means keep.
        readout: What a mean is formed of: the decoded integers, or the decoder's soft counts as they are or lengthened;
            `auto` lengthens them for the mean, and takes integers for every other rule.
        cap: Whether the nominal energy is the most that a device spends in a round, in place of what devices spend on
            average (`power.cap` of `aircomp simulate`).
        server: The global step.
        feedback: The devices' error feedback.
        parameters: Names of the arrays that travel over the radio; default all. The others (BatchNorm's statistics)
            are averaged exactly beside it.
        seed: What codebooks and noise derive from; the same as in `aircomp simulate` gives the same ones.
        device: Where the uplink computes.
    """

    def __init__(
        self,
        strategy: Strategy,
        uplink: Scheme,
        train_base_station: TrainBaseStation,
        *,
        channel: Channel | None = None,
        aggregator: str | Rule = "mean",
        keep: float = 0.8,
        readout: Readout = "auto",
        cap: bool = False,
        server: ServerSettings | None = None,
        feedback: FeedbackSettings | None = None,
        parameters: Sequence[str] | None = None,
        seed: int = 0,
        device: str = "cpu",
    ):
        if channel is None and uplink.uses_radio:
            raise ConfigError(
                f"the uplink {uplink.name!r} uses the radio, but no channel was given; "
                "expected one, such as channel=aircomp.channel.Awgn(10.0)"
            )
        if server is not None and server.base != "own-data":
            raise ConfigError(f"server.base = {server.base!r} is for simulate; under Flower train_base_station says it")
        self.strategy, self.train_base_station, self.parameters = strategy, train_base_station, parameters
        self.link = Link(uplink, channel or Direct(), aggregator, keep=keep, readout=readout, seed=seed, cap=cap)
        self.server, self.feedback, self.device = server or ServerSettings(), feedback or FeedbackSettings(), device
        self._roll = Roll()
        self._round: _Round | None = None
        self._server_state: ServerState | None = None
        self._memory: Memory = {}
        self._arrived: dict[int, Arrived] = {}

    def summary(self) -> None:
        """Log what is used."""
        log.info("uplink %s, aggregation %s, server step %s", self.link.scheme.name, self.link.rule, self.server.kind)
        self.strategy.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the wrapped strategy select; train the base station and add its codebook to every message."""
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        self._roll = self._roll.asking(messages)
        if not messages:
            self._round = None
            return messages
        self._round = self._open(server_round, arrays)
        extra = self._announcement(server_round, self._round)
        for message in messages:  # Flower gives all messages one content, so none is changed in place
            told = self._arrived.get(message.metadata.dst_node_id, Arrived(0, None))
            message.content = RecordDict({**message.content, **extra, **told.records(extra[ROUND])})
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Superpose, add noise, decode, aggregate, and take the global step."""
        self._roll, answers = collect(server_round, replies, self._roll)
        if self._round is None:
            return None, None
        exchange = self._communicate(self._round, answers, server_round - 1)
        self._memory = exchange.memory
        self._arrived |= self._what_arrived(server_round, answers, exchange)
        weights = self._step(server_round, self._round.weights, exchange.update.to(self._round.weights))
        arrays = unflatten(weights, self._round.arrays, self._round.names)
        arrays |= _average_beside(self._round, answers)
        ordered = ArrayRecord({name: arrays[name] for name in self._round.arrays})
        return ordered, self._metrics(answers, exchange)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Leave it to the wrapped strategy."""
        messages = list(self.strategy.configure_evaluate(server_round, arrays, config, grid))
        self._roll = self._roll.asking(messages)
        return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Leave it to the wrapped strategy, but for failures: they raise."""
        replies = list(replies)
        self._roll.raise_failures(server_round, replies)
        return self.strategy.aggregate_evaluate(server_round, replies)

    def _open(self, server_round: int, arrays: ArrayRecord) -> _Round:
        names = radio_names(arrays, self.parameters)
        weights = flatten(arrays, names)
        trained = self.train_base_station(server_round, arrays)
        check_same_arrays(arrays, trained)
        base_update = (flatten(trained, names) - weights).to(self.device)
        announced, private = broadcast(self.link, base_update, self._memory, server_round - 1)
        return _Round(arrays, names, weights, base_update, announced, private)

    def _announcement(self, server_round: int, opened: _Round) -> dict[str, ArrayRecord | ConfigRecord]:
        records: dict[str, ArrayRecord | ConfigRecord] = {
            ROUND: ConfigRecord(
                {
                    "round": server_round,
                    "parameters": opened.names,
                    "feedback": self.feedback.model_dump_json(),
                }
            )
        }
        if isinstance(self.link.scheme, Digital):
            downlink = opened.announced.values
            records[ANNOUNCED] = ArrayRecord({name: Array(told.cpu().numpy()) for name, told in downlink.items()})
        return records

    def _communicate(self, opened: _Round, answers: list[Answer], index: int) -> Exchange:
        """Do the rest of `aircomp.link.communicate`, whose first line was done before clients trained."""
        link, announced = self.link, opened.announced
        csi = sound(link, len(answers), announced, index)
        messages, sent = self._sent(opened, answers, csi, index)
        received = carry(link, sent, csi, index)
        output, memory = decode(link, received, replace(announced, agreed=sent.agreed), opened.private, csi)
        air = measure(link.scheme, announced, sent, csi)
        update = aggregate(link, output, opened.base_update)
        return Exchange(opened.base_update, messages, announced, opened.private, sent, output, update, memory, air)

    def _sent(self, opened: _Round, answers: list[Answer], csi: Csi, index: int) -> tuple[Tensor, Sent]:
        """Return what clients sent: the codewords they chose, or their messages, which are encoded here."""
        announced, scheme = opened.announced, self.link.scheme
        if isinstance(scheme, Digital):
            heard, words = announced.at_devices(self.device), announced.values["codebook"]
            slots = num_slots(announced.num_params, words.shape[1])
            indices = torch.stack([a.indices(slots, len(words)) for a in answers]).to(self.device)
            return dequantize(indices, heard), within_cap(
                self.link, partial(scheme.send, indices, heard), announced, csi
            )
        messages = torch.stack([a.vector(announced.num_params) for a in answers]).to(self.device)
        return messages, encode(self.link, messages, announced, csi, index)

    def _what_arrived(self, server_round: int, answers: list[Answer], exchange: Exchange) -> dict[int, Arrived]:
        """Return what to tell the nodes of what they sent, by their number: silent devices, say, sent nothing."""
        if self.feedback.kind == "off":
            return {}
        each = zip(answers, exchange.messages, exchange.sent.reconstruction, strict=True)
        return {
            answer.node: Arrived(server_round, None if torch.equal(arrived, message) else arrived.cpu())
            for answer, message, arrived in each
        }

    def _feedback_ratios(self, answers: list[Answer], exchange: Exchange) -> list[float]:
        """Return the ratio of every device: it tells it, or sent its message whole and does not know it yet."""
        each, ratios = zip(answers, exchange.messages, exchange.sent.reconstruction, strict=True), []
        for answer, message, arrived in each:
            if answer.feedback_ratio is None:
                memory = remember(message, arrived, self.feedback, update_norm=answer.update_norm)
                length = 0.0 if memory is None else float(memory.norm())
                ratios.append(length / max(answer.update_norm, 1e-12))
            else:
                ratios.append(answer.feedback_ratio)
        return ratios

    def _step(self, server_round: int, weights: Tensor, update: Tensor) -> Tensor:
        state = self._server_state or initial_state(self.server, weights.numel(), dtype=weights.dtype)
        weights, self._server_state = step(weights, update, state, self.server)
        if not torch.isfinite(weights).all():
            raise TrainingDiverged(
                f"the global model is not finite after round {server_round}; "
                "lower the server's learning_rate or check the uplink"
            )
        return weights

    def _metrics(self, answers: list[Answer], exchange: Exchange) -> MetricRecord:
        metrics = _client_metrics(self.strategy, answers)
        hat = exchange.output.num_active_hat
        ours = {
            "num_active": len(answers),
            "num_lost": len(self._roll.asked) - len(answers),
            **({} if hat is None else {"num_active_hat": hat}),
            "feedback_ratio": float(np.mean(self._feedback_ratios(answers, exchange))),
            **exchange.output.diagnostics,
            **self.link.scheme.diagnose(exchange.sent, exchange.broadcast, exchange.output),
            **record_of(exchange.air),
        }
        for name, value in ours.items():
            metrics[f"uplink.{name}"] = value
        return metrics


def _average_beside(opened: _Round, answers: list[Answer]) -> dict[str, Array]:
    """Average what does not travel over the radio exactly; integers (counters) stay as they were."""
    averaged: dict[str, Array] = {}
    for name, array in opened.arrays.items():
        if name in opened.names:
            continue
        stacked = np.stack([a.arrays[name].numpy() for a in answers])
        floating = np.issubdtype(stacked.dtype, np.floating)
        averaged[name] = Array(np.asarray(stacked.mean(axis=0, dtype=stacked.dtype))) if floating else array
    return averaged


def _client_metrics(strategy: Strategy, answers: list[Answer]) -> MetricRecord:
    """Aggregate the clients' metrics as the wrapped strategy does; a strategy unlike Flower's own has none."""
    aggregate = getattr(strategy, "train_metrics_aggr_fn", None)
    key = getattr(strategy, "weighted_by_key", "num-examples")
    if aggregate is None or not any(a.content.metric_records for a in answers):
        return MetricRecord()
    for answer in answers:
        records = list(answer.content.metric_records.values())
        if len(records) != 1 or key not in records[0]:
            raise ClientFailed(
                f"{answer.name} sent {len(records)} MetricRecords or none with {key!r}, by which metrics are weighted; "
                "expected one with it"
            )
    return aggregate([a.content for a in answers], key)
