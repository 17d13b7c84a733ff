import pytest
import torch

from aircomp.reproduce.jobs import Job
from aircomp.reproduce.scales import SCALES
from aircomp.reproduce.table_one import batch_norm, batch_norm_jobs, from_scratch, from_scratch_jobs, table_one_jobs
from aircomp.reproduce.treatments import settled_scale
from aircomp.reproduce.worth import Disturbance, bias_of

DESKTOP = SCALES["desktop"]
TREATMENTS = ("average", "estimated")
STEPS = 147


def payload(fields, job):
    """What a run would have found whose estimate is one device of ten too low and whose accuracy falls with that."""
    if job.kind == "scaled":
        return {"rows": [{"scale": s, "test_accuracy": 0.8 - abs(s - 1)} for s in job.params["scales"]]}
    exact, rounds = fields["uplink"] == "perfect", []
    for treatment in TREATMENTS:
        wrong = treatment == "estimated" and not exact
        scale = settled_scale(10 / 9, STEPS) if wrong else 1.0
        accuracy = {"test_accuracy": 0.5 if wrong else 0.8, "test_accuracy_last5": 0.5 if wrong else 0.8}
        rounds.append({"buffers": treatment, "buffer_scale": scale, "round": 12, "update_nmse": 1.0} | accuracy)
    counted = [[10, 10.0 if exact else 9.0]] * 12
    return {"rows": rounds, "rounds": rounds, "num_active": counted, "local_steps": STEPS}


def test_the_treatments_stand_beside_each_other_and_the_paper():
    found = [(fields, payload(fields, job)) for fields, job in batch_norm_jobs(DESKTOP, range(3))]
    outcome = batch_norm(DESKTOP, found)
    wide = {(row["uplink"], row["snr_db"]): row for row in outcome.tables[0].rows}
    assert wide["amp-da", 0.0]["estimated"] == pytest.approx(0.5)
    assert wide["amp-da", 0.0]["average"] == pytest.approx(0.8)
    assert wide["amp-da", 0.0]["paper_test_accuracy"] == 0.139
    assert wide["amp-da-net", 20.0]["paper_test_accuracy"] == 0.805
    assert [name for name, snr_db in wide if snr_db == 5.0] == ["amp-da", "amp-da-net", "ours: gamp-net"]
    assert len(wide) == 1 + 2 * 6 + 2  # ours at two SNRs
    assert {row["buffers"] for row in outcome.rows if row["uplink"] != "scaled"} == set(TREATMENTS)
    scales = outcome.tables[1].rows
    assert all(row["settled_scale"] == pytest.approx(settled_scale(10 / 9, STEPS)) for row in scales)
    assert len(outcome.figures) == 2
    assert "amp-da-net, Table I" in outcome.figures[0].svg


def test_the_runs_of_table_one_are_shared_with_it():
    keys = {job.key for _, job in table_one_jobs(DESKTOP, [0])}
    assert keys < {job.key for _, job in batch_norm_jobs(DESKTOP, [0])}


def test_runs_from_scratch_are_the_papers_at_half_resolution():
    jobs = from_scratch_jobs(DESKTOP, [0, 1])
    runs = [("perfect", None), ("amp-da", 0.0), ("amp-da-net", 0.0), ("amp-da", 5.0), ("amp-da-net", 5.0)]
    assert [(row["uplink"], row["snr_db"]) for row, _ in jobs] == runs  # of one seed
    for _, job in jobs:
        assert job.needs == (), "no start, and the package's layer"
        assert job.params["preset"] == "cifar10"
        settings = job.params["settings"]
        assert (settings["model.stem_stride"], settings["rounds"]) == (2, 300)
        assert job.params["tested"] == list(range(5, 301, 5))
    assert from_scratch(DESKTOP, [(f, payload(f, job)) for f, job in jobs]).figures


def test_a_start_is_made_once_for_all_runs():
    starts = {need.key for _, job in batch_norm_jobs(DESKTOP, range(3)) for need in job.needs if need.kind == "central"}
    assert len(starts) == 1


def test_a_disturbance_has_the_length_and_the_energy_that_it_says():
    update = torch.randn(20_000, generator=torch.Generator().manual_seed(0))
    disturbed = Disturbance(0.5, 4.0, seed=1)
    first, second = disturbed(update), disturbed(update)
    energy = update.square().sum()
    for found in (first, second):
        noise = found - 0.5 * update
        assert float(noise.square().sum() / energy) == pytest.approx(4.0, rel=1e-4)  # scaled to it
        # independent directions in 20,000 dimensions: their cosine has a deviation of 1/141
        assert abs(float(noise @ update / (noise.norm() * update.norm()))) < 5 / 141
    assert not torch.equal(first, second)
    assert torch.equal(first, Disturbance(0.5, 4.0, seed=1)(update))


@pytest.mark.seconds
def test_a_decoder_without_noise_is_unbiased(tmp_path):
    from aircomp.reproduce.parts import fragments
    from aircomp.reproduce.work import run_job

    collected = fragments(SCALES["digits"], 0, {"rounds": 2})
    run_job(collected, tmp_path)
    params = {"decoder": "gamp", "readout": "integers", "rounds": 1, "seed": 0}
    clean = bias_of(Job("bias", params | {"snr_db": 60.0}, (collected,)), tmp_path)["rows"][0]
    noisy = bias_of(Job("bias", params | {"snr_db": -5.0}, (collected,)), tmp_path)["rows"][0]
    # a slot in a thousand may be wrong at 60 dB, where GAMP is told of more noise than there is
    for name in ("update_gain", "gain_popular", "gain_rare", "lowest_layer_gain", "highest_layer_gain"):
        assert clean[name] == pytest.approx(1.0, abs=0.01)
    assert clean["update_nmse"] == pytest.approx(0.0, abs=0.01)
    assert noisy["update_gain"] < 0.8
    assert noisy["variance"] == pytest.approx(noisy["update_nmse"] - (1 - noisy["update_gain"]) ** 2, abs=1e-9)
