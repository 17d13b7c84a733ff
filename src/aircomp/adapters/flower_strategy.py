"""The server side under Flower: another strategy's selection, our uplink, aggregation and global step (Sec. II, III)."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

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
    ASKED,
    CODEBOOK,
    ROUND,
    ClientFailed,
    check_same_arrays,
    flatten,
    radio_names,
    unflatten,
)
from aircomp.adapters.flower_replies import Answer, Roll, collect
from aircomp.aggregation import Rule
from aircomp.common import rng as rngs
from aircomp.device.feedback import FeedbackSettings
from aircomp.encode.schedule import AirSettings, place, told_snr
from aircomp.errors import ConfigError, TrainingDiverged
from aircomp.quantize.fragment import join, num_slots
from aircomp.quantize.nearest import lookup
from aircomp.server.step import ServerSettings, ServerState, initial_state, step
from aircomp.uplinks.base import Encoded, Readout, Reception, Uplink, aggregate_reception, check_readout
from aircomp.uplinks.digital import Announced

log = logging.getLogger(__name__)

TrainBaseStation = Callable[[int, ArrayRecord], ArrayRecord]
"""Trains the arrays on the base station's own data, as a client would; the first argument is the round, from 1."""


@dataclass(frozen=True)
class _Round:
    """What is fixed when a round's messages leave."""

    arrays: ArrayRecord
    names: list[str]
    weights: Float[Tensor, " params"]
    announced: Any  # the uplink's own

    @property
    def digital(self) -> Announced | None:
        return self.announced if isinstance(self.announced, Announced) else None


class UplinkStrategy(Strategy):
    """Wraps a strategy: it selects and evaluates as before, updates come over one of our uplinks.

    Clients need `uplink_mod`. Every client that answers counts the same, as on the radio: `num-examples` only weighs
    metrics. A client that fails ends the run with its name. One that left in the middle of a round was silent: the
    round goes on without it, with a warning and the metric `uplink.num_lost`.

    Args:
        strategy: Selects clients, configures and aggregates evaluation, and aggregates clients' metrics.
        uplink: Any of our uplinks, or your own.
        train_base_station: Returns the base station's own trained arrays; the codebook is built from its update.
        aggregator: An aggregation rule's name, or a function of (counts, codewords).
        keep: Share of the mass that the trimmed means keep.
        readout: What a mean is formed of: the decoded integers, or the decoder's soft counts as they are or lengthened;
            `auto` lengthens them for the mean, and takes integers for every other rule.
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
        uplink: Uplink,
        train_base_station: TrainBaseStation,
        *,
        aggregator: str | Rule = "mean",
        keep: float = 0.8,
        readout: Readout = "auto",
        server: ServerSettings | None = None,
        feedback: FeedbackSettings | None = None,
        parameters: Sequence[str] | None = None,
        seed: int = 0,
        device: str = "cpu",
    ):
        self.strategy, self.uplink, self.train_base_station = strategy, uplink, train_base_station
        check_readout(aggregator, readout)
        self.aggregator, self.keep, self.parameters = aggregator, keep, parameters
        self.readout: Readout = readout
        self.server, self.feedback = server or ServerSettings(), feedback or FeedbackSettings()
        self.seed, self.device = seed, device
        self._roll = Roll()
        self._round: _Round | None = None
        self._server_state: ServerState | None = None
        self._snr_db: float | None = None

    def summary(self) -> None:
        """Log what is used."""
        log.info("uplink %s, aggregation %s, server step %s", self.uplink.name, self.aggregator, self.server.kind)
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
            message.content = RecordDict({**message.content, **extra})
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Superpose, add noise, decode, aggregate, and take the global step."""
        self._roll, answers = collect(server_round, replies, self._roll)
        if self._round is None:
            return None, None
        encoded = self._encoded(self._round, answers)
        announced, uplink = self._round.announced, self.uplink
        received = uplink.transmit(encoded, announced, rng=rngs.generator(self.seed, "noise", server_round - 1))
        reception = uplink.decode(received, announced)
        self._snr_db = reception.snr_db
        update = aggregate_reception(reception, self.aggregator, self.keep, self.readout).to(self._round.weights)
        weights = self._step(server_round, self._round.weights, update)
        arrays = unflatten(weights, self._round.arrays, self._round.names)
        arrays |= _average_beside(self._round, answers)
        ordered = ArrayRecord({name: arrays[name] for name in self._round.arrays})
        return ordered, self._metrics(answers, encoded, reception)

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
        known = told_snr(getattr(self.uplink, "air", AirSettings()), self._snr_db)
        codebook_rng = rngs.generator(self.seed, "codebook", server_round - 1)
        announced = self.uplink.broadcast(base_update, rng=codebook_rng, **known)
        return _Round(arrays, names, weights, announced)

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
        if opened.digital is not None:
            arrays = {"codebook": opened.digital.quantizer.codebook, ASKED: opened.digital.asked}
            records[CODEBOOK] = ArrayRecord({n: Array(a.cpu().numpy()) for n, a in arrays.items() if a is not None})
        return records

    def _encoded(self, opened: _Round, answers: list[Answer]) -> Encoded:
        num_params = opened.weights.numel()
        if opened.digital is not None:
            return _place_indices(opened.digital, answers, self.device)
        messages = torch.stack([a.vector(num_params) for a in answers]).to(self.device)
        encoded = self.uplink.encode(messages, opened.announced)
        whole = bool(encoded.delivered.all()) and torch.equal(encoded.reconstruction, messages)
        if self.feedback.kind != "off" and not whole:
            raise ConfigError(
                f"the uplink {self.uplink.name!r} leaves out a part of what devices send and announces no codebook, so "
                "devices under Flower cannot know what to remember; use feedback=FeedbackSettings(kind='off')"
            )
        return encoded

    def _step(self, server_round: int, weights: Tensor, update: Tensor) -> Tensor:
        state = self._server_state or initial_state(self.server, weights.numel(), dtype=weights.dtype)
        weights, self._server_state = step(weights, update, state, self.server)
        if not torch.isfinite(weights).all():
            raise TrainingDiverged(
                f"the global model is not finite after round {server_round}; "
                "lower the server's learning_rate or check the uplink"
            )
        return weights

    def _metrics(self, answers: list[Answer], encoded: Encoded, reception: Reception) -> MetricRecord:
        assert self._round is not None  # only called within a round
        metrics = _client_metrics(self.strategy, answers)
        ours = {
            "num_active": len(answers),
            "num_lost": len(self._roll.asked) - len(answers),
            "num_active_hat": reception.num_active_hat,
            "feedback_ratio": float(np.mean([a.feedback_ratio for a in answers])),
            **self.uplink.diagnose(encoded, self._round.announced, reception),
        }
        for name, value in ours.items():
            metrics[f"uplink.{name}"] = value
        return metrics


def _place_indices(announced: Announced, answers: list[Answer], device: str) -> Encoded:
    """Return the clients' indices as the uplink's own `encode` would have."""
    codebook, asked = announced.quantizer.codebook, announced.asked
    slots = num_slots(announced.num_params, codebook.shape[1])
    expected = slots if asked is None else len(asked)
    payload = torch.stack([a.indices(expected, len(codebook)) for a in answers]).to(device)
    reconstruction = join(place(lookup(payload, codebook), asked, slots), announced.num_params)
    return Encoded(payload, reconstruction, torch.ones(len(answers), dtype=torch.bool))


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
