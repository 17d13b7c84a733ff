"""The scripts behind numbers of the docs do what they say, on something small."""

import runpy
from pathlib import Path

import pytest
import torch

from aircomp.train.fragments import FragmentRound, load_round, save_round
from helpers.radio import NUM_CODEWORDS, POPULARITY

EXAMPLES = Path(__file__).parents[2] / "examples"
MEASUREMENTS = EXAMPLES / "measurements"


def test_saved_rounds_that_were_trained_on_are_left_out_and_others_are_heard(tmp_path, rng):
    directory = tmp_path / "digits60"
    directory.mkdir()
    for index in (0, 6, 7):  # of the bundled receiver's split, the second is held out
        indices = torch.multinomial(POPULARITY.expand(3, -1), 40, replacement=True, generator=rng)
        save_round(directory, index, FragmentRound(indices, POPULARITY, torch.randn(NUM_CODEWORDS, 2, generator=rng)))
    script = runpy.run_path(str(MEASUREMENTS / "saved_rounds.py"))
    path = script["last_unseen"](directory)
    assert path.stem == "round_00006"
    heard = script["heard"]("`blind-net`, slot by slot", load_round(path), 10.0, 0)
    assert heard.sent.counts.sum().item() == 3 * 40
    assert heard.accuracy > 0.5


def test_a_trained_receiver_is_measured_at_every_seed():
    script = runpy.run_path(str(MEASUREMENTS / "learned_receiver.py"))
    found = script["accuracies"]("blind", {"antennas": 8}, 10.0, 8, 1)
    assert len(found) == script["SEEDS"]
    assert min(found) > 0.5


@pytest.mark.seconds
def test_paired_seeds_are_trained_over_fading():
    script = runpy.run_path(str(MEASUREMENTS / "blind_training.py"))
    script["accuracy"].__globals__["ROUNDS"] = 1
    assert 0 < script["accuracy"]("blind", 0) < 1
