"""Jobs that fail: what needs them fails, too, they are done again, and seeds stay paired."""

import math

import numpy as np
import pytest

import aircomp
from aircomp.errors import ArtefactError
from aircomp.studies import arena, expected, kinds
from aircomp.studies.ranking import MEASURES, compared
from aircomp.train import collect


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
    with monkeypatch.context() as before:
        before.setattr(collect, "save_round", lambda *given: full())
        broken = aircomp.arena([small], ["baa"], seeds=1, out=tmp_path)
    assert len(broken.failed) == 2
    again = aircomp.arena([small], ["baa"], seeds=1, out=tmp_path)
    assert len(again.rows) == 2
    assert not again.failed


def full():
    raise ArtefactError("no space is left")


def test_one_failed_seed_leaves_a_gap_and_the_others_are_paired(small, monkeypatch):
    measure = kinds.ON_CPU["arena-round"]

    def fail_once(job, work):
        settings = job.params["settings"]
        if (settings["uplink.name"], settings["channel.snr_db"], settings["seed"]) == ("obda", 0.0, 1):
            raise ArtefactError("a reason")
        return measure(job, work)

    monkeypatch.setitem(kinds.ON_CPU, "arena-round", fail_once)
    found = aircomp.arena([small], ["baa", "obda"], seeds=3)
    assert [(row["scheme"], row["value"], row["seed"]) for row in found.failed] == [("obda", 0.0, 1)]
    assert [row["seeds"] for row in found.rows] == [3, 3, 2, 3]
    gap = found.rows[2]["raw_nmse_values"]
    assert [value is None for value in gap] == [False, True, False]
    assert found.rows[2]["side_information"] == found.rows[3]["side_information"]
    pairs = [(0, gap[0]), (2, gap[2])]
    margins = [MEASURES["round"].margin(found.rows[0]["raw_nmse_values"][seed], value) for seed, value in pairs]
    assert found.winners[0]["margin"] == pytest.approx(sum(margins) / 2)


def test_who_has_no_seed_in_common_is_not_judged():
    first, second = ({"raw_nmse_values": values} for values in ([0.1, None], [None, 0.2]))
    beside = compared(first, second, MEASURES["round"])
    assert beside == {"margin": None, "verdict": "not judged: no seed in common"}


def test_who_lacks_a_seed_is_not_expected(tmp_path, monkeypatch):
    monkeypatch.setattr(expected, "folder", lambda: tmp_path / "expected")
    monkeypatch.setattr(arena, "jobs_of", lambda plan: ([], []))
    about = {"challenge": "awgn", "value": 0.0, "seeds": 2, "raw_nmse": 0.1, "raw_nmse_std": 0.0}
    rows = [about | {"scheme": name, "raw_nmse_values": v} for name, v in (("baa", [0.1, 0.1]), ("obda", [0.1, None]))]
    arena.update_expected(arena.Comparison(arena.Plan(("awgn",)), rows, [], [], []), tmp_path)
    assert [row["scheme"] for row in arena.expected_rows("round")] == ["baa"]


def test_a_scheme_whose_error_is_not_a_number_does_not_take_part(small, tmp_path, monkeypatch):
    def lost(job, work):
        return {"rows": [{"raw_nmse": math.nan if job.params["settings"]["uplink.name"] == "obda" else 0.5}]}

    monkeypatch.setitem(kinds.ON_CPU, "arena-round", lost)
    found = aircomp.arena([small], ["baa", "obda"], seeds=1, out=tmp_path, **{"devices.total": np.int64(20)})
    assert [row.get("raw_nmse") for row in found.rows] == [0.5, 0.5, None, None]
    assert [row["winner"] for row in found.winners] == ["baa", "baa"]
    assert (tmp_path / "report.html").exists()
