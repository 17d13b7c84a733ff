"""A whole federated run: set up, rounds, checkpoints, metrics, result.

The command line's `simulate` and `aircomp.simulate` are this one function.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset

from aircomp import artefact, results
from aircomp import rng as rngs
from aircomp.aggregation import Rule, aggregator_names
from aircomp.channel.awgn import Channel
from aircomp.decode.base import Decoder
from aircomp.device.update import FlatModel
from aircomp.errors import ConfigError, unknown_name
from aircomp.fl import models
from aircomp.fl.data import ImageData, from_torch, load
from aircomp.fl.executors import make_executor
from aircomp.fl.experiment import Experiment, load_experiment
from aircomp.fl.journal import Journal, open_run, read_metrics
from aircomp.fl.needs import memory_needs
from aircomp.fl.participation import check_participation
from aircomp.fl.partition import Partition, split
from aircomp.fl.round import Exchange, Federation, Record, Stopwatch, Transform, run_round
from aircomp.fl.state import FederationState, load_checkpoint, save_checkpoint
from aircomp.fl.summary import accuracy_summary, means
from aircomp.fl.trainer import Trainer
from aircomp.memory import check_memory
from aircomp.server.step import initial_state
from aircomp.uplinks.base import Uplink, check_readout
from aircomp.uplinks.schemes import make_uplink

OnRound = Callable[[Record, Exchange | None], None]

SHORT_NAMES = {
    "snr_db": "channel.snr_db",
    "snr_reference": "channel.snr_reference",
    "aggregator": "aggregate.rule",
}
"""Keywords of `simulate` that stand for a setting further down."""


@dataclass(frozen=True)
class Simulation:
    """What a run left: a record per round, the summary row, and the trained model."""

    experiment: Experiment
    metrics: list[Record]
    row: results.Row
    state: FederationState = field(repr=False)
    model: nn.Module = field(repr=False)
    data: ImageData = field(repr=False)
    partition: Partition = field(repr=False)
    out: Path | None = None

    @property
    def test_accuracy(self) -> float:
        """Mean test accuracy of the last five evaluated rounds."""
        return self.row["test_accuracy"]


def simulate(
    preset: str | Path | Experiment = "digits",
    *,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    data_dir: str | Path | None = None,
    on_round: OnRound | None = None,
    model: nn.Module | None = None,
    dataset: ImageData | tuple[Dataset, Dataset] | None = None,
    uplink: str | Uplink | None = None,
    aggregator: str | Rule | None = None,
    decoder: Decoder | None = None,
    channel: Channel | None = None,
    before: Transform | None = None,
    after: Transform | None = None,
    **overrides: Any,
) -> Simulation:
    """Run federated training and return its metrics, summary and model.

    Args:
        preset: A preset's name, a TOML file, or an `Experiment`.
        out: Run directory; nothing is written without one.
        resume: Continue the run in `out`; it ends with the same bits as an uninterrupted one.
        overwrite: Replace a finished or unfinished run in `out`.
        data_dir: Where datasets lie; default `AIRCOMP_DATA` or the user's cache directory.
        on_round: Called with each round's record and what went over the uplink (None if no device transmitted).
        model: A module of your own instead of `model.name`.
        dataset: An `ImageData`, or a (train, test) pair of torch datasets, instead of `data.name`.
        uplink: A scheme's name, or an object of your own with its methods.
        aggregator: A rule's name, or a function of (counts, codewords).
        decoder: A decoder of your own on the digital link; its attribute `codebook`, if any, is what devices send.
        channel: A channel of your own on the digital link.
        before: Applied to every update before error feedback and quantisation.
        after: Applied to the aggregate before the server step.
        **overrides: Settings by name: `rounds=40, snr_db=0.0, **{"devices.total": 100}`.

    Example:
        >>> run = simulate("digits", uplink="ideal", rounds=2, engine="serial")
        >>> [record["round"] for record in run.metrics]
        [1, 2]
    """
    names = {"uplink": uplink, "aggregator": aggregator}
    overrides |= {name: value for name, value in names.items() if isinstance(value, str)}
    experiment = configure(preset, overrides)
    if decoder is not None or (uplink is not None and not isinstance(uplink, str)):
        experiment = experiment.changed(uplink="custom")
    if channel is not None and experiment.uplink in ("ideal", "perfect"):
        raise ConfigError(
            f"a channel was given, but uplink = {experiment.uplink!r} has none; choose a digital one, say gamp"
        )
    data = _dataset(dataset, experiment, data_dir)
    module = model if model is not None else _model(experiment, data)
    own_rule = aggregator if aggregator is not None and not isinstance(aggregator, str) else None
    own_uplink = uplink if uplink is not None and not isinstance(uplink, str) else None
    flat = FlatModel(module.to(experiment.device))
    check_memory(memory_needs(experiment, flat.num_params))
    scheme = own_uplink or make_uplink(
        experiment.uplink,
        quantize=experiment.quantize,
        encode=experiment.encode,
        channel=channel or experiment.channel,
        seed=experiment.seed,
        device=experiment.device,
        slot_layers=flat.slot_layers(experiment.quantize.fragment_length).to(experiment.device),
        include_base_station=experiment.server.include_base_station,
        decoder=decoder,
        air=experiment.air,
        side_information=experiment.side_information,
    )
    check_readout(own_rule or experiment.aggregate.rule, experiment.aggregate.readout)
    run = _Run(experiment, data, flat, scheme, own_rule, before, after, on_round)
    if out is None:
        return run.execute(None, resume=False)
    directory = Path(out)
    with open_run(directory, experiment, resume=resume, overwrite=overwrite):
        return run.execute(directory, resume=resume)


def configure(preset: str | Path | Experiment, overrides: dict[str, Any]) -> Experiment:
    """Return the preset with overrides in place; every mistake is reported with its path."""
    experiment = preset if isinstance(preset, Experiment) else load_experiment(preset)
    experiment = experiment.changed(**{SHORT_NAMES.get(k, k): v for k, v in overrides.items()})
    if experiment.aggregate.rule not in aggregator_names():
        raise unknown_name("aggregation rule", experiment.aggregate.rule, aggregator_names())
    check_participation(experiment.participation, experiment.devices.total)
    if experiment.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device = 'cuda', but this machine or this build of torch has none; use --device cpu")
    return experiment


def _dataset(
    dataset: ImageData | tuple[Dataset, Dataset] | None, experiment: Experiment, data_dir: str | Path | None
) -> ImageData:
    if isinstance(dataset, ImageData):
        return dataset
    if dataset is not None:
        return from_torch(*dataset)
    return load(experiment.data.name, Path(data_dir) if data_dir else None)


def _model(experiment: Experiment, data: ImageData) -> nn.Module:
    channels = data.train_images.shape[1]
    return models.build(experiment.model, data.num_classes, channels, rng=rngs.generator(experiment.seed, "model"))


@torch.no_grad()
def evaluate(module: nn.Module, data: ImageData, *, batch_size: int = 500) -> tuple[float, float]:
    """Return accuracy and mean loss on the test set."""
    module.eval()
    device = next(module.parameters()).device
    correct, loss = 0, 0.0
    for images, labels in zip(data.test_images.split(batch_size), data.test_labels.split(batch_size), strict=True):
        inputs = data.normalize(images).contiguous(memory_format=torch.channels_last).to(device)
        logits, labels = module(inputs), labels.to(device)
        correct += int((logits.argmax(dim=1) == labels).sum())
        loss += float(F.cross_entropy(logits, labels, reduction="sum"))
    return correct / len(data.test_labels), loss / len(data.test_labels)


@dataclass
class _Run:
    """One run's parts, so that `execute` reads as the loop that it is."""

    experiment: Experiment
    data: ImageData
    model: FlatModel
    uplink: Uplink
    own_rule: Rule | None
    before: Transform | None
    after: Transform | None
    on_round: OnRound | None

    def execute(self, out: Path | None, *, resume: bool) -> Simulation:
        experiment = self.experiment
        partition = split(
            self.data.train_labels,
            experiment.devices.total,
            experiment.partition,
            rng=rngs.generator(experiment.seed, "partition"),
        )
        trainer = Trainer(
            self.model.module,
            self.data,
            partition,
            experiment.local,
            seed=experiment.seed,
            augment=experiment.data.augment,
            device=experiment.device,
        )
        state, metrics = self._start(out if resume else None)
        executor = make_executor(trainer, experiment.engine, experiment.workers, experiment.ray_address)
        rule = self.own_rule or experiment.aggregate.rule
        federation = Federation(experiment, self.uplink, rule, executor, self.before, self.after)
        begun = time.perf_counter()
        try:
            state = self._rounds(state, federation, metrics, out)
        finally:
            executor.close()
        self.model.load(state.weights, state.buffers)
        row = self._summary(metrics, time.perf_counter() - begun)
        if out is not None:
            results.write_result(
                out / "result.json", "simulate", experiment.model_dump(mode="json"), experiment.seed, [row]
            )
        return Simulation(experiment, metrics, row, state, self.model.module, self.data, partition, out)

    def _start(self, resume_from: Path | None) -> tuple[FederationState, list[Record]]:
        model, state = self.model, None
        metrics: list[Record] = []
        if resume_from is not None:
            state = load_checkpoint(resume_from / "checkpoint", self._identity, model.num_params)
            metrics = read_metrics(resume_from / "metrics.jsonl", state.rounds_done if state else 0)
        if state is None:
            server = initial_state(self.experiment.server, model.num_params)
            state = FederationState(0, model.weights.cpu().clone(), model.read_buffers().cpu(), server)
        return state, metrics

    @property
    def _identity(self) -> str:
        return artefact.config_hash(self.experiment.identity)

    def _rounds(
        self, state: FederationState, federation: Federation, metrics: list[Record], out: Path | None
    ) -> FederationState:
        journal = Journal(out, metrics)
        watch = Stopwatch()
        saved: FederationState | None = None
        saved_at = time.perf_counter()
        try:
            while state.rounds_done < self.experiment.rounds:
                after, record, exchange = run_round(state, federation, watch)
                record |= self._evaluate(after, watch)
                record["seconds"] = {k: round(v, 6) for k, v in watch.seconds.items()}
                journal.add(record)
                if self.on_round:
                    self.on_round(record, exchange)
                state = after  # only now: a checkpoint never runs ahead of the journal and of who looks on
                watch = Stopwatch()
                if out is not None and time.perf_counter() - saved_at >= self.experiment.checkpoint_seconds:
                    with watch.stage("checkpoint"):  # counted in the next round's record
                        save_checkpoint(out / "checkpoint", state, saved, self._identity)
                    saved, saved_at = state, time.perf_counter()
        finally:  # the end, Ctrl-C or an error: keep what was done
            if out is not None and state is not saved:
                save_checkpoint(out / "checkpoint", state, saved, self._identity)
            journal.close()
        return state

    def _evaluate(self, state: FederationState, watch: Stopwatch) -> Record:
        due = state.rounds_done % self.experiment.evaluate_every == 0 or state.rounds_done == self.experiment.rounds
        if not due:
            return {}
        with watch.stage("evaluate"):
            self.model.load(state.weights, state.buffers)
            accuracy, loss = evaluate(self.model.module, self.data)
        return {"test_accuracy": accuracy, "test_loss": loss}

    def _summary(self, metrics: list[Record], seconds: float) -> results.Row:
        experiment, num_params = self.experiment, self.model.num_params
        active = [r["num_active"] for r in metrics if r["num_active"]]
        cost = self.uplink.cost(num_params, round(statistics.fmean(active)) if active else 0)
        side_information = list(cost.side_information)
        has_buffers = any(b.is_floating_point() for b in self.model.module.buffers())
        if has_buffers and experiment.buffers == "average":
            side_information.append("BatchNorm buffers, averaged exactly")
        return {
            "uplink": self.uplink.name,
            "snr_db": experiment.channel.snr_db,
            "snr_reference": experiment.channel.snr_reference,
            "aggregator": getattr(self.own_rule, "__name__", experiment.aggregate.rule),
            "dataset": self.data.variant,
            "rounds": len(metrics),
            **accuracy_summary([r["test_accuracy"] for r in metrics if "test_accuracy" in r]),
            **means(metrics),
            "num_parameters": num_params,
            "buffers": experiment.buffers if has_buffers else "none",
            "channel_uses_per_parameter": cost.channel_uses / num_params,
            "energy_per_device": cost.energy_per_device,
            "side_information": side_information,
            "seconds": round(seconds, 3),
        }
