"""The script that fits constants runs, and leaves them as they were."""

import importlib.util
from pathlib import Path

import pytest
import torch

from aircomp.decoders import side
from aircomp.decoders.estimate import round_estimate as estimate
from aircomp.train.fragments import FragmentRound, save_round

SCRIPT = Path(__file__).parents[2] / "tools" / "fit_constants.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("fit_constants", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rounds(tmp_path_factory):
    directory, rng = tmp_path_factory.mktemp("fragments"), torch.Generator().manual_seed(0)
    popularity = torch.arange(1, 129).float().reciprocal()
    for index in range(2):
        indices = torch.multinomial(popularity.expand(9, -1), 50, replacement=True, generator=rng)
        saved = FragmentRound(indices, popularity / popularity.sum(), torch.randn(128, 4, generator=rng))
        save_round(directory, index, saved)
    return directory


@pytest.mark.parametrize(("what", "values"), [("strength", 4), ("energy", 5), ("agreement-of-layer", 9)])
def test_it_prints_every_value_and_a_choice_and_changes_nothing(script, rounds, capsys, what, values):
    before = estimate.FITTED, side.STRENGTH
    script.main([what, "--fragments", str(rounds), "--slots", "30", "--snr-db", "5"])
    header, columns, *lines = capsys.readouterr().out.splitlines()
    assert ", best " in header
    assert "count_accuracy at 5 dB" in columns
    assert len(lines) == values
    assert before == (estimate.FITTED, side.STRENGTH)


def test_of_values_that_decode_as_well_the_least_update_error_wins(script):
    tried = {
        value: {0.0: {"count_accuracy": accuracy, "update_nmse_soft": nmse}}
        for value, accuracy, nmse in ((0.0, 0.60, 0.1), (0.02, 0.6199, 0.40), (0.04, 0.62, 0.42))
    }
    assert script.best_by_counts(tried) == 0.02


def test_a_constant_has_another_value_only_for_a_while(script):
    with script.constant(side, "STRENGTH", 7.0):
        assert side.STRENGTH == 7.0
    assert side.STRENGTH == 100.0
