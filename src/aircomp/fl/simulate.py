"""A whole federated run: set up, rounds, checkpoints, metrics, result.

The command line's `simulate` and `aircomp.simulate` are this one function.
"""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.utils.data import Dataset

from aircomp.aggregation import Rule
from aircomp.channel import Channel
from aircomp.common import artefact, results
from aircomp.common import rng as rngs
from aircomp.common.checks import check_callable, check_path, check_type
from aircomp.common.interrupt import deferred
from aircomp.common.memory import check_memory
from aircomp.common.outdir import as_directory
from aircomp.common.threads import one_thread
from aircomp.data.images import ImageData, check_images, from_torch, load
from aircomp.data.partition import Partition, split
from aircomp.decode.base import Decoder
from aircomp.device.update import FlatModel
from aircomp.engines.local import make_executor
from aircomp.engines.trainer import Trainer
from aircomp.errors import ConfigError
from aircomp.fl import models
from aircomp.fl.configure import (
    check_buffers,
    check_overrides,
    check_phase,
    check_radio,
    configure,
)
from aircomp.fl.evaluate import evaluate, recompute_statistics
from aircomp.fl.experiment import Buffers, Experiment
from aircomp.fl.journal import Journal, open_run, read_metrics
from aircomp.fl.needs import memory_needs
from aircomp.fl.own import copy_model, has_fixed, idle_parameters, layout_hash, load_fixed, save_fixed
from aircomp.fl.participation import most_active
from aircomp.fl.radio import make_link
from aircomp.fl.round import Federation, Record, Round, Stopwatch, Transform, run_round
from aircomp.fl.start import load_start, save_model
from aircomp.fl.state import FederationState, has_checkpoint, load_checkpoint, save_checkpoint
from aircomp.fl.summary import accuracy_summary, air_summary, means
from aircomp.link import Link
from aircomp.server.step import initial_state
from aircomp.uplinks.base import Uplink, check_devices
from aircomp.uplinks.meter import check_power

OnRound = Callable[[Record, Round | None], None]

BUFFERS_BESIDE: dict[Buffers, str] = {
    "average": "BatchNorm buffers, averaged exactly",
    "estimated": "BatchNorm buffers, summed exactly and divided by the estimated number of devices",
}
"""What reaches the base station beside the radio, by the treatment of buffers."""
FIRST_DEVICE_BESIDE = "the first active device's message, which the quantiser is built from"


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

    def __repr__(self) -> str:
        """Say in a line what was run and how it ended; the fields hold the rest."""
        row, accuracy = self.row, self.row.get("test_accuracy")
        noise = "" if row["snr_db"] is None else f" at {row['snr_db']:g} dB"
        ended = "not evaluated" if accuracy is None else f"test accuracy {accuracy:.3f}"
        rounds = "1 round" if row["rounds"] == 1 else f"{row['rounds']} rounds"
        return f"<Simulation: {row['dataset']} over {row['uplink']}{noise}, {rounds}, {ended}>"

    @property
    def test_accuracy(self) -> float:
        """Test accuracy of the last evaluation; `row["test_accuracy_last5"]` is the mean of the last five."""
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
    channel: str | Channel | None = None,
    before: Transform | None = None,
    after: Transform | None = None,
    command: str = "simulate",
    **overrides: Any,
) -> Simulation:
    """Run federated training and return its metrics, summary and model.

    Args:
        preset: A preset's name, a TOML file, or an `Experiment`.
        out: Run directory; nothing is written without one.
        resume: Continue the run in `out`; it ends with the same bits as an uninterrupted one.
        overwrite: Replace a finished or unfinished run in `out`.
        data_dir: Where datasets are; default `AIRCOMP_DATA` or the user's cache directory.
        on_round: Called with each round's record and what happened in it (None if no device transmitted).
        model: A module of your own instead of `model.name`.
        dataset: An `ImageData`, or a (train, test) pair of torch datasets, instead of `data.name`.
        uplink: A scheme's name, or an object of your own with its methods.
        aggregator: A rule's name, or a function of (counts, codewords).
        decoder: A decoder of your own on the digital link. Devices send the codewords of its attribute `codebook`, if
            it has one.
        channel: A channel's kind, or a channel of your own on the digital link.
        before: Applied to every update before error feedback and quantisation.
        after: Applied to the aggregate before the server step.
        command: The command that owns `out`; `collect` writes more into it.
        **overrides: Settings by name: `rounds=40, snr_db=0.0, **{"devices.total": 100}`.

    Examples:
        >>> run = simulate("digits", uplink="ideal", rounds=2, engine="serial")
        >>> [record["round"] for record in run.metrics]
        [1, 2]
    """
    check_type("preset", preset, (str, Path, Experiment), "a preset's name, a TOML file, or an Experiment")
    for name, path in (("out", out), ("data_dir", data_dir)):
        if path is not None:
            check_path(name, path)
    if out is None and (resume or overwrite):
        raise ConfigError(f"{'resume' if resume else 'overwrite'} was given without out; expected the run's directory")
    if on_round is not None:
        check_callable("on_round", on_round, "of (record, exchange)")
    names = {"uplink": uplink, "aggregator": aggregator, "channel": channel}
    overrides |= {name: value for name, value in names.items() if isinstance(value, str)}
    own_uplink, own_rule, own_channel = (None if isinstance(part, str) else part for part in names.values())
    own: dict[str, Any] = {"model": model, "dataset": dataset, "uplink": own_uplink, "decoder": decoder}
    own |= {"channel": own_channel, "aggregator": own_rule, "before": before, "after": after}
    experiment = configure(preset, overrides, {name: part for name, part in own.items() if part is not None})
    check_overrides(experiment, overrides)
    check_phase(experiment)
    data = _dataset(dataset, experiment, data_dir)
    module = build_model(experiment, data) if model is None else copy_model(model)
    if experiment.start and not (resume and out is not None and has_checkpoint(Path(out) / "checkpoint")):
        load_start(module, Path(experiment.start))
    module = module.to(experiment.device)
    idle = () if model is None else idle_parameters(module, data, seed=experiment.seed, device=experiment.device)
    flat = FlatModel(module, idle=idle)
    if model is not None:
        experiment = experiment.changed(**{"own.layout": layout_hash(flat)})
    if dataset is not None:
        samples = (data.train_images, data.train_labels, data.test_images, data.test_labels)
        experiment = experiment.changed(**{"own.samples": artefact.tensor_hash(*samples)[:16]})
    length = experiment.uplink.quantize.fragment_length
    if experiment.uplink.name != "ideal" and flat.num_params < length:
        raise ConfigError(
            f"uplink.quantize.fragment_length = {length}: longer than the model, which has {flat.num_params} parameters; "
            "lower it"
        )
    check_memory(memory_needs(experiment, flat.num_params))
    layers = flat.slot_layers(length).to(experiment.device)
    link = make_link(experiment, layers, uplink=own_uplink, channel=own_channel, rule=own_rule, decoder=decoder)
    check_radio(link.uplink, overrides)
    check_buffers(experiment.buffers, link.uplink)
    check_devices(link.uplink, most_active(experiment.participation, experiment.devices.total))
    run = _Run(experiment, data, flat, link, before, after, on_round, command)
    if out is None:
        return run.execute(None, resume=False)
    directory = as_directory(out)
    with open_run(directory, experiment, command=command, resume=resume, overwrite=overwrite):
        return run.execute(directory, resume=resume)


