import functools
import json
import math
from pathlib import Path

import numpy as np
import pytest

from aircomp.common.arithmetic import kernels, switched_off
from aircomp.errors import AirCompError, ArtefactError
from aircomp.studies import jobs as jobs_module
from aircomp.studies.jobs import Job, Workers, forecast, in_order, known_seconds, run_jobs, run_params
from aircomp.studies.summary import over_seeds


def add(job: Job, work: Path, trace: Path) -> dict:
    """Add up what the needed jobs found; every run leaves a line."""
    with trace.open("a") as file:
        file.write(job.key + "\n")
    if job.params.get("fails"):
        raise AirCompError("this job cannot be done")
    found = [need.payload(work) for need in job.needs]
    assert None not in found
    return {"rows": [{"sum": job.params["value"] + sum(f["rows"][0]["sum"] for f in found)}]}


def leaf(value: int, **params) -> Job:
    return Job("add", {"value": value, **params})


@pytest.fixture
def trace(tmp_path):
    return tmp_path / "trace"


@pytest.mark.engines
@pytest.mark.parametrize("workers", [1, 2])
def test_jobs_run_once_after_what_they_need(tmp_path, trace, workers):
    shared = leaf(1)
    first, second = Job("add", {"value": 10}, (shared,)), Job("add", {"value": 20}, (shared, leaf(2)))
    run = functools.partial(add, trace=trace)
    steps = []
    run_jobs([first, second, first], tmp_path / "work", run, Workers(workers), on_job=lambda *a: steps.append(a[1:]))
    assert first.payload(tmp_path / "work")["rows"] == [{"sum": 11}]
    assert second.payload(tmp_path / "work")["rows"] == [{"sum": 23}]
    assert len(trace.read_text().split()) == 4
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_what_is_done_is_not_done_again_and_what_failed_is(tmp_path, trace):
    work, run = tmp_path / "work", functools.partial(add, trace=trace)
    good, bad = leaf(1), leaf(2, fails=True)
    with pytest.raises(AirCompError, match="cannot be done"):
        run_jobs([good, bad], work, run)
    assert good.payload(work) is not None
    assert bad.payload(work) is None
    with pytest.raises(AirCompError, match="cannot be done"):
        run_jobs([good, bad], work, run)
    assert trace.read_text().split() == [good.key, bad.key, bad.key]


def test_a_key_tells_what_is_done_and_with_what():
    job = Job("add", {"value": 1, "more": {"b": 2, "a": 1}}, (leaf(3),))
    assert job.key == Job("add", {"more": {"a": 1, "b": 2}, "value": 1}, (leaf(3),)).key
    others = [
        Job("sub", job.params, job.needs),
        Job("add", {"value": 2}, job.needs),
        Job("add", job.params, (leaf(4),)),
    ]
    assert len({job.key, *(other.key for other in others)}) == 4


def test_values_of_numpy_and_paths_have_the_key_of_plain_ones():
    params = {"value": 1, "settings": {"snr_db": [0.5, 2], "raw": True, "layer": "a/b"}}
    settings = {"snr_db": [np.float32(0.5), np.int64(2)], "raw": np.bool_(True), "layer": Path("a/b")}
    job = Job("add", {"value": np.int64(1), "settings": settings})
    assert job.params == params
    assert job.key == Job("add", params).key


def test_a_number_that_is_not_finite_is_kept_as_none(tmp_path):
    found = {"rows": [{"loss": math.nan, "sum": np.float32(0.5)}], "curve": [[1, math.inf], (2, 0.5)]}
    run_jobs([leaf(1)], tmp_path, lambda job, work: found)
    kept = leaf(1).done(tmp_path)
    assert kept["rows"] == [{"loss": None, "sum": 0.5}]
    assert kept["curve"] == [[1, None], [2, 0.5]]


def test_needs_come_first_and_once():
    a = leaf(1)
    b = Job("add", {"value": 2}, (a,))
    assert [job.key for job in in_order([Job("add", {"value": 3}, (b, a)), a])][:2] == [a.key, b.key]


