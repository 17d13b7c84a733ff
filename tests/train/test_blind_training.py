"""Training of a blind receiver: it learns; what it cannot use is refused."""

import math
from dataclasses import replace

import pytest
import torch

from aircomp.common.gains import GainModel
from aircomp.common.packing import pack
from aircomp.errors import ArtefactError, ConfigError
from aircomp.layer.blind_net import BlindLayer, BlindNetworks
from aircomp.train.blind import FadedBatch, draw_batch, load_saved_rounds, pretrain_blind, send
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


def test_gains_and_noise_have_the_power_they_are_said_to_have():
    codebook = pack(BlindNetworks.untrained(16, 8, seed=0).codebook.detach())
    indices = torch.randint(16, (5, 4000), generator=seeded(0))
    model = GainModel.unknown_phase(math.expm1((math.log(10) / 10 * 3) ** 2), 0.6)
    batch = FadedBatch(indices, torch.ones(16) / 16, 5.0, 4, model, 90.0, 0.0)
    power = float(send(codebook, batch, rng=seeded(1)).abs().square().sum((1, 2)).mean()) / 4
    # five devices of power one, and as much noise; 4,000 slots of few independent gains: about 2 %
    assert power == pytest.approx(10, rel=0.05)
    quiet = send(codebook, replace(batch, indices=indices[:1], snr_db=200.0), rng=seeded(1))
    first, second = quiet[:, 0].flatten(), quiet[:, 1].flatten()
    alike = float((first * second.conj()).mean().real / first.abs().square().mean())
    assert alike == pytest.approx(0.6, abs=0.05)


def test_batches_have_the_choices_of_a_round_or_drawn_ones(collection):
    train, _, _ = load_saved_rounds([collection], QUICK)
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
