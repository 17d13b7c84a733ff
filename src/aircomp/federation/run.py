"""One federated run, whatever its task: rounds, tests, checkpoints, journal, result. `federate` and `simulate` end here.

Experiment (settings) ─┐
Parts (objects)        ┴─► resume ─► [ run_round ─► test ─► journal, on_round ─► checkpoint ]… ─► Simulation
"""

import copy
import importlib.util
import logging
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from aircomp.common import rng as rngs
from aircomp.common.checks import part_name
from aircomp.common.interrupt import deferred
from aircomp.common.threads import one_thread
from aircomp.data.images import ImageData
from aircomp.data.partition import Partition
from aircomp.data.samples import ItemSamples, Samples
from aircomp.device.local import Objective
from aircomp.device.update import FlatModel
from aircomp.engines.trainer import BASE_STATION, Trainer, make_executor
from aircomp.errors import ConfigError
from aircomp.federation.evaluate import recompute_statistics, score
from aircomp.federation.experiment import Buffers, Experiment
from aircomp.federation.round import Federation, FederationState, Record, Round, Stopwatch, Transform, run_round
from aircomp.link import FIRST_DEVICE, Link
from aircomp.measure.scores import Metric, is_higher_better
from aircomp.schemes.meter import check_power
from aircomp.server.step import initial_state

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from aircomp.federation.directory import RunDirectory


log = logging.getLogger(__name__)

OnRound = Callable[[Record, Round | None], None]

BUFFERS_BESIDE: dict[Buffers, str] = {
    "average": "BatchNorm buffers, averaged exactly",
    "estimated": "BatchNorm buffers, summed exactly and divided by the estimated number of devices",
}
"""What reaches the base station beside the radio, by the treatment of buffers."""


@dataclass(frozen=True)
class Parts:
    """The objects of a run, beside its settings."""

    model: FlatModel
    holders: Mapping[int, Samples]
    """What each device holds, and the base station if it has data."""
    link: Link
    objective: Objective
    metrics: Mapping[str, Metric]
    test: Samples | None
    dataset: str
    """What results call the data."""
    shares: Sequence[float] | None = None
    """What each device multiplies its update with; None: one."""
    before: Transform | None = None
    after: Transform | None = None


@dataclass(frozen=True)
class Simulation:
    """What a run left: a record per round, the summary row, and the trained model."""

    experiment: Experiment
    metrics: list[Record]
    row: Record
    state: FederationState = field(repr=False)
    model: nn.Module = field(repr=False)
    out: Path | None = None
    data: ImageData | None = field(default=None, repr=False)
    """The preset's dataset."""
    partition: Partition | None = field(default=None, repr=False)
    """Who holds which of its training samples."""

    def __repr__(self) -> str:
        """Say in a line what was run and how it ended; the fields hold the rest."""
        row = self.row
        noise = "" if row["snr_db"] is None else f" at {row['snr_db']:g} dB"
        scores = [name for name in row if name.startswith("test_") and not name.endswith("_last5")]
        name = scores[0] if scores else None
        ended = "not evaluated" if name is None or row[name] is None else f"{name.replace('_', ' ')} {row[name]:.3f}"
        rounds = "1 round" if row["rounds"] == 1 else f"{row['rounds']} rounds"
        return f"<Simulation: {row['dataset']} over {row['uplink']}{noise}, {rounds}, {ended}>"

    @property
    def test_accuracy(self) -> float:
        """Test accuracy of the last evaluation; `row["test_accuracy_last5"]` is the mean of the last five."""
        return self.row["test_accuracy"]

    def frame(self) -> Any:  # Any: a DataFrame where pandas is installed
        """Return a flat row for each round: a pandas DataFrame, or a list of dictionaries where there is no pandas."""
        rows = flat_rows(self.metrics)
        if importlib.util.find_spec("pandas") is None:
            return rows
        import pandas  # pyright: ignore[reportMissingImports]  (no extra: users have it, or rows do)

        return pandas.DataFrame(rows)

    def plot(self, field: str | None = None, path: str | Path | None = None) -> "Figure":
        """Draw a field of the records against rounds, by default the first metric; see `aircomp.plot`."""
        from aircomp.measure.plot import plot

        return plot([self], field, path)


