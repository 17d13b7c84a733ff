"""Kept jobs are used again only while the code gives the same results: a small job of every kind against stored numbers.

`AIRCOMP_REGEN=1 pytest tests/reproduce/test_versions.py` stores them anew, for kinds whose version was raised only.
"""

import hashlib
import json
import math
import os
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from aircomp.common.artefact import write_text
from aircomp.fl.experiment import with_present_names
from aircomp.reproduce.jobs import VERSIONS, Job, run_jobs
from aircomp.reproduce.rounds import WAYS
from aircomp.reproduce.work import KINDS, run_job
from aircomp.train.fragments import load_round, round_files

STORED = Path(__file__).with_name("versions.json")
FEW = {"devices.total": 6, "participation.low": 2, "participation.high": 4, "local.epochs": 1}
TWO_ROUNDS = FEW | {"rounds": 2}
NOISY = {"channel.snr_db": 5.0, "channel.snr_reference": "slot"}
COLLECTED = Job("collect", {"preset": "digits", "settings": FEW | {"rounds": 3}, "raw": True})
SHORT = {"epochs": 1, "samples_per_epoch": 128, "data.batch_slots": 32}
SHORT |= {"data.validation_samples": 64, "data.test_samples": 64}
TRAINED = Job("pretrain", {"preset": "short", "settings": SHORT}, (COLLECTED,))
FEW_SLOTS = {"data.train_samples": 64, "data.validation_samples": 64, "data.test_samples": 64, "data.min_rounds": 3}
PUBLISHED = Job(
    "pretrain",
    {"preset": "paper", "settings": FEW_SLOTS | {"epochs": 1, "net.num_layers": 2, "net.filters": 4}},
    (COLLECTED,),
)
FEDERATED = (
    {"uplink": "perfect"},
    NOISY | {"uplink": "gamp", "aggregate.rule": "trimmed-mean", "corruption.kind": "noise", "feedback.kind": "off"},
)
TRAINED_LAYER = NOISY | {"uplink": "gamp-net", "aggregate.readout": "unbiased", "air.repeat": "auto"}
CLASSICAL = NOISY | {"uplink": "amp-da", "aggregate.readout": "integers"}
BUFFERED = TWO_ROUNDS | NOISY | {"uplink": "gamp", "model.name": "vgg", "model.width": 4, "local.steps": 3}
DECODED = {
    "decoders": ["amp-da", "gamp-net", "gamp", "amp-da-net"],
    "snr_db": [5.0],
    "snr_reference": "slot",
    "num_slots": 40,
}
START = Job(
    "central",
    {"preset": "digits", "settings": {"model.name": "vgg", "model.width": 4}, "central": {"epochs": 3}},
)
CHANGED = {"analog", "matched", "rate", "amp-da", "amp-da-net", "gamp-net"}
"""Uplinks, energies and sizes that have a version."""
EXCHANGED = {"readouts": ["auto"], "snr_db": 0.0, "rounds": 1, "seed": 0}
JOBS = {
    "simulate": [Job("simulate", {"preset": "digits", "settings": TWO_ROUNDS | settings}) for settings in FEDERATED],
    "treatments": [Job("treatments", {"preset": "digits", "settings": BUFFERED, "tested": [2]})],
    "central": [START],
    "scaled": [Job("scaled", {"scales": [1.0, 1.5]}, (START,))],
    "disturbed": [
        Job(
            "disturbed",
            {"preset": "digits", "settings": TWO_ROUNDS | {"uplink": "perfect"}, "length": 0.5, "noise": 1.0},
        )
    ],
    "bias": [Job("bias", {"decoder": "gamp", "readout": "soft", "snr_db": 0.0, "rounds": 1, "seed": 0}, (COLLECTED,))],
    "exchanged": [Job("exchanged", {"uplink": {"name": "gamp"}} | EXCHANGED, (COLLECTED,))],
    "matched": [Job("exchanged", {"uplink": {"name": "gamp", "energy": "matched"}} | EXCHANGED, (COLLECTED,))],
    "rate": [
        Job(
            "exchanged",
            {"uplink": {"name": "gamp", "energy": "matched", "rate": "auto"}} | EXCHANGED | {"rounds": 2},
            (COLLECTED,),
        )
    ],
    "analog": [Job("exchanged", {"uplink": {"name": "analog"}} | EXCHANGED, (COLLECTED,))],
    "amp-da": [Job("simulate", {"preset": "digits", "settings": TWO_ROUNDS | CLASSICAL})],
    "amp-da-net": [
        Job("simulate", {"preset": "digits", "settings": TWO_ROUNDS | NOISY | {"uplink": "amp-da-net"}}),
        Job("simulate", {"preset": "digits", "settings": TWO_ROUNDS | NOISY | {"uplink": "amp-da-net"}}, (PUBLISHED,)),
    ],
    "gamp-net": [Job("simulate", {"preset": "digits", "settings": TWO_ROUNDS | TRAINED_LAYER})],
    "faded": [
        Job("faded", {"uplink": uplink, "power": power, "antennas": 4, "snr_db": 5.0, "seed": 0, "slots": 40})
        for uplink, power in (
            ("blind", "none"),
            ("md-aircomp", "inversion"),
            ("receiver-csi", "none"),
            ("blind-net", "none"),
        )
    ],
    "collect": [COLLECTED],
    "pretrain": [TRAINED, PUBLISHED],
    "evaluate": [Job("evaluate", DECODED, (COLLECTED,))],
    "geometry": [Job("geometry", {}, (TRAINED,)), Job("geometry", {})],
    "quantize": [Job("quantize", {"ways": WAYS, "seed": 0}, (COLLECTED,))],
}
PRESETS = {
    path.name.removesuffix(".toml"): path
    for folder in ("presets", "train/presets", "train/paper_presets")
    for path in (resources.files("aircomp") / folder).iterdir()
}
REGENERATE = "AIRCOMP_REGEN=1 pytest tests/reproduce/test_versions.py"
TIMES = ("seconds", "slots_per_second")