def _dataset(
    dataset: ImageData | tuple[Dataset, Dataset] | None, experiment: Experiment, data_dir: str | Path | None
) -> ImageData:
    if isinstance(dataset, ImageData):
        check_images(dataset)
        return dataset
    if dataset is not None:
        with rngs.global_state(experiment.seed, "dataset"):  # random transforms are drawn once, and alike on resume
            return from_torch(*dataset, name=experiment.data.name)
    return load(experiment.data.name, Path(data_dir) if data_dir else None)


def partition_of(experiment: Experiment, data: ImageData) -> Partition:
    """Return which training images each device and the base station hold."""
    rng = rngs.generator(experiment.seed, "partition")
    own = experiment.server.base == "own-data"
    return split(data.train_labels, experiment.devices.total, experiment.partition, rng=rng, base_station=own)


def build_model(experiment: Experiment, data: ImageData) -> nn.Module:
    """Return the experiment's model as it is before training."""
    channels, seed = data.train_images.shape[1], experiment.seed
    with rngs.global_state(seed, "model"):  # torch's layers draw from it before they are drawn anew
        return models.build(experiment.model, data.num_classes, channels, rng=rngs.generator(seed, "model"))


@dataclass
class _Run:
    """One run's parts, so that `execute` reads as the loop that it is."""

    experiment: Experiment
    data: ImageData
    model: FlatModel
    link: Link
    before: Transform | None
    after: Transform | None
    on_round: OnRound | None
    command: str
    """What the result calls it."""

    def execute(self, out: Path | None, *, resume: bool) -> Simulation:
        experiment = self.experiment
        partition = partition_of(experiment, self.data)
        state, metrics = self._start(out, resume=resume)
        trainer = Trainer(
            self.model.module,
            self.data,
            partition,
            experiment.local,
            seed=experiment.seed,
            augment=experiment.data.augment,
            device=experiment.device,
            idle=self.model.idle,
        )
        executor = make_executor(trainer, experiment.engine, experiment.workers, experiment.ray_address)
        federation = Federation(experiment, self.link, executor, self.before, self.after)
        begun = time.perf_counter()
        try:
            state = self._rounds(state, federation, metrics, out, partition.base_station)
        finally:
            with deferred():
                executor.close()
        self.model.load(state.weights, state.buffers)
        row = self._summary(metrics, state.side_information, time.perf_counter() - begun)
        if out is not None:
            save_model(out, self.model.module)
            results.write_result(
                out / "result.json", self.command, experiment.model_dump(mode="json"), experiment.seed, [row]
            )
        if row["snr_reference"] == "transmit":
            check_power(metrics)
        # a copy: its parameters are tensors of their own again, not views of one vector
        model = copy.deepcopy(self.model.module)
        return Simulation(experiment, metrics, row, state, model, self.data, partition, out)

    def _start(self, out: Path | None, *, resume: bool) -> tuple[FederationState, list[Record]]:
        model = self.model
        server = initial_state(self.experiment.server, model.num_params)
        state = FederationState(0, model.weights.cpu().clone(), model.read_buffers().cpu(), server)
        saved = load_checkpoint(out / "checkpoint", self._identity, state) if out is not None and resume else None
        metrics = [] if saved is None or out is None else read_metrics(out / "metrics.jsonl", saved.rounds_done)
        if out is not None and saved is None:
            save_fixed(out / "checkpoint", model)
        elif out is not None and (self.experiment.own.model or has_fixed(out / "checkpoint")):
            load_fixed(out / "checkpoint", model)
        state = saved or state
        model.load(state.weights, state.buffers)
        return state, metrics

    @property
    def _identity(self) -> str:
        return artefact.config_hash(self.experiment.identity)

    def _rounds(
        self,
        state: FederationState,
        federation: Federation,
        metrics: list[Record],
        out: Path | None,
        base_samples: Tensor,
    ) -> FederationState:
        journal = Journal(out, metrics)
        watch = Stopwatch()
        saved: FederationState | None = None
        saved_at = time.perf_counter()
        try:
            while state.rounds_done < self.experiment.rounds:
                with rngs.global_state(self.experiment.seed, "round", state.rounds_done, device=self.experiment.device):
                    after, record, happened = run_round(state, federation, watch)
                    after = self._with_statistics(after, base_samples, watch)
                    record |= self._evaluate(after, watch)
                record["seconds"] = {k: round(v, 6) for k, v in watch.seconds.items()}
                with deferred():
                    journal.add(record)
                    if self.on_round:
                        self.on_round(record, happened)
                    state = after  # only now: a checkpoint never runs ahead of the journal and of who looks on
                    watch = Stopwatch()
                    if out is not None and time.perf_counter() - saved_at >= self.experiment.checkpoint_seconds:
                        with watch.stage("checkpoint"):  # counted in the next round's record
                            save_checkpoint(out / "checkpoint", state, saved, self._identity)
                        saved, saved_at = state, time.perf_counter()
        finally:  # the end, Ctrl-C or an error: keep what was done
            with deferred():
                if out is not None and state is not saved:
                    save_checkpoint(out / "checkpoint", state, saved, self._identity)
                journal.close()
        return state

    def _with_statistics(self, state: FederationState, samples: Tensor, watch: Stopwatch) -> FederationState:
        """Recompute the buffers from the base station's data, where that is the policy."""
        if self.experiment.buffers != "recomputed" or not state.buffers.numel():
            return state
        with watch.stage("server"), one_thread():
            self.model.load(state.weights, state.buffers)
            recompute_statistics(self.model.module, self.data, self.data.train_images[samples])
            return replace(state, buffers=self.model.read_buffers().cpu())

    def _evaluate(self, state: FederationState, watch: Stopwatch) -> Record:
        due = state.rounds_done % self.experiment.evaluate_every == 0 or state.rounds_done == self.experiment.rounds
        if not due:
            return {}
        with watch.stage("evaluate"):
            self.model.load(state.weights, state.buffers)
            accuracy, loss = evaluate(self.model.module, self.data)
        return {"test_accuracy": accuracy, "test_loss": loss}

    def _summary(self, metrics: list[Record], told: tuple[str, ...], seconds: float) -> results.Row:
        experiment, num_params = self.experiment, self.model.num_params
        snr_db = experiment.applied_snr_db if self.link.uplink.uses_radio else None
        side_information = list(dict.fromkeys((*self.link.uplink.side_information, *told)))
        has_buffers = any(b.is_floating_point() for b in self.model.module.buffers())
        if has_buffers and experiment.buffers in BUFFERS_BESIDE:
            side_information.append(BUFFERS_BESIDE[experiment.buffers])
        if experiment.server.base == "first-device":
            side_information.append(FIRST_DEVICE_BESIDE)
        return {
            "uplink": experiment.uplink.name,
            "model": experiment.model.name,
            "snr_db": snr_db,
            "snr_reference": None if snr_db is None else experiment.channel.snr_reference,
            "aggregator": experiment.aggregate.rule,
            "dataset": self.data.variant,
            "rounds": len(metrics),
            **accuracy_summary([r["test_accuracy"] for r in metrics if "test_accuracy" in r]),
            **means(metrics),
            "num_parameters": num_params,
            "buffers": experiment.buffers if has_buffers else "none",
            **air_summary(metrics, num_params),
            "side_information": side_information,
            "seconds": round(seconds, 3),
        }
