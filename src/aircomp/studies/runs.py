"""Jobs that train: federated runs as they are, disturbed on purpose, or tested under two treatments; central training."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.common import rng as rngs
from aircomp.common.results import Row
from aircomp.data.images import load
from aircomp.device.local import num_steps
from aircomp.device.update import FlatModel
from aircomp.federation.central import train_centrally
from aircomp.federation.configure import configure
from aircomp.federation.evaluate import evaluate
from aircomp.federation.experiment import Experiment
from aircomp.federation.round import Record
from aircomp.federation.settings import CentralSettings
from aircomp.federation.simulate import Simulation, build_model, partition_of, simulate
from aircomp.federation.start import load_start
from aircomp.studies.entrants import check_told, load_own, named
from aircomp.studies.jobs import Job, Payload
from aircomp.studies.treatments import Treatments, last_tests, scale_after, settled_scale

READS = {"pretrain": "uplink.layer", "central": "start"}
"""The setting that names what a federated run takes from a job of this kind."""


def experiment_of(job: Job, work: Path, device: str) -> Experiment:
    """Return the settings of a job's run."""
    taken = {READS[need.kind]: str(need.directory(work)) for need in job.needs}
    return configure(job.params["preset"], {"engine": "serial", "device": device} | job.params["settings"] | taken)


def simulate_job(job: Job, work: Path, device: str) -> Payload:
    """One federated run. Jobs needed are the layer it uses and the model it begins from."""
    return _payload(simulate(experiment_of(job, work, device)))


def own_scheme_job(job: Job, work: Path) -> Payload:
    """One federated run with a scheme of the user's own."""
    settings, own = {"engine": "serial"} | job.params["settings"], job.params["own"]
    check_told(job.params)
    with named(own):
        return _payload(simulate(job.params["preset"], uplink=load_own(own), **settings))


def _payload(run: Simulation) -> Payload:
    curve = [[r["round"], r["test_accuracy"]] for r in run.metrics if r.get("test_accuracy") is not None]
    return {"rows": [run.row], "curve": curve}


# ── disturbed ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Disturbance:
    r"""Shortens every round's aggregate, then adds white noise of a given energy; `simulate` takes it as `after`.

    A decoded update is $\hat u = g\,u + e$: the true one shortened (or not) along itself, and the rest. To first order the
    loss falls by what points along the truth, $g$; the rest costs only through the curvature, $\tfrac12 e^T H e$.
    """

    seed: int
    length: float = 1.0
    """What is left of the update's length."""
    noise: float = 0.0
    """Energy of the noise over that of the update: the NMSE that it adds."""
    rounds: int = 0

    def __call__(self, update: Float[Tensor, " params"]) -> Float[Tensor, " params"]:
        """Return the disturbed update of the next round."""
        rng = rngs.generator(self.seed, "disturbance", self.rounds)
        self.rounds += 1
        drawn = torch.randn(update.shape, generator=rng).to(update)
        return self.length * update + drawn * (self.noise**0.5 * update.norm() / drawn.norm())


def disturbed_job(job: Job, work: Path, device: str) -> Payload:
    """One federated run whose aggregate is shortened or noisy on purpose; `params` beside a run's: length, noise."""
    experiment = experiment_of(job, work, device)
    chosen = {name: job.params[name] for name in ("length", "noise") if name in job.params}
    return _payload(simulate(experiment, after=Disturbance(experiment.seed, **chosen)))


# ── two treatments of BatchNorm's statistics ─────────────────────────────────────────────────────────────────────────


def treatments_job(job: Job, work: Path, device: str) -> Payload:
    """One federated run, tested under two treatments of buffers; `params` beside a run's: the rounds to test after.

    The run has a directory of its own, so that a job that was killed goes on where it stopped.
    """
    experiment = experiment_of(job, work, device).changed(checkpoint_seconds=0)
    data = load(experiment.data.name)
    module = build_model(experiment, data)
    if experiment.start:
        load_start(module, Path(experiment.start))
    steps = num_steps(len(partition_of(experiment, data).devices[0]), experiment.local)
    out = job.directory(work)
    treatments = Treatments(module.to(device), data, steps, job.params["tested"], out)
    run = simulate(experiment, dataset=data, out=out, resume=True, on_round=treatments.on_round)
    if treatments.rounds_done < len(run.metrics):  # all rounds were done before
        treatments.load(len(run.metrics))
    return _payload(run) | treated(treatments.rows, run.metrics, steps, run.row)


def treated(tests: Sequence[Row], metrics: Sequence[Record], steps: int, row: Row) -> Payload:
    """Return what a run tested under two treatments found: a row for each, with the scale that K's error predicts.

    Args:
        tests: Every test.
        metrics: The record of every round.
        steps: Local steps of a round.
        row: The summary of the run.
    """
    ratios = [r["num_active"] / max(1, round(r["num_active_hat"])) for r in metrics if "num_active_hat" in r]
    scales: Row = {}
    if ratios:
        ratio = statistics.fmean(ratios)
        predicted = {"settled_scale": settled_scale(ratio, steps), "predicted_scale": scale_after(ratios, steps)}
        scales = {"num_active_ratio": ratio} | predicted
    rows = []
    for test in last_tests(tests):
        estimated = test["buffers"] == "estimated"
        rows.append(row | test | (scales if estimated else dict.fromkeys(("num_active_ratio", "buffer_scale"))))
    return {"rows": rows, "rounds": list(tests)}


# ── central training ─────────────────────────────────────────────────────────────────────────────────────────────────


def central_job(job: Job, work: Path, device: str) -> Payload:
    """Train a preset's model centrally; `params` beside a run's: those of the training."""
    experiment = configure(job.params["preset"], job.params["settings"])
    data = load(experiment.data.name)
    out = job.directory(work)
    out.mkdir(parents=True, exist_ok=True)
    module = build_model(experiment, data).to(device)
    settings = CentralSettings(**job.params["central"])
    return {"rows": [train_centrally(module, data, settings, seed=experiment.seed, out=out)]}


def scaled_job(job: Job, work: Path, device: str) -> Payload:
    """Test a centrally trained model with its running statistics scaled; `params`: the factors."""
    (start,) = job.needs
    experiment = configure(start.params["preset"], start.params["settings"])
    data = load(experiment.data.name)
    module = build_model(experiment, data)
    load_start(module, start.directory(work))
    model = FlatModel(module.to(device))
    weights, buffers = model.weights.clone(), model.read_buffers()
    rows: list[dict[str, Any]] = []
    for scale in job.params["scales"]:
        model.load(weights, scale * buffers)
        rows.append({"scale": scale, "test_accuracy": evaluate(module, data)[0]})
    return {"rows": rows}
