"""Training of a joint code: same seed, same bits; it learns; its decoder is GAMP."""

import pytest
import torch

from aircomp.common.artefact import read_json
from aircomp.decode.gamp_steps import PreparedCodebook, iterate
from aircomp.encode.codebook import make_codebook
from aircomp.layer.joint_code import JointLayer, untrained
from aircomp.train.joint import PRESETS, REACH, JointTrainingSettings, decode, error_of_batch, pretrain_joint
from aircomp.train.rounds import draw, load_rounds
from helpers.draws import draw_indices, seeded
from helpers.records import read_lines, without_times

QUICK = JointTrainingSettings.parse(
    {
        "epochs": 2,
        "learning_rate": 3e-2,
        "codeword_length": 8,
        "schedule": "cosine",
        "joint": {"width": 4},
        "data": {"batch_slots": 20, "validation_samples": 40, "snr_db_low": -5.0, "snr_db_high": 0.0},
    }
)


@pytest.fixture(scope="module")
def finished(collection, tmp_path_factory):
    out = tmp_path_factory.mktemp("joint") / "joint"
    pretrain_joint([collection], QUICK, out)
    return out


def files(out):
    description = read_json(out / "layer.json")
    description["training"].pop("seconds")
    return (out / "layer.safetensors").read_bytes(), description, without_times(read_lines(out / "metrics.jsonl"))


def test_the_same_seed_gives_the_same_bits_and_another_one_others(collection, finished, tmp_path):
    pretrain_joint([collection], QUICK, tmp_path / "again")
    assert files(tmp_path / "again") == files(finished)
    pretrain_joint([collection], QUICK.changed(seed=1, epochs=1), tmp_path / "other")
    assert files(tmp_path / "other")[0] != files(finished)[0]


def test_a_training_that_ended_early_resumes_to_the_same_bits(collection, finished, tmp_path):
    pretrain_joint([collection], QUICK.changed(seconds=1e-3), tmp_path / "parts")
    assert len(read_lines(tmp_path / "parts" / "metrics.jsonl")) == 1
    pretrain_joint([collection], QUICK, tmp_path / "parts", resume=True)
    assert files(tmp_path / "parts")[0] == files(finished)[0]


def test_the_directory_holds_code_records_and_result(finished):
    layer = JointLayer.load(finished)
    assert {part: len(names) for part, names in layer.training["rounds"].items()} == {
        "train": 4,
        "validation": 1,
        "test": 1,
    }
    errors = {row["snr_db"]: row["update_nmse"] for row in layer.training["test"]}
    assert errors[10.0] < errors[0.0] < errors[-10.0]
    assert read_json(finished / "result.json")["rows"] == layer.training["test"]


def test_training_lowers_the_loss_and_moves_all_weights(collection, tmp_path):
    layer = pretrain_joint([collection], QUICK.changed(epochs=6), tmp_path / "longer")
    losses = [record["validation_loss"] for record in read_lines(tmp_path / "longer" / "metrics.jsonl")]
    assert min(losses) < losses[0] - 0.01
    start = untrained(QUICK.joint, 0).state_dict()
    for name, weight in layer.code.state_dict().items():
        assert not torch.equal(weight, start[name]), name


def test_the_decoder_of_training_is_gamp():
    rng = seeded(0)
    codebook = make_codebook("two-bases", 32, 16, rng=rng) * torch.linspace(0.5, 1.5, 32)[:, None]
    rate = 5 * torch.softmax(torch.randn(1, 32, generator=rng), dim=1).expand(50, -1)
    indices = draw_indices(rate[0], 50, 5, rng=rng)
    counts = torch.nn.functional.one_hot(indices, 32).sum(0).float()
    received = counts @ codebook + 0.3 * torch.randn(50, 16, generator=rng)
    noise = torch.full((50, 1), 0.09)
    plain = iterate(received, PreparedCodebook.of(codebook), noise, rate, iterations=10, reach=REACH).x_hat
    torch.testing.assert_close(decode(received, codebook, 0.09, rate), plain, atol=1e-3, rtol=0)


def test_a_batch_in_little_noise_asks_nothing_of_the_network(collection):
    split = load_rounds([collection], QUICK.data, seed=0)
    code, loud = untrained(QUICK.joint, 0), QUICK.data.changed(snr_db_low=20.0, snr_db_high=20.0)
    batch = draw(split.train[0], torch.arange(20), loud, rng=seeded(0))
    error_of_batch(code, batch, 8, rng=seeded(1)).backward()
    assert all(not parameter.grad.any() for parameter in code.parameters())


def test_the_preset_covers_what_the_code_meets():
    data = PRESETS.load("joint-net").data
    assert (data.snr_db_low, data.devices_low, data.devices_high, data.side_information) == (-12, 1, 40, True)
