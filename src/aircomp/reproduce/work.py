"""What each kind of job does. All compute with one thread, so that their bits do not depend on who runs beside them."""

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from aircomp.common import rng as rngs
from aircomp.common.results import Row
from aircomp.common.threads import one_thread
from aircomp.data.images import load
from aircomp.device.local import num_steps
from aircomp.device.update import FlatModel
from aircomp.fl.central import CentralSettings, train_centrally
from aircomp.fl.configure import configure
from aircomp.fl.evaluate import evaluate as evaluate_model
from aircomp.fl.experiment import Experiment
from aircomp.fl.round import Record
from aircomp.fl.simulate import Simulation, build_model, partition_of, simulate
from aircomp.fl.start import load_start
from aircomp.layer import CommunicationLayer
from aircomp.measure.metrics import quantization_nmse
from aircomp.quantize.codebook import QuantizeSettings, build
from aircomp.quantize.nearest import nearest
from aircomp.reproduce.codes import exchanged_job
from aircomp.reproduce.jobs import Job, Payload
from aircomp.reproduce.receivers import faded_job
from aircomp.reproduce.treatments import Treatments
from aircomp.reproduce.worth import Disturbance, bias_of
from aircomp.train.collect import collect
from aircomp.train.evaluate import Plan, evaluate
from aircomp.train.fit import pretrain
from aircomp.train.fragments import load_round, round_files
from aircomp.train.paper import PRESETS as PAPER_PRESETS
from aircomp.train.paper import PaperTrainingSettings, pretrain_paper
from aircomp.train.recipe import PRESETS, PretrainSettings


def run_job(job: Job, work: Path, device: str = "cpu") -> Payload:
    """Do one job; those of `ON_DEVICE` compute where they are told, which is no part of what they are."""
    with one_thread():
        if job.kind in ON_DEVICE:
            return ON_DEVICE[job.kind](job, work, device)
        return ON_CPU[job.kind](job, work)


def simulate_job(job: Job, work: Path, device: str) -> Payload:
    """One federated run; `params`: preset and settings. Jobs needed are the layer it uses and the model it begins from."""
    experiment = _experiment(job, work, device)
    run = simulate(experiment)
    return {"rows": [run.row], "curve": curve_of(run)}


def curve_of(run: Simulation) -> list[list[float]]:
    """Return the test accuracy of every round that has one."""
    return [[r["round"], r["test_accuracy"]] for r in run.metrics if r.get("test_accuracy") is not None]


def treatments_job(job: Job, work: Path, device: str) -> Payload:
    """One federated run, tested under two treatments of buffers; `params`: preset, settings, rounds to test after.

    The run has a directory of its own, so that a job that was killed goes on where it stopped.
    """
    experiment = _experiment(job, work, device).changed(checkpoint_seconds=0)
    data = load(experiment.data.name)
    module = build_model(experiment, data)
    if experiment.start:
        load_start(module, Path(experiment.start))
    steps = num_steps(partition_of(experiment, data).devices.shape[1], experiment.local)
    out = job.directory(work)
    treatments = Treatments(module.to(device), data, steps, job.params["tested"], out)
    run = simulate(experiment, dataset=data, out=out, resume=True, on_round=treatments.on_round)
    if treatments.rounds_done < len(run.metrics):  # all rounds were done before
        treatments.load(len(run.metrics))
    rows = [run.row | row for row in treatments.summary()]
    return {
        "rows": rows,
        "rounds": treatments.rows,
        "num_active": _counted(run.metrics),
        "local_steps": steps,
        "curve": curve_of(run),
    }


def disturbed_job(job: Job, work: Path, device: str) -> Payload:
    """One federated run whose aggregate is shortened and noisy on purpose; `params`: as of simulate, length and noise."""
    experiment = _experiment(job, work, device)
    disturbance = Disturbance(job.params["length"], job.params["noise"], experiment.seed)
    return {"rows": [simulate(experiment, after=disturbance).row]}


def _counted(metrics: Sequence[Record]) -> list[list[float]]:
    """Return the true and the estimated number of devices of every round."""
    return [[r["num_active"], r["num_active_hat"]] for r in metrics if "num_active_hat" in r]


def central_job(job: Job, work: Path, device: str) -> Payload:
    """Train a preset's model centrally; `params`: preset, settings of the run, and those of the training."""
    experiment = configure(job.params["preset"], job.params["settings"])
    data = load(experiment.data.name)
    settings = CentralSettings(**job.params["central"])
    out = job.directory(work)
    out.mkdir(parents=True, exist_ok=True)
    module = build_model(experiment, data).to(device)
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
    rows = []
    for scale in job.params["scales"]:
        model.load(weights, scale * buffers)
        rows.append({"scale": scale, "test_accuracy": evaluate_model(module, data)[0]})
    return {"rows": rows}


READS = {"pretrain": "encode.layer", "central": "start"}
"""The setting that names what a federated run takes from a job of this kind."""


