"""Schemes on saved rounds: the same noise for all, bias and variance apart."""

import pytest

from aircomp.reproduce.codes import codes, codes_jobs, exchanged_job
from aircomp.reproduce.jobs import Job, run_jobs
from aircomp.reproduce.parts import fragments
from aircomp.reproduce.scales import SCALES
from aircomp.reproduce.work import run_job


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    work = tmp_path_factory.mktemp("work")
    job = fragments(SCALES["digits"], 0, {"rounds": 2, "feedback.kind": "off"})
    run_jobs([job], work, run_job)
    return job, work


def row_of(collected, uplink, snr_db, readout="auto"):
    job, work = collected
    params = {"uplink": uplink, "readouts": [readout], "snr_db": snr_db, "rounds": 1, "seed": 0}
    (row,) = exchanged_job(Job("exchanged", params, (job,)), work)["rows"]
    return row


@pytest.mark.seconds
def test_analog_without_noise_finds_the_raw_mean_and_digital_that_of_codewords(collected):
    analog = row_of(collected, {"name": "analog"}, 100.0)
    assert analog["raw_nmse"] < 1e-6
    assert analog["raw_gain"] == pytest.approx(1, abs=1e-3)
    digital = row_of(collected, {"name": "gamp"}, 30.0)
    assert digital["update_nmse"] < 1e-3
    assert digital["raw_nmse"] > 0.3  # what quantisation leaves out
    for row in (analog, digital):
        assert row["variance"] == pytest.approx(row["update_nmse"] - (1 - row["update_gain"]) ** 2, abs=1e-9)


@pytest.mark.seconds
def test_matched_energies_have_the_smaller_error_at_0_db(collected):
    rows = [row_of(collected, {"name": "gamp", "energy": energy}, 0.0, "soft") for energy in ("equal", "matched")]
    assert rows[1]["update_nmse"] < 0.5 * rows[0]["update_nmse"]


@pytest.mark.parametrize("scale", ["digits", "laptop", "desktop"])
def test_the_result_is_drawn_at_every_scale(scale):
    measured = dict.fromkeys(("update_nmse", "update_gain", "variance", "raw_nmse", "raw_gain", "raw_variance"), 0.5)
    found = []
    for fields, job in codes_jobs(SCALES[scale], [0, 1]):
        readouts = job.params.get("readouts", [])
        rows = [measured | {"readout": each} for each in readouts] or [{"test_accuracy_last5": 0.9}]
        found.append((fields, {"rows": rows}))
    outcome = codes(SCALES[scale], found)
    assert outcome.figures
    assert all(row["seeds"] == 2 for row in outcome.rows)
