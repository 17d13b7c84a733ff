"""Training of a blind receiver: it learns; what it cannot use is refused."""

import pytest
import torch

from aircomp.encode.codebook import count
from aircomp.errors import ArtefactError, ConfigError
from aircomp.layer.blind_net import BlindLayer, BlindNetworks
from aircomp.train.blind import decode_batch, draw_batch, load_saved_rounds, pretrain_blind
from aircomp.train.fragments import save_round
from aircomp.train.recipe import BLIND_PRESETS as PRESETS
from aircomp.train.recipe import BlindTrainingSettings
from helpers.draws import seeded
from helpers.records import read_lines
from helpers.trainings import RECEIVER as QUICK


def test_the_receiver_is_of_the_settings_and_counts_better_with_more_antennas(finished):
    layer = BlindLayer.load(finished("receiver"))
    assert layer.codebook.shape == (16, 8)
    accuracy = {(row["antennas"], row["snr_db"]): row["count_accuracy"] for row in layer.training["test"]}
    assert accuracy[4, 10.0] > accuracy[1, 0.0]


def test_training_lowers_the_loss_and_moves_codebook_and_schedule(collection, tmp_path):
    layer = pretrain_blind([collection], QUICK.changed(epochs=5, samples_per_epoch=None), tmp_path / "longer")
    losses = [record["validation_loss"] for record in read_lines(tmp_path / "longer" / "metrics.jsonl")]
    assert min(losses) < losses[0] - 0.005
    start = BlindNetworks.untrained(16, 8, seed=0)
    for name, weight in layer.networks.state_dict().items():
        assert not torch.equal(weight, start.state_dict()[name]), name


def test_batches_draw_channels_within_the_ranges_and_many_without_errors(collection):
    train = load_saved_rounds([collection], QUICK).train
    drawn = [draw_batch(train[0], torch.arange(20), QUICK, rng=seeded(seed)).channel.settings for seed in range(60)]
    assert {channel.antennas for channel in drawn} == {1, 2, 3, 4}
    errors = [channel.errors for channel in drawn]
    for largest, found in (
        (QUICK.fading.power_db, [each.power_db for each in errors]),
        (QUICK.fading.correlation, [channel.correlation for channel in drawn]),
        # over the three steps between the four complex uses of a codeword, from its middle half a turn of 180 degrees
        (QUICK.fading.ramp_deg, [each.frequency * 180 * 3 for each in errors]),
    ):
        assert 0.8 * largest < max(found) <= largest * (1 + 1e-9)
        assert 10 <= found.count(0.0) <= 30  # a third of them


def test_the_true_counts_teach_codebook_and_schedule_through_the_channel(collection):
    train = load_saved_rounds([collection], QUICK).train
    networks = BlindNetworks.untrained(16, 8, seed=0)
    batch = draw_batch(train[0], torch.arange(20), QUICK, rng=seeded(0))
    found, truth = decode_batch(networks, batch, rng=seeded(1))
    assert torch.equal(truth.long(), count(batch.indices, 16))
    (found.mean[:, 0] - truth).square().sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in (networks.rows, networks.net.offset))


def test_batches_have_the_choices_of_a_round_or_drawn_ones(collection):
    train = load_saved_rounds([collection], QUICK).train
    slots = torch.arange(20)
    real = draw_batch(train[0], slots, QUICK.changed(**{"data.drawn": 0.0}), rng=seeded(0))
    assert torch.equal(real.indices, train[0].indices[:, :20])
    drawn = draw_batch(train[0], slots, QUICK.changed(**{"data.drawn": 1.0}), rng=seeded(0))
    assert drawn.popularity.tolist() == sorted(drawn.popularity.tolist(), reverse=True)
    assert 3 <= len(drawn.indices) <= 8
    assert (train[0].popularity.diff() <= 0).all(), "codewords are not ordered by popularity"


def test_codebooks_of_several_sizes_are_refused(collection, tmp_path, synthetic_round):
    save_round(tmp_path / "small", 0, synthetic_round(0, num_codewords=8))
    with pytest.raises(ArtefactError, match=r"the rounds have \[8, 16\] codewords; train on collections of one size"):
        load_saved_rounds([collection, tmp_path / "small"], QUICK)


def test_the_preset_covers_what_the_receiver_meets():
    preset = PRESETS.load("blind-net")
    assert (preset.data.snr_db_low, preset.data.snr_db_high, preset.fading.antennas) == (-5, 15, 64)


@pytest.mark.parametrize("wrong", [{"snr_db_low": 21.0}, {"devices_low": 41}, {"validation_fraction": 0.9}])
def test_ranges_the_wrong_way_round_are_refused(wrong):
    with pytest.raises(ConfigError, match=r"swap them|lower one of them"):
        BlindTrainingSettings().changed(**{f"data.{name}": value for name, value in wrong.items()})
