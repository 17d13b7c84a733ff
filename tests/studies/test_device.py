"""Where jobs compute, and what must be there before anything runs."""

from pathlib import Path

import pytest

from aircomp.cli import main
from aircomp.studies import kinds, rounds, runs
from aircomp.studies.jobs import Job, in_order
from aircomp.studies.results import check_data, jobs_of
from aircomp.studies.scales import SCALES
from aircomp.studies.study import RESULTS

COLLECTED = Job("collect", {"preset": "digits", "settings": {"rounds": 3}})
START = Job("central", {"preset": "digits", "settings": {}, "central": {}})
RUN = {"preset": "digits", "settings": {"uplink": "perfect"}}
JOBS = {
    "simulate": Job("simulate", RUN),
    "treatments": Job("treatments", RUN | {"tested": [1]}),
    "disturbed": Job("disturbed", RUN | {"length": 1.0}),
    "collect": COLLECTED,
    "pretrain": Job("pretrain", {"preset": "paper", "settings": {}}, (COLLECTED,)),
    "evaluate": Job("evaluate", {"decoders": ["gamp"], "snr_db": [5.0]}, (COLLECTED,)),
    "central": START,
    "scaled": Job("scaled", {"scales": [1.0]}, (START,)),
}


class Seen(Exception):
    """Where something was asked to compute."""


class Model:
    """A model that goes to a device."""

    def to(self, device):
        raise Seen(device)


def seen(device):
    raise Seen(device)


@pytest.mark.parametrize("kind", list(kinds.ON_DEVICE))
def test_the_device_reaches_every_job_that_computes(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("aircomp.federation.configure.check_device", lambda name, device: None)  # there is no GPU here
    monkeypatch.setattr(runs, "simulate", lambda experiment, **_: seen(experiment.device))
    monkeypatch.setattr(rounds, "collect", lambda *_, **settings: seen(settings["device"]))
    monkeypatch.setattr(rounds, "pretrain_paper", lambda *_, **options: seen(options["device"]))
    monkeypatch.setattr(rounds, "evaluate", lambda directory, plan: seen(plan.device))
    if kind in ("central", "scaled", "treatments"):
        monkeypatch.setattr(runs, "build_model", lambda *_: Model())
        monkeypatch.setattr(runs, "load_start", lambda *_: None)
    with pytest.raises(Seen, match="cuda"):
        kinds.run_job(JOBS[kind], tmp_path, device="cuda")


def test_a_job_is_the_same_wherever_it_computes():
    for scale in SCALES.values():
        for name in RESULTS.at(scale.name):
            assert not [
                job for job in in_order(j for _, j in jobs_of(name, scale, [0])) if "'device'" in str(job.params)
            ]


@pytest.mark.parametrize("scale", ["laptop", "desktop", "paper"])
def test_missing_data_is_said_before_anything_runs(scale, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("AIRCOMP_DATA", str(tmp_path / "nothing"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", "k_error", "--scale", scale])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert "the dataset cifar10 is not there" in said
    assert said.count("\n") == 1, "one sentence"
    assert list(tmp_path.iterdir()) == []


def test_what_is_done_needs_no_data(tmp_path, monkeypatch):
    monkeypatch.setenv("AIRCOMP_DATA", str(Path("nowhere")))
    check_data([Job("geometry", {"layer": "paper"}), COLLECTED])
    check_data([])


def test_a_gpu_that_is_not_there_is_said_before_anything_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", "k_error", "--device", "cuda"])
    assert stopped.value.code == 2
    assert "this machine or this build of torch has none; use --device cpu" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
