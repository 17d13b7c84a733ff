from types import SimpleNamespace

import pytest
import torch

from aircomp.data.images import load
from aircomp.fl.experiment import load_experiment
from aircomp.fl.simulate import build_model, partition_of, simulate
from aircomp.reproduce.treatments import Treatments, settled_scale

pytestmark = pytest.mark.seconds

SETTINGS = {
    "rounds": 3,
    "engine": "serial",
    "uplink": "amp-da",
    "channel.snr_db": -5.0,
    "model.name": "vgg",
    "model.width": 4,
    "local.steps": 4,
    "local.learning_rate": 0.05,
}


@pytest.fixture(scope="module")
def data():
    return load("digits")


@pytest.fixture(scope="module")
def followed(data):
    """A run with averaged buffers, and what each treatment would have made of them."""
    experiment = load_experiment("digits").changed(**SETTINGS)
    samples = partition_of(experiment, data).base_station
    treatments = Treatments(build_model(experiment, data), data, samples, experiment.local.steps, tested=(2, 3))
    run = simulate(experiment, dataset=data, on_round=treatments.on_round)
    return run, treatments


@pytest.mark.parametrize("policy", ["estimated", "local", "recomputed"])
def test_a_followed_treatment_ends_where_a_run_of_its_own_does(data, followed, policy):
    averaged, treatments = followed
    own = simulate(load_experiment("digits").changed(**SETTINGS, buffers=policy), dataset=data)
    assert torch.equal(own.state.weights, averaged.state.weights)  # running statistics do not reach the weights
    row = next(row for row in treatments.rows if row["buffers"] == policy and row["round"] == 3)
    assert row["test_accuracy"] == pytest.approx(own.metrics[-1]["test_accuracy"], abs=0.003)  # one image of 360
    if policy != "recomputed":
        # statistics of order one to ten after three rounds of float32 sums
        torch.testing.assert_close(getattr(treatments, policy), own.state.buffers, rtol=1e-4, atol=1e-4)


def test_estimated_buffers_are_scaled_by_the_error_of_the_number_of_devices(data, followed):
    run, treatments = followed
    assert any(round(r["num_active_hat"]) != r["num_active"] for r in run.metrics)  # or nothing would be tested
    kept, scale = 0.9 ** SETTINGS["local.steps"], 1.0
    for record in run.metrics:
        scale = record["num_active"] / round(record["num_active_hat"]) * (kept * scale + 1 - kept)
    last = next(row for row in treatments.summary() if row["buffers"] == "estimated")
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
    (row,) = Treatments.summary(SimpleNamespace(rows=tests))
    assert row["test_accuracy"] == 0.8
    assert row["test_accuracy_last5"] == pytest.approx(0.6)
