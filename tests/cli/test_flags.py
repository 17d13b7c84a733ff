"""Flags of settings: two screens of help, the rest on demand, and other words for what people mean."""

import pytest

from aircomp.cli import simulate
from aircomp.errors import ConfigError

SCREEN = 50
"""Lines of a usual terminal."""


@pytest.fixture
def help_of(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")

    def said(*words):
        with pytest.raises(SystemExit) as stop:
            simulate.run(["digits", *words])
        assert stop.value.code in (None, 0)
        return capsys.readouterr().out

    return said


def test_help_fits_two_screens_and_shows_the_usual_flags_of_what_was_chosen(help_of):
    brief, faded = help_of("--help"), help_of("--channel", "fading", "--power.control", "inversion", "--help")
    assert len(brief.splitlines()) <= 2 * SCREEN
    assert all(flag in brief for flag in ("--rounds", "--channel.snr-db", "--participation.high", "--uplink.layer"))
    assert "--channel.antennas" not in brief
    assert "--channel.antennas" in faded
    assert "--power.threshold" in faded
    assert "--checkpoint-seconds" not in brief


def test_help_all_shows_every_flag_in_full(help_of):
    whole = help_of("--help-all")
    assert "--checkpoint-seconds" in whole
    assert "--uplink.quantize.fragment-length" in whole
    assert "trace: from a file" in " ".join(whole.split())


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--snr", "5"], "there is no flag --snr: did you mean --snr-db?"),
        (["--noise=5"], "there is no flag --noise: did you mean --snr-db?"),
        (["--lr", ".1"], "there is no flag --lr: did you mean --local.learning-rate or --server.learning-rate?"),
        (["--local.lr", ".1"], "there is no flag --local.lr: did you mean --local.learning-rate?"),
        (["--clients", "5"], "there is no flag --clients: did you mean --devices.total?"),
        (["--scheme", "gamp"], "there is no flag --scheme: did you mean --uplink.name?"),
    ],
)
def test_other_words_for_a_setting_name_its_flag(words, hint):
    with pytest.raises(ConfigError) as error:
        simulate.run(["digits", *words])
    assert str(error.value) == hint


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("--snrdb", ": did you mean --snr-db?"),
        ("--resum", ": did you mean --resume?"),
        ("--local.no-momentun", ": did you mean --local.momentum?"),
        ("--own_model", "; see aircomp simulate digits --help"),  # only Python can give it
        ("--nosuch", "; see aircomp simulate digits --help"),
    ],
)
def test_a_mistyped_flag_names_those_that_look_alike(word, hint):
    with pytest.raises(ConfigError) as error:
        simulate.run(["digits", word, "5"])
    assert str(error.value) == f"there is no flag {word}{hint}"


def test_other_words_for_a_setting_name_its_path_in_python():
    from aircomp.federation.experiment import Experiment

    with pytest.raises(ConfigError, match=r"no setting 'snr': did you mean channel\.snr_db\?"):
        Experiment().changed(snr=5)
    with pytest.raises(ConfigError, match=r"no setting 'local\.lr': did you mean learning_rate\?"):
        Experiment().changed(**{"local.lr": 0.1})