def write(path, **changes):
    """Change what a job's file says."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


DAMAGE = {
    "rows edited": lambda path: write(path, rows=[{"sum": 2}]),
    "no rows": lambda path: write(path, rows=[]),
    "a null": lambda path: write(path, rows=[None]),
    "a word for rows": lambda path: write(path, rows="many"),
    "an infinity": lambda path: path.write_text(path.read_text().replace('"sum": 1', '"sum": Infinity')),
    "another key": lambda path: write(path, key="add-0000000000000000"),
    "a list": lambda path: path.write_text("[1]"),
    "half": lambda path: path.write_text(path.read_text()[:80]),
    "empty": lambda path: path.write_text(""),
}


@pytest.mark.parametrize("damage", list(DAMAGE))
def test_a_file_that_is_not_as_it_was_written_is_refused(damage, tmp_path):
    job = leaf(1)
    run_jobs([job], tmp_path, lambda job, work: {"rows": [{"sum": 1}]})
    DAMAGE[damage](job.path(tmp_path))
    with pytest.raises(ArtefactError) as refused:
        run_jobs([job], tmp_path, lambda job, work: {"rows": [{"sum": 3}]})
    assert str(job.path(tmp_path)) in str(refused.value)


def test_two_files_that_were_swapped_are_refused(tmp_path):
    jobs = [leaf(1), leaf(2)]
    run_jobs(jobs, tmp_path, lambda job, work: {"rows": [job.params]})
    one, other = (job.path(tmp_path).read_text() for job in jobs)
    jobs[0].path(tmp_path).write_text(other)
    jobs[1].path(tmp_path).write_text(one)
    for job in jobs:
        with pytest.raises(ArtefactError, match="holds the result of another job"):
            job.payload(tmp_path)


def test_a_checksum_that_was_made_to_fit_does_not_hide_an_infinity(tmp_path):
    job = leaf(1)
    job.keep(tmp_path, {"rows": [{"sum": 1}]}, 0.0)
    content = json.loads(job.path(tmp_path).read_text())
    del content["key"], content["checksum"]
    content["rows"] = [{"sum": math.inf}]
    job.path(tmp_path).write_text(json.dumps(content | {"key": job.key, "checksum": jobs_module._checksum(content)}))
    with pytest.raises(ArtefactError, match="no rows of words and finite numbers"):
        job.payload(tmp_path)


@pytest.mark.parametrize("seconds", [None, "x", -1, [1]])
def test_a_checksum_that_was_made_to_fit_does_not_hide_a_time_that_is_none(seconds, tmp_path):
    job = leaf(1)
    job.keep(tmp_path, {"rows": [{"sum": 1}], "seconds": 0}, 0.0)
    with pytest.raises(ArtefactError, match=r"says that its job took .* seconds; delete it"):
        job.keep(tmp_path, {"rows": [{"sum": 1}], "seconds": seconds}, 0.0)


def test_a_word_is_not_averaged(tmp_path):
    found = [({"scheme": "analog"}, {"rows": [{"nmse": value}]}) for value in (0.5, "small")]
    with pytest.raises(ArtefactError, match="a finished job of analog has nmse = the str 'small'; expected a number"):
        over_seeds(found, ("scheme",), ("nmse",))


def test_a_key_tells_what_computes(monkeypatch):
    keys = {leaf(1).key}
    with switched_off():
        keys.add(leaf(1).key)
    for what in ("torch.__version__", "torch.backends.cpu.get_cpu_capability", "aircomp.__version__"):
        with monkeypatch.context() as changed:
            changed.setattr(what, "9.9" if what.endswith("version__") else lambda: "ABACUS")
            keys.add(leaf(1).key)
    assert len(keys) == 4 + (kernels() is not None)


def test_a_run_that_names_a_file_is_known_by_its_content(tmp_path):
    start = tmp_path / "start.safetensors"
    found = []
    for content in (b"one", b"two", b"one"):
        start.write_bytes(content)
        found.append(Job("simulate", run_params("digits", {"start": str(start)})).key)
    assert found[0] == found[2] != found[1]
    assert run_params("digits", {})["files"]["data digits"]


def test_a_worker_that_computes_otherwise_is_refused(tmp_path):
    with pytest.raises(AirCompError, match="a worker computes with"):
        jobs_module.do_job(leaf(1), tmp_path, lambda job, work: {"rows": [{}]}, "an abacus", False)


def test_others_go_on_where_a_job_fails_and_what_needs_it_fails_with_it(tmp_path, trace):
    bad, good = leaf(2, fails=True), leaf(1)
    needs = Job("add", {"value": 3}, (bad,))
    last = Job("add", {"value": 4}, (needs,))
    run = functools.partial(add, trace=trace)
    failed = run_jobs([last, good], tmp_path / "work", run, tolerant=True)
    assert failed == dict.fromkeys([bad.key, needs.key, last.key], "this job cannot be done")
    assert good.payload(tmp_path / "work") is not None
    assert not bad.path(tmp_path / "work").exists(), "it is done again next time"


def test_a_forecast_takes_the_pace_of_what_was_measured_here(tmp_path):
    jobs = [leaf(value) for value in range(4)]
    jobs[0].keep(tmp_path, {"rows": [{"sum": 1}]}, 1800.0)
    found = forecast(jobs, tmp_path, known_seconds(jobs, {"add": 1.0}))
    assert (found.jobs, found.missing, found.seconds) == (4, 3, 5400.0)
    assert (
        found.sentence(2) == "4 jobs, 1 of them done; the others take about 1.5 core-hours, 0.75 hours with 2 at a time"
    )
    assert forecast(jobs, tmp_path, {}).seconds == 5400.0, "others of its kind, where nothing is known of a job"
    assert forecast([Job("new", {})], tmp_path, {}).sentence(1).endswith("was never measured")


def test_a_long_job_is_not_taken_for_a_short_one_of_its_kind(tmp_path):
    short, long = leaf(1), leaf(2)
    assert forecast([short, long], tmp_path, {short.key: 100.0, long.key: 7000.0}).seconds == 7100.0
    short.keep(tmp_path, {"rows": [{"sum": 1}]}, 50.0)
    assert forecast([short, long], tmp_path, {short.key: 100.0, long.key: 7000.0}).seconds == 3500.0
