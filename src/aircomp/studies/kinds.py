"""What each kind of measurement is made of, and what each kind of job does; all compute with one thread.

of a result's file     jobs that it becomes
table-one, federated   simulate, treatments or disturbed; central and pretrain ◄── collect before it
scaled                 scaled ◄── central
pretrain, geometry     pretrain, geometry ◄── pretrain ◄── collect
evaluate, quantize     evaluate, quantize ◄── collect
exchange, bias         exchange, bias ◄── collect
faded                  faded
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aircomp.common.threads import one_thread
from aircomp.errors import ConfigError
from aircomp.studies import rounds, runs
from aircomp.studies.jobs import Job, Payload, run_params
from aircomp.studies.scales import Scale

Params = Mapping[str, Any]


def run_job(job: Job, work: Path, device: str = "cpu") -> Payload:
    """Do one job; those of `ON_DEVICE` compute where they are told, which is no part of what they are."""
    with one_thread():
        return ON_DEVICE[job.kind](job, work, device) if job.kind in ON_DEVICE else ON_CPU[job.kind](job, work)


ON_DEVICE: dict[str, Callable[[Job, Path, str], Payload]] = {
    "simulate": runs.simulate_job,
    "treatments": runs.treatments_job,
    "disturbed": runs.disturbed_job,
    "central": runs.central_job,
    "scaled": runs.scaled_job,
    "collect": rounds.collect_job,
    "pretrain": rounds.pretrain_job,
    "evaluate": rounds.evaluate_job,
}
"""Jobs that compute on a GPU if asked to."""
ON_CPU: dict[str, Callable[[Job, Path], Payload]] = {
    "geometry": rounds.geometry_job,
    "quantize": rounds.quantize_job,
    "exchange": rounds.exchange_job,
    "bias": rounds.bias_job,
    "faded": rounds.faded_job,
    "arena-round": rounds.arena_job,
    "arena-training": runs.own_scheme_job,
}
"""Jobs that are always computed on the CPU."""


def job_of(kind: str, scale: Scale, seed: int, params: Params) -> Job:
    """Return the job of a measurement at a scale, with a seed."""
    if kind not in BUILDERS:
        raise ConfigError(f"kind = {kind!r}; expected one of {', '.join(BUILDERS)}")
    return BUILDERS[kind](scale, seed, params)


# ── shared parts ─────────────────────────────────────────────────────────────────────────────────────────────────────


def central(scale: Scale, settings: Params, training: Params | None = None) -> Job:
    """Return the central training of a federated run's model, as the scale has it unless told otherwise."""
    model = {name: value for name, value in settings.items() if name.startswith("model.")}
    return Job("central", run_params(scale.preset, model) | {"central": dict(training or scale.central or {})})


def fragments(scale: Scale, seed: int, settings: Params | None = None) -> Job:
    """Return a collection of fragments, the raw ones included."""
    return collection(scale.collect_preset, _with(scale.collected | {"seed": seed}, settings or {}))


def _with(settings: Params, others: Params) -> dict[str, Any]:
    """Return settings with others in their place; another model takes the place of all that was said of the first."""
    kept = {k: v for k, v in settings.items() if "model.name" not in others or not k.startswith("model.")}
    return kept | dict(others)


def collection(preset: str, settings: Params) -> Job:
    """Return the rounds of a run with perfect aggregation, the raw fragments included."""
    return Job("collect", run_params(preset, settings))


def trained(scale: Scale, seed: int, params: Params) -> Job:
    """Return a layer of the paper's, trained on the rounds of the scale's architecture or of the other one."""
    other = scale.other_collected if params.get("trained_on_other") else {}
    settings = scale.pretrained | {"seed": seed} | params["training"]
    return Job("pretrain", {"preset": "paper", "settings": settings}, (fragments(scale, seed, other),))


# ── measurements ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _federated(scale: Scale, seed: int, params: Params) -> Job:
    """Return a federated run; its mean is of integers, the paper's, unless the settings have another."""
    of_scale = {} if "preset" in params else scale.federated | (scale.other_model if params.get("other_model") else {})
    settings = {"aggregate.readout": "integers"} | of_scale | {"seed": seed} | params["settings"]
    needs = (trained(scale, seed, params),) if "training" in params else ()
    start = params.get("central") or (scale.central if "preset" not in params else None)
    if start is not None:
        needs += (central(scale, settings, start),)
    job = Job("simulate", run_params(params.get("preset", scale.preset), settings), needs)
    return Job("disturbed", job.params | params["disturb"], needs) if "disturb" in params else job


def _table_one(scale: Scale, seed: int, params: Params) -> Job:
    """Return a run of Table I, where asked for tested on its way under two treatments of BatchNorm's statistics."""
    job = _federated(scale, seed, params)
    step = params.get("tested_every")
    tested = range(step, params["settings"]["rounds"] + 1, step) if step else scale.tested
    return Job("treatments", job.params | {"tested": list(tested)}, job.needs) if tested else job


def _scaled(scale: Scale, seed: int, params: Params) -> Job:
    return Job("scaled", {"scales": params["scales"]}, (central(scale, {}),))


def _pretrain(scale: Scale, seed: int, params: Params) -> Job:
    return trained(scale, seed, {"training": {}} | dict(params))


def _geometry(scale: Scale, seed: int, params: Params) -> Job:
    return Job("geometry", dict(params)) if "layer" in params else Job("geometry", {}, (trained(scale, seed, params),))


def _evaluate(scale: Scale, seed: int, params: Params) -> Job:
    """Return the decoding of rounds that no layer was trained on, without side information."""
    plan = {"decoders": ["amp-da", "amp-da-net", *rounds.OURS], "snr_reference": "slot", "side_information": "none"}
    plan |= {"num_slots": scale.slots, "seed": seed}
    return Job("evaluate", plan | dict(params), (fragments(scale, 100 + seed, scale.measured),))


def _quantize(scale: Scale, seed: int, params: Params) -> Job:
    return Job("quantize", {"seed": seed} | dict(params), (fragments(scale, seed),))


def _exchange(scale: Scale, seed: int, params: Params) -> Job:
    other = scale.other_collected if params["model"] == "VGG" else {}
    collected = fragments(scale, seed, _with(scale.measured, other) | scale.exchanged | {"feedback.kind": "off"})
    told = {name: value for name, value in params.items() if name != "model"}
    return Job("exchange", told | {"rounds": scale.exchanged_rounds, "seed": seed}, (collected,))


def _bias(scale: Scale, seed: int, params: Params) -> Job:
    return Job("bias", {"seed": seed} | dict(params), (fragments(scale, seed, scale.measured),))


def _faded(scale: Scale, seed: int, params: Params) -> Job:
    return Job("faded", {"seed": seed} | dict(params))


BUILDERS: dict[str, Callable[[Scale, int, Params], Job]] = {
    "federated": _federated,
    "table-one": _table_one,
    "scaled": _scaled,
    "pretrain": _pretrain,
    "geometry": _geometry,
    "evaluate": _evaluate,
    "quantize": _quantize,
    "exchange": _exchange,
    "bias": _bias,
    "faded": _faded,
}
