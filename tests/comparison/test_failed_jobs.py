"""Jobs that fail: what needs them fails, too, they are done again, and seeds stay paired."""

import pytest

import aircomp
from aircomp.comparison import run
from aircomp.errors import ArtefactError
from aircomp.train import collect

OLD = {"arena-round": {"rows": [{"raw_nmse": 0.5}]}}


@pytest.fixture
def full_disk(monkeypatch):
    """Let no round after the first five be saved."""
    save = collect.save_round

    def save_some(directory, index, fragments):
        if index == 5:
            raise ArtefactError("no space is left")
        save(directory, index, fragments)

    monkeypatch.setattr(collect, "save_round", save_some)


def test_a_collection_that_ended_early_is_not_used(full_disk, small):
    found = aircomp.arena([small], ["baa"], seeds=1)
    assert found.rows == []
    assert [row["reason"] for row in found.failed] == ["no space is left"] * 2


def test_what_needed_a_failed_collection_is_done_again_with_it(small, tmp_path, monkeypatch):
    whole = aircomp.arena([small], ["baa"], seeds=1)
    with monkeypatch.context() as before:  # as an older version kept it: a failed need, and a result of what it left
        before.setattr(run, "run_or_tell", lambda job, work: OLD.get(job.kind, {"rows": [], "failed": "a reason"}))
        run.compare(whole.plan, tmp_path / "work")
    again = run.compare(whole.plan, tmp_path / "work")
    assert again.rows == whole.rows
    assert not again.failed
