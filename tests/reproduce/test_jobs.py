import functools
import math
from pathlib import Path

import numpy as np
import pytest

from aircomp.common.artefact import write_text
from aircomp.errors import AirCompError, ArtefactError
from aircomp.reproduce.jobs import Crew, Job, in_order, run_jobs


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
    run_jobs([first, second, first], tmp_path / "work", run, Crew(workers), on_job=lambda *a: steps.append(a[1:]))
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
    assert job.key == Job("add", params).key == "add-3f177ff823212dda"


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


def test_a_foreign_file_is_named(tmp_path):
    job = leaf(1)
    write_text(tmp_path / f"{job.key}.json", "[1]")
    with pytest.raises(ArtefactError, match=r"is not the result of a job; delete it"):
        job.payload(tmp_path)
