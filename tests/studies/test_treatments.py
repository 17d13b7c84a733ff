from pathlib import Path

import pytest
import torch

from aircomp.data.images import load
from aircomp.errors import ArtefactError
from aircomp.federation.experiment import load_experiment
from aircomp.federation.simulate import build_model, simulate
from aircomp.studies.jobs import Job
from aircomp.studies.kinds import run_job
from aircomp.studies.treatments import Treatments, last_tests, settled_scale

pytestmark = pytest.mark.seconds

SETTINGS = {
    "rounds": 3,
    "engine": "serial",
    "uplink": "amp-da",
    "channel.snr_db": 8.0,
    "model.name": "vgg",
    "model.width": 4,
    "local.steps": 4,
    "local.learning_rate": 0.05,
}


@pytest.fixture(scope="module")
def data():
    return load("digits")


def treatments_of(experiment, data, folder=None):
    return Treatments(build_model(experiment, data), data, experiment.local.steps, tested=(2, 3), folder=folder)


@pytest.fixture(scope="module")
def followed(data):
    """A run with averaged buffers, and what the other treatment would have made of them."""
    experiment = load_experiment("digits").changed(**SETTINGS)
    treatments = treatments_of(experiment, data)
    run = simulate(experiment, dataset=data, on_round=treatments.on_round)
    return run, treatments


def test_a_followed_treatment_ends_where_a_run_of_its_own_does(data, followed):
    averaged, treatments = followed
    own = simulate(load_experiment("digits").changed(**SETTINGS, buffers="estimated"), dataset=data)
    assert torch.equal(own.state.weights, averaged.state.weights)  # running statistics do not reach the weights
    row = next(row for row in treatments.rows if row["buffers"] == "estimated" and row["round"] == 3)
    assert row["test_accuracy"] == pytest.approx(own.metrics[-1]["test_accuracy"], abs=0.003)  # one image of 360
    # statistics of order one to ten after three rounds of float32 sums
    torch.testing.assert_close(treatments.estimated, own.state.buffers, rtol=1e-4, atol=1e-4)


class Killed(Exception):
    pass


JOB = Job("treatments", {"preset": "digits", "settings": SETTINGS, "tested": [1, 2, 3]})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What the job finds that nobody kills."""
    return run_job(JOB, tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize(("after", "kept"), [(1, "not yet"), (2, "before the kill")])
def test_a_job_that_was_killed_goes_on_to_the_same_rows(whole, tmp_path, monkeypatch, after, kept):
    follow, seen = Treatments.on_round, []

    def die(self, record, happened):
        seen.append(record["round"])
        if kept == "before the kill":  # the file of the round is there, the run's checkpoint is not
            follow(self, record, happened)
        if record["round"] > after:
            raise Killed
        if kept == "not yet":
            follow(self, record, happened)

    monkeypatch.setattr(Treatments, "on_round", die)
    with pytest.raises(Killed):
        run_job(JOB, tmp_path)
    monkeypatch.setattr(
        Treatments, "on_round", lambda self, *given: (seen.append(given[0]["round"]), follow(self, *given))
    )
    again = run_job(JOB, tmp_path)
    assert seen == [*range(1, after + 2), *range(after + 1, 4)], "finished rounds are not done again"
    assert again["rounds"] == whole["rounds"]
    assert without_times(again["rows"]) == without_times(whole["rows"])
    monkeypatch.setattr(Treatments, "on_round", follow)
    assert without_times(run_job(JOB, tmp_path)["rows"]) == without_times(whole["rows"]), "all were done"


def without_times(rows):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def test_files_of_the_last_three_rounds_are_kept(data, tmp_path):
    experiment = load_experiment("digits").changed(**SETTINGS)
    treatments = treatments_of(experiment, data, tmp_path)
    for number in range(1, 6):
        treatments.on_round({"round": number}, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"treatments_00000{n}.safetensors" for n in (3, 4, 5)]
    with pytest.raises(ArtefactError, match="nothing was kept of round 1 in"):
        treatments_of(experiment, data, tmp_path).on_round({"round": 2}, None)


def test_the_number_of_local_steps_is_that_of_the_devices_data(tmp_path):
    settings = SETTINGS | {"rounds": 1, "local.epochs": 3, "local.steps": None, "local.data_fraction": 0.8}
    job = Job("treatments", {"preset": "digits", "settings": settings, "tested": [1]})
    # 1,437 images, of which a 41st is the base station's; of 35 each (7 and 28) a device draws 28, two batches of 16
    (row,) = [row for row in run_job(job, tmp_path)["rows"] if row["buffers"] == "estimated"]
    assert row["settled_scale"] == pytest.approx(settled_scale(row["num_active_ratio"], 3 * 2))


def test_what_a_run_found_until_it_ended_early_can_be_kept(whole, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "tools")
    from take_over import found_so_far

    run_job(JOB, tmp_path)
    found = found_so_far(JOB.directory(tmp_path), SETTINGS["local.steps"])
    assert found["rounds"] == whole["rounds"]
    names = ("buffers", "test_accuracy_last5", "settled_scale", "predicted_scale")
    assert [[row.get(n) for n in names] for row in found["rows"]] == [
        [row.get(n) for n in names] for row in whole["rows"]
    ]
    JOB.keep(tmp_path, found, 9.0, measured_at="commit abc, 3 rounds")
    assert JOB.done(tmp_path)["measured_at"] == "commit abc, 3 rounds"


def test_estimated_buffers_are_scaled_by_the_error_of_the_number_of_devices(data, followed):
    run, treatments = followed
    assert any(round(r["num_active_hat"]) != r["num_active"] for r in run.metrics)  # or nothing would be tested
    kept, scale = 0.9 ** SETTINGS["local.steps"], 1.0
    for record in run.metrics:
        scale = record["num_active"] / round(record["num_active_hat"]) * (kept * scale + 1 - kept)
    last = next(row for row in last_tests(treatments.rows) if row["buffers"] == "estimated")
    # the first rounds' statistics change quickly, so that what is left of them counts a little more or less
    assert last["buffer_scale"] == pytest.approx(scale, rel=0.05)


def test_a_scale_settles_where_a_round_leaves_it():
    for ratio, steps in ((1.25, 10), (0.8, 10), (1.25, 150)):
        scale = settled_scale(ratio, steps)
        kept = 0.9**steps
        assert ratio * (kept * scale + 1 - kept) == pytest.approx(scale)
    assert settled_scale(1.25, 10) > settled_scale(1.25, 150) == pytest.approx(1.25, rel=1e-4)


def test_the_summary_is_of_the_last_five_tests():
    tests = [{"buffers": "average", "round": n, "test_accuracy": n / 10} for n in range(1, 9)]
    (row,) = last_tests(tests)
    assert row["test_accuracy"] == 0.8
    assert row["test_accuracy_last5"] == pytest.approx(0.6)
