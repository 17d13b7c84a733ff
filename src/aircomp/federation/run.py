"""One federated run, whatever its task: rounds, tests, checkpoints, journal, result. `federate` and `simulate` end here.

Experiment (settings) ─┐
Parts (objects)        ┴─► resume ─► [ run_round ─► test ─► journal, on_round ─► checkpoint ]… ─► Simulation
"""

import copy
import csv
import importlib.util
import io
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

from aircomp.common import artefact, results
from aircomp.common import rng as rngs
from aircomp.common.checks import part_name
from aircomp.common.interrupt import deferred
from aircomp.common.outdir import as_directory
from aircomp.common.threads import one_thread
from aircomp.data.images import ImageData
from aircomp.data.partition import Partition
from aircomp.data.samples import ItemSamples, Samples
from aircomp.device.local import Objective
from aircomp.device.update import FlatModel
from aircomp.engines.local import make_executor
from aircomp.engines.trainer import BASE_STATION, Trainer
from aircomp.errors import ConfigError
from aircomp.federation.evaluate import recompute_statistics, score
from aircomp.federation.experiment import Buffers, Experiment
from aircomp.federation.journal import Journal, open_run, read_metrics
from aircomp.federation.own import load_fixed, save_fixed
from aircomp.federation.round import Federation, Record, Round, Stopwatch, Transform, run_round
from aircomp.federation.start import save_model
from aircomp.federation.state import FederationState, load_checkpoint, save_checkpoint
from aircomp.federation.summary import air_summary, means, metric_summary
from aircomp.link import FIRST_DEVICE, Link
from aircomp.measure.plot import plot
from aircomp.measure.scores import Metric, is_higher_better
from aircomp.schemes.meter import check_power
from aircomp.server.step import initial_state

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    row: results.Row
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
    run = _Run(experiment, parts, on_round, command)
    if out is None:
        if resume or overwrite:
            raise ConfigError(
                f"{'resume' if resume else 'overwrite'} was given without out; expected the run's directory"
            )
        return run.execute(None, resume=False)
    directory = as_directory(out)
    with open_run(
        directory, experiment, command=command, resume=resume, overwrite=overwrite, other_arithmetic=other_arithmetic
    ):
        return run.execute(directory, resume=resume)


@dataclass
class _Run:
    """One run's parts, so that `execute` reads as the loop that it is."""

    experiment: Experiment
    parts: Parts
    on_round: OnRound | None
    command: str
    """What the result calls it."""

    def execute(self, out: Path | None, *, resume: bool) -> Simulation:
        experiment, parts = self.experiment, self.parts
        state, metrics = self._start(out, resume=resume)
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
            state = self._rounds(state, federation, metrics, out)
        finally:
            with deferred():
                executor.close()
        parts.model.load(state.weights, state.buffers)
        row = self._summary(metrics, state.side_information, time.perf_counter() - begun)
        if out is not None:
            save_model(out, parts.model.module)
            results.write_result(
                out / "result.json", self.command, experiment.model_dump(mode="json"), experiment.seed, [row]
            )
        if row["snr_reference"] == "transmit":
            check_power(metrics)
        # a copy: its parameters are tensors of their own again, not views of one vector
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

    def _start(self, out: Path | None, *, resume: bool) -> tuple[FederationState, list[Record]]:
        model = self.parts.model
        server = initial_state(self.experiment.server, model.num_params)
        state = FederationState(0, model.weights.cpu().clone(), model.read_buffers().cpu(), server)
        saved = load_checkpoint(out / "checkpoint", self._identity, state) if out is not None and resume else None
        metrics = [] if saved is None or out is None else read_metrics(out / "metrics.jsonl", saved.rounds_done)
        if out is not None and saved is None:
            save_fixed(out / "checkpoint", model)
        elif out is not None:
            load_fixed(out / "checkpoint", model)
        state = saved or state
        model.load(state.weights, state.buffers)
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
                with rngs.global_state(self.experiment.seed, "round", state.rounds_done, device=self.experiment.device):
                    after, record, happened = run_round(state, federation, watch)
                    after = self._with_statistics(after, watch)
                    record |= self._evaluate(after, watch)
                record["seconds"] = {k: round(v, 6) for k, v in watch.seconds.items()}
                with deferred():
                    journal.add(record)
                    if self.on_round:
                        self.on_round(record, happened)
                    state = after  # only now: a checkpoint never runs ahead of the journal and of who looks on
                    del happened  # it holds the messages of all devices, and the next round has its own
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
                if out is not None:
                    artefact.write_text(out / "metrics.csv", as_csv(flat_rows(metrics)))
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

    def _summary(self, metrics: list[Record], told: tuple[str, ...], seconds: float) -> results.Row:
        experiment, parts = self.experiment, self.parts
        scheme, num_params = parts.link.scheme, parts.model.num_params
        snr_db = experiment.applied_snr_db if scheme.uses_radio else None
        side_information = list(dict.fromkeys((*scheme.side_information, *told)))
        has_buffers = any(b.is_floating_point() for b in parts.model.module.buffers())
        if has_buffers and experiment.buffers in BUFFERS_BESIDE:
            side_information.append(BUFFERS_BESIDE[experiment.buffers])
        if experiment.server.base == "first-device" and getattr(scheme, "reads_base", True):
            side_information.append(FIRST_DEVICE)
        scores: results.Row = {}
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


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows of the same names as comma-separated text with a line of names."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["round"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def weights_of(holders: Mapping[int, Samples], devices: int) -> list[float]:
    """Return every device's share of the samples over the mean share."""
    sizes = [len(holders[device]) for device in range(devices)]
    mean = sum(sizes) / devices
    return [size / mean for size in sizes]