def flat_rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return records without dictionaries in them, all with the same names: `seconds_train`, … for `seconds`."""
    rows = []
    for record in records:
        inner = {f"{k}_{name}": v for k, each in record.items() if isinstance(each, dict) for name, v in each.items()}
        rows.append({k: v for k, v in record.items() if not isinstance(v, dict)} | inner)
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name) for name in names} for row in rows]


def execute(
    experiment: Experiment,
    parts: Parts,
    *,
    out: str | Path | None,
    resume: bool,
    overwrite: bool,
    other_arithmetic: bool,
    on_round: OnRound | None,
    command: str,
) -> Simulation:
    """Run it, in a directory of its own if one is given."""
    run = _Run(experiment, parts, on_round)
    if out is None:
        if resume or overwrite:
            raise ConfigError(
                f"{'resume' if resume else 'overwrite'} was given without out; expected the run's directory"
            )
        return run.execute(None)
    from aircomp.federation.directory import run_directory  # a run that leaves nothing needs none of it

    how = {"resume": resume, "overwrite": overwrite, "other_arithmetic": other_arithmetic}
    with run_directory(out, experiment, command=command, **how) as directory:
        return run.execute(directory)


@dataclass
class _Run:
    """One run's parts, so that `execute` reads as the loop that it is."""

    experiment: Experiment
    parts: Parts
    on_round: OnRound | None

    def execute(self, directory: "RunDirectory | None") -> Simulation:
        experiment, parts = self.experiment, self.parts
        state, metrics = self._start(directory)
        trainer = Trainer(
            parts.model.module,
            parts.holders,
            experiment.local,
            parts.objective,
            seed=experiment.seed,
            device=experiment.device,
            idle=parts.model.idle,
        )
        engine = "serial" if experiment.engine != "serial" and self._stays_here() else experiment.engine
        executor = make_executor(trainer, engine, experiment.workers, experiment.ray_address)
        federation = Federation(experiment, parts.link, executor, parts.before, parts.after, parts.shares)
        begun = time.perf_counter()
        try:
            state = self._rounds(state, federation, metrics, directory)
        finally:
            with deferred():
                executor.close()
        parts.model.load(state.weights, state.buffers)
        row = self._summary(metrics, state.side_information, time.perf_counter() - begun)
        if directory is not None:
            directory.finish(parts.model.module, row)
        if row["snr_reference"] == "transmit":
            check_power(metrics)
        # a copy: its parameters are tensors of their own again, not views of one vector
        out = None if directory is None else directory.out
        return Simulation(experiment, metrics, row, state, copy.deepcopy(parts.model.module), out)

    def _stays_here(self) -> bool:
        """Tell whether a function of the user's own cannot travel to another process, and say so."""
        parts = self.parts
        collates = {each.collate for each in parts.holders.values() if isinstance(each, ItemSamples)}
        for function in (parts.objective.loss, parts.objective.step, *self.experiment.local.functions, *collates):
            try:
                ForkingPickler.dumps(function)
            except Exception as error:  # whatever pickling meets in the user's code
                log.warning(
                    "%s cannot travel to another process (%s), so devices train in this one; define it in a module to use "
                    "engine = %r",
                    part_name(function),
                    " ".join(str(error).split()),
                    self.experiment.engine,
                )
                return True
        return False

    def _start(self, directory: "RunDirectory | None") -> tuple[FederationState, list[Record]]:
        model = self.parts.model
        server = initial_state(self.experiment.server, model.num_params)
        state = FederationState(0, model.weights.cpu().clone(), model.read_buffers().cpu(), server)
        state, metrics = (state, []) if directory is None else directory.start(model, state)
        model.load(state.weights, state.buffers)
        return state, metrics

    def _rounds(
        self, state: FederationState, federation: Federation, metrics: list[Record], directory: "RunDirectory | None"
    ) -> FederationState:
        if directory is not None:
            directory.open(metrics)
        watch = Stopwatch()
        try:
            while state.rounds_done < self.experiment.rounds:
                with rngs.global_state(self.experiment.seed, "round", state.rounds_done, device=self.experiment.device):
                    after, record, happened = run_round(state, federation, watch)
                    after = self._with_statistics(after, watch)
                    record |= self._evaluate(after, watch)
                record["seconds"] = {k: round(v, 6) for k, v in watch.seconds.items()}
                with deferred():
                    metrics.append(record)
                    if directory is not None:
                        directory.add(record)
                    if self.on_round:
                        self.on_round(record, happened)
                    state = after  # only now: a checkpoint never runs ahead of the journal and of who looks on
                    del happened  # it holds the messages of all devices, and the next round has its own
                    watch = Stopwatch()
                    if directory is not None and directory.is_due:
                        with watch.stage("checkpoint"):  # counted in the next round's record
                            directory.save(state)
        finally:  # the end, Ctrl-C or an error: keep what was done
            with deferred():
                if directory is not None:
                    directory.save(state)
                    directory.close(flat_rows(metrics))
        return state

    def _with_statistics(self, state: FederationState, watch: Stopwatch) -> FederationState:
        """Recompute the buffers from the base station's data, where that is the policy."""
        if self.experiment.buffers != "recomputed" or not state.buffers.numel():
            return state
        model = self.parts.model
        with watch.stage("server"), one_thread():
            model.load(state.weights, state.buffers)
            recompute_statistics(model.module, self.parts.holders[BASE_STATION])
            return replace(state, buffers=model.read_buffers().cpu())

    def _evaluate(self, state: FederationState, watch: Stopwatch) -> Record:
        parts, done = self.parts, state.rounds_done
        due = done % self.experiment.evaluate_every == 0 or done == self.experiment.rounds
        if not due or parts.test is None:
            return {}
        with watch.stage("evaluate"):
            parts.model.load(state.weights, state.buffers)
            return score(parts.model.module, parts.test, parts.objective, parts.metrics, f"after round {done}")

    def _summary(self, metrics: list[Record], told: tuple[str, ...], seconds: float) -> Record:
        experiment, parts = self.experiment, self.parts
        scheme, num_params = parts.link.scheme, parts.model.num_params
        snr_db = experiment.applied_snr_db if scheme.uses_radio else None
        side_information = list(dict.fromkeys((*scheme.side_information, *told)))
        has_buffers = any(b.is_floating_point() for b in parts.model.module.buffers())
        if has_buffers and experiment.buffers in BUFFERS_BESIDE:
            side_information.append(BUFFERS_BESIDE[experiment.buffers])
        if experiment.server.base == "first-device" and getattr(scheme, "reads_base", True):
            side_information.append(FIRST_DEVICE)
        scores: Record = {}
        for name, metric in parts.metrics.items():
            values = [r[f"test_{name}"] for r in metrics if f"test_{name}" in r]
            scores |= metric_summary(name, values, is_higher_better(metric))
        first = next((f"test_{name}" for name in parts.metrics), "test_loss")
        tested = [r[first] for r in metrics if first in r]
        if not parts.metrics and tested:
            scores["test_loss"] = tested[-1]
        return {
            "uplink": experiment.scheme_name,
            "model": experiment.model_name,
            "snr_db": snr_db,
            "snr_reference": None if snr_db is None else experiment.channel.snr_reference,
            "aggregator": experiment.rule_name,
            "dataset": parts.dataset,
            "rounds": len(metrics),
            **scores,
            "stability": statistics.pstdev(tested[-10:]) if tested and all(map(math.isfinite, tested[-10:])) else None,
            **means(metrics),
            "num_parameters": num_params,
            "buffers": experiment.buffers if has_buffers else "none",
            **air_summary(metrics, num_params),
            "side_information": side_information,
            "seconds": round(seconds, 3),
        }


