"""Receivers behind fading: what the job measures, and how the result is drawn."""

import pytest

from aircomp.reproduce.jobs import Job
from aircomp.reproduce.receivers import ANTENNAS, receivers, receivers_jobs
from aircomp.reproduce.scales import SCALES
from aircomp.reproduce.work import run_job


def accuracy(uplink, power, antennas, snr_db, tmp_path):
    params = {"uplink": uplink, "power": power, "antennas": antennas, "snr_db": snr_db, "seed": 1, "slots": 128}
    (row,) = run_job(Job("faded", params), tmp_path)["rows"]
    return row["count_accuracy"]


@pytest.mark.seconds
def test_more_antennas_and_less_noise_count_better(tmp_path):
    assert accuracy("blind", "none", 8, 10.0, tmp_path) > accuracy("blind", "none", 1, 10.0, tmp_path) + 0.2
    assert accuracy("md-aircomp", "inversion", 4, 12.0, tmp_path) > 0.95
    assert accuracy("md-aircomp", "inversion", 4, 0.0, tmp_path) < 0.6
    assert accuracy("receiver-csi", "none", 8, 5.0, tmp_path) > 0.97
    assert 0.4 < accuracy("md-aircomp-plus", "none", 8, 5.0, tmp_path) < 0.75  # .56 is expected


def test_a_panel_for_each_number_of_antennas_and_one_antenna_of_widened_in_all():
    found = [(fields, {"rows": [{"count_accuracy": 0.5}]}) for fields, _ in receivers_jobs(SCALES["digits"], [0, 1])]
    outcome = receivers(SCALES["digits"], found)
    assert all(row["seeds"] == 2 for row in outcome.rows)
    (figure,) = outcome.figures
    for antennas in ANTENNAS:
        assert f">{antennas} antenna" in figure.svg
    assert figure.svg.count("no gains, blind") == 1  # the legend is one for all panels