def _experiment(job: Job, work: Path, device: str) -> Experiment:
    taken = {READS[need.kind]: str(need.directory(work)) for need in job.needs}
    return configure(job.params["preset"], {"engine": "serial", "device": device} | job.params["settings"] | taken)


def collect_job(job: Job, work: Path, device: str) -> Payload:
    """Save the fragments of a run; `params`: preset, settings, raw."""
    out = job.directory(work)
    settings = {"engine": "serial", "device": device} | job.params["settings"]
    collect(job.params["preset"], out, raw=job.params["raw"], overwrite=True, **settings)
    return {"rows": [{"rounds": len(round_files(out))}]}


def pretrain_job(job: Job, work: Path, device: str) -> Payload:
    """Train a layer on the fragments that it needs; `params`: preset and settings of pretraining."""
    settings = training_settings(job)
    fragments, out = [need.directory(work) for need in job.needs], job.directory(work)
    if isinstance(settings, PaperTrainingSettings):
        layer = pretrain_paper(fragments, settings, out, overwrite=True, device=device)
    else:
        layer = pretrain(fragments, settings, out, overwrite=True, device=device)
    return {"rows": layer.training["test"], "training": {k: v for k, v in layer.training.items() if k != "rounds"}}


def training_settings(job: Job) -> PaperTrainingSettings | PretrainSettings:
    """Return the recipe of a training: the paper's or its authors', or one of our own network."""
    preset = job.params["preset"]
    known = PAPER_PRESETS if preset in PAPER_PRESETS.names() else PRESETS
    return known.load(preset).changed(**job.params["settings"])


def evaluate_job(job: Job, work: Path, device: str) -> Payload:
    """Decode saved rounds; `params` are those of `train.evaluate.Plan`. A second job needed is the layer."""
    fragments, *layers = job.needs
    layer = layers[0].directory(work) if layers else None
    return {"rows": evaluate(fragments.directory(work), Plan(layer=layer, device=device, **job.params))}


def geometry_job(job: Job, work: Path) -> Payload:
    """Measure the codebook of a trained layer; without one that it needs, of the package's that `params` name."""
    layer = CommunicationLayer.load(job.needs[0].directory(work) if job.needs else job.params.get("layer"))
    correlation = (layer.codebook @ layer.codebook.T).abs().double()
    off = correlation - torch.diag(correlation.diagonal())
    half = len(off) // 2
    values = torch.linalg.svdvals(layer.codebook.double())
    row: Row = {
        "largest_correlation": off.max().item(),
        "correlation_of_popular_half": _rms(off[:half, :half]),
        "correlation_of_rare_half": _rms(off[half:, half:]),
        "condition_number": (values[0] / values[-1]).item(),
    }
    return {"rows": [row], "correlation": _rounded(correlation), "singular_values": _rounded(values)}


def quantize_job(job: Job, work: Path) -> Payload:
    """Build codebooks from the base station's fragments in several ways and quantise everybody's (Appendix A)."""
    found: dict[str, list[tuple[float, float]]] = {}
    for number, path in enumerate(round_files(job.needs[0].directory(work))):
        saved = load_round(path)
        assert saved.fragments is not None and saved.bs_fragments is not None  # noqa: PT018 (the collection saved both)
        for name, options in job.params["ways"].items():
            settings = QuantizeSettings(**options)
            quantizer = build(saved.bs_fragments, settings, rng=rngs.generator(job.params["seed"], "codebook", number))
            pair = [saved.bs_fragments[None], saved.fragments]
            sent = [quantizer.codebook[nearest(fragments, quantizer.codebook)] for fragments in pair]
            own, theirs = (quantization_nmse(f.flatten(1), q.flatten(1)) for f, q in zip(pair, sent, strict=True))
            found.setdefault(name, []).append((own, theirs))
    rows = [
        {
            "way": name,
            "base_station_nmse": statistics.fmean(e[0] for e in errors),
            "device_nmse": statistics.fmean(e[1] for e in errors),
        }
        for name, errors in found.items()
    ]
    return {"rows": rows}


def _rms(matrix: torch.Tensor) -> float:
    n = len(matrix)
    return (matrix.square().sum() / (n * (n - 1))).sqrt().item()


def _rounded(values: torch.Tensor) -> list[Any]:
    return (values * 1e4).round().div(1e4).tolist()


ON_DEVICE: dict[str, Callable[[Job, Path, str], Payload]] = {
    "simulate": simulate_job,
    "treatments": treatments_job,
    "central": central_job,
    "scaled": scaled_job,
    "disturbed": disturbed_job,
    "collect": collect_job,
    "pretrain": pretrain_job,
    "evaluate": evaluate_job,
}
"""Jobs that compute on a GPU if asked to."""
ON_CPU: dict[str, Callable[[Job, Path], Payload]] = {
    "bias": bias_of,
    "exchanged": exchanged_job,
    "faded": faded_job,
    "geometry": geometry_job,
    "quantize": quantize_job,
}
"""Jobs of seconds, which are always computed on the CPU."""
KINDS = (*ON_DEVICE, *ON_CPU)
