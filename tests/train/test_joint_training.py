"""Training of a joint code: it learns; its decoder is GAMP."""

import torch

from aircomp.decoders.amp.steps import PreparedCodebook, iterate
from aircomp.encode.codebook import make_codebook
from aircomp.layer.joint_code import JointLayer, untrained
from aircomp.train.batches import draw
from aircomp.train.joint import REACH, decode, error_of_batch, pretrain_joint
from aircomp.train.recipe import JOINT_PRESETS as PRESETS
from aircomp.train.rounds import load_rounds
from helpers.draws import draw_indices, seeded
from helpers.records import read_lines
from helpers.trainings import JOINT as QUICK


def test_the_code_errs_less_in_less_noise(finished):
    errors = {row["snr_db"]: row["update_nmse"] for row in JointLayer.load(finished("joint")).training["test"]}
    assert errors[10.0] < errors[0.0] < errors[-10.0]


def test_training_lowers_the_loss_and_moves_all_weights(collection, tmp_path):
    layer = pretrain_joint([collection], QUICK.changed(epochs=6, samples_per_epoch=None), tmp_path / "longer")
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
