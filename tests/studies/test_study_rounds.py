"""Jobs on saved and drawn rounds: the same noise for all, bias and variance apart."""

import pytest

from aircomp.studies.jobs import Job, run_jobs
from aircomp.studies.kinds import fragments, run_job
from aircomp.studies.rounds import bias_job, exchange_job
from aircomp.studies.scales import SCALES


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    work = tmp_path_factory.mktemp("work")
    job = fragments(SCALES["digits"], 0, {"rounds": 2, "feedback.kind": "off"})
    run_jobs([job], work, run_job)
    return job, work


def row_of(collected, uplink, snr_db, readout="auto"):
    job, work = collected
    params = {"scheme": uplink, "readouts": [readout], "snr_db": snr_db, "rounds": 1, "seed": 0}
    (row,) = exchange_job(Job("exchange", params, (job,)), work)["rows"]
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


@pytest.mark.seconds
def test_a_decoder_without_noise_is_unbiased(collected):
    job, work = collected
    params = {"decoder": "gamp", "readout": "integers", "rounds": 1, "seed": 0}
    clean = bias_job(Job("bias", params | {"snr_db": 60.0}, (job,)), work)["rows"][0]
    noisy = bias_job(Job("bias", params | {"snr_db": -5.0}, (job,)), work)["rows"][0]
    # a slot in a thousand may be wrong at 60 dB, where GAMP is told of more noise than there is
    for name in ("update_gain", "gain_popular", "gain_rare", "lowest_layer_gain", "highest_layer_gain"):
        assert clean[name] == pytest.approx(1.0, abs=0.01)
    assert clean["update_nmse"] == pytest.approx(0.0, abs=0.01)
    assert noisy["update_gain"] < 0.8
    assert noisy["variance"] == pytest.approx(noisy["update_nmse"] - (1 - noisy["update_gain"]) ** 2, abs=1e-9)


def accuracy(scheme, power, antennas, snr_db, tmp_path):
    params = {"scheme": scheme, "power": power, "antennas": antennas, "snr_db": snr_db, "seed": 1, "slots": 128}
    (row,) = run_job(Job("faded", params), tmp_path)["rows"]
    return row["count_accuracy"]


@pytest.mark.seconds
def test_more_antennas_and_less_noise_count_better(tmp_path):
    assert accuracy("blind", "none", 8, 10.0, tmp_path) > accuracy("blind", "none", 1, 10.0, tmp_path) + 0.2
    assert accuracy("md-aircomp", "inversion", 4, 12.0, tmp_path) > 0.95
    assert accuracy("md-aircomp", "inversion", 4, 0.0, tmp_path) < 0.6
    assert accuracy("receiver-csi", "none", 8, 5.0, tmp_path) > 0.97
    assert 0.4 < accuracy("md-aircomp-plus", "none", 8, 5.0, tmp_path) < 0.75  # .56 is expected