def numbers(value, name=""):
    """Return every number and text of a result by its path, but times."""
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    else:
        return {name: value}
    return {k: v for key, each in inner if key not in TIMES for k, v in numbers(each, f"{name}/{key}").items()}


def result_of(name, work):
    """Return what jobs of a kind give, rows and files that other jobs read, or what a preset says."""
    if name in PRESETS:
        return {"settings": digest(PRESETS[name].read_text())}
    found = {str(number): job.done(work)["rows"] for number, job in enumerate(JOBS[name])}
    if name == "collect":
        found["files"] = [fragments_of(path) for path in round_files(COLLECTED.directory(work))]
    return numbers(found)


def fragments_of(path):
    saved = load_round(path)
    parts = (saved.indices, saved.popularity, saved.quant_codebook, saved.fragments, saved.bs_fragments)
    return [part.double().norm().item() for part in parts if part is not None]


def digest(text):
    settings = with_present_names(tomllib.loads(text))  # the names of settings may change, their values not
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def changes(stored, present):
    """Name what differs by more than processors do; what the present result has in addition changes nothing."""
    return [name for name, value in stored.items() if not same(name, value, present.get(name))]


def same(name, stored, present):
    if not isinstance(stored, float) or not isinstance(present, float):
        return stored == present
    tolerance = 0.012 if "test_accuracy" in name or "stability" in name else 1e-3  # an image of 360 is .003
    return math.isclose(stored, present, rel_tol=tolerance, abs_tol=tolerance)


@pytest.mark.seconds
@pytest.mark.usefixtures("torch_alone")
def test_kinds_and_presets_whose_results_changed_have_new_versions(tmp_path):
    run_jobs([job for jobs in JOBS.values() for job in jobs], tmp_path, run_job)
    everything = json.loads(STORED.read_text())
    faults = []
    for name, version in VERSIONS.items():
        stored, present = everything.get(name, {"version": 0, "result": {}}), result_of(name, tmp_path)
        changed = changes(stored["result"], present) if stored["version"] == version else []
        if changed:
            faults.append(
                f"the results of {name} have changed ({', '.join(changed[:5])}), so kept jobs are out of date; if that was "
                f"meant, raise VERSIONS[{name!r}] in src/aircomp/reproduce/jobs.py, then {REGENERATE}"
            )
        elif os.environ.get("AIRCOMP_REGEN"):
            everything[name] = {"version": version, "result": present}
        elif stored["version"] != version:
            faults.append(
                f"VERSIONS[{name!r}] is {version}, the stored results are of {stored['version']}; {REGENERATE}"
            )
    if os.environ.get("AIRCOMP_REGEN"):
        write_text(STORED, json.dumps(everything, indent=1) + "\n")
    assert not faults, "\n".join(faults)


def test_every_kind_and_preset_has_a_version_and_every_kind_a_small_job():
    assert {*KINDS, *CHANGED} == JOBS.keys()
    assert VERSIONS.keys() == {*KINDS, *PRESETS, *CHANGED}
    assert not {*KINDS} & PRESETS.keys()


def test_a_raised_version_renames_its_jobs_and_all_that_need_them(monkeypatch):
    everything = [job for jobs in JOBS.values() for job in jobs]
    before = [job.key for job in everything]

    def renamed(name):
        with monkeypatch.context() as context:
            context.setitem(VERSIONS, name, VERSIONS[name] + 1)
            return {job.kind for job, key in zip(everything, before, strict=True) if job.key != key}

    trained = {"pretrain", "evaluate", "geometry", "quantize", "bias", "exchanged", "simulate"}
    assert renamed("collect") == {"collect", *trained}
    assert renamed("short") == {"pretrain", "geometry"}
    assert renamed("paper") == {"pretrain", "simulate"}
    assert renamed("digits") == set(KINDS) - {"faded"}  # whose rounds are drawn, not trained
    assert renamed("cifar10") == set()


def test_what_differs_by_a_thousandth_is_a_change_and_what_was_added_is_none():
    stored = numbers({"rows": [{"train_loss": 0.5, "rounds": 2, "decoder": "gamp", "seconds": 1.0}]})
    assert stored == {"/rows/0/train_loss": 0.5, "/rows/0/rounds": 2, "/rows/0/decoder": "gamp"}
    assert changes(stored, stored | {"/rows/0/train_loss": 0.5002, "/rows/0/new": 1.0}) == []
    assert changes(stored, stored | {"/rows/0/train_loss": 0.502}) == ["/rows/0/train_loss"]
    assert changes(stored, stored | {"/rows/0/decoder": "omp"}) == ["/rows/0/decoder"]
    assert changes(stored, {}) == list(stored)