def weights_of(holders: Mapping[int, Samples], devices: int) -> list[float]:
    """Return every device's share of the samples over the mean share."""
    sizes = [len(holders[device]) for device in range(devices)]
    mean = sum(sizes) / devices
    return [size / mean for size in sizes]


def metric_summary(name: str, values: list[Any], higher_is_better: bool) -> Record:
    """Return the last one, the mean of the last five, and the best."""
    best = max if higher_is_better else min
    return {
        f"test_{name}": values[-1] if values else None,
        f"test_{name}_last5": statistics.fmean(values[-5:]) if values else None,
        f"best_test_{name}": best(values) if values else None,
    }


def means(metrics: list[Record]) -> Record:
    """Means over the rounds that have them: decoding accuracy, update errors, the feedback ratio, and K's error."""
    row: Record = {}
    names = {name for r in metrics for name, v in r.items() if isinstance(v, float)}
    for name in sorted(name for name in names if not name.startswith("test_") and name != "num_active_hat"):
        row[name] = statistics.fmean([r[name] for r in metrics if isinstance(r.get(name), float)])
    errors = [abs(r["num_active_hat"] - r["num_active"]) for r in metrics if "num_active_hat" in r]
    if errors:
        row["num_active_mae"] = statistics.fmean(errors)
    return row


def air_summary(metrics: list[Record], num_params: int) -> Record:
    """Return what the rounds took that had a transmission: means, but the largest device and the largest peak."""
    sent = [record for record in metrics if "channel_uses" in record]
    if not sent:
        return {"channel_uses_per_parameter": None, "energy_per_device": None}
    largest = {name: max(record[name] for record in sent) for name in ("energy_max", "peak_power")}
    uses = statistics.fmean(record["channel_uses"] for record in sent)
    return {"channel_uses_per_parameter": uses / num_params} | largest
