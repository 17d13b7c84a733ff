"""Settings, flags and runs from before the uplink had a group of its own."""

import pytest

from aircomp.cli.common import with_full_names
from aircomp.common.artefact import read_tensors, write_tensors
from aircomp.errors import ConfigError
from aircomp.fl.configure import full_name
from aircomp.fl.experiment import Experiment, present_name, read_toml
from aircomp.fl.simulate import simulate
from helpers.records import without_times

OLDER = """
uplink = "gamp-net"
side_information = "none"
[encode]
codebook = "layer"
codeword_length = 32
[air]
repeat = 2
[quantize]
num_codewords = 64
[channel]
snr_db = 3
"""


def test_an_older_file_means_what_it_meant(tmp_path):
    (tmp_path / "older.toml").write_text(OLDER)
    found = read_toml(tmp_path / "older.toml")
    settings = found.uplink
    assert (settings.name, settings.side_information, settings.codebook) == ("gamp-net", "none", "layer")
    assert (settings.codeword_length, settings.repeat, settings.quantize.num_codewords) == (32, 2, 64)
    assert Experiment(**found.model_dump()) == found


def test_older_keywords_change_what_they_changed():
    base = Experiment().changed(**{"encode.codeword_length": 16, "quantize.num_codewords": 8})
    found = base.changed(**{"uplink": "gamp", "air.repeat": 3, "side_information": "own"}).uplink
    assert (found.name, found.codeword_length, found.repeat, found.side_information) == ("gamp", 16, 3, "own")
    assert found.quantize.num_codewords == 8
    assert Experiment(uplink="gamp", quantize={"num_codewords": 8}).uplink.quantize.num_codewords == 8


def test_flags_in_every_form_name_one_setting():
    words = [
        "--uplink",
        "gamp",
        "--encode.layer=x",
        "--air.repeat",
        "2",
        "--snr-db",
        "3",
        "--quantize.num-codewords",
        "8",
    ]
    expected = ["--uplink.name", "gamp", "--uplink.layer=x", "--uplink.repeat", "2", "--channel.snr-db", "3"]
    assert with_full_names(words, full_name) == [*expected, "--uplink.quantize.num-codewords", "8"]
    assert present_name("uplink.gamp.agreement") == "uplink.gamp.agreement"


@pytest.mark.parametrize("older", [{"encode": 5}, {"air": "x"}, {"uplink": 5}, {"side_information": 5}])
def test_an_older_name_with_nonsense_is_refused(older):
    with pytest.raises(ConfigError):
        Experiment(**older)


@pytest.mark.seconds
def test_a_run_that_an_older_version_began_is_resumed_to_the_same_bits(quick, digits, tmp_path):
    experiment = quick.changed(**{"uplink": "gamp", "channel.snr_db": -15.0, "air.repeat": "auto", "rounds": 4})
    whole = simulate(experiment, dataset=digits)
    simulate(experiment.changed(rounds=2), dataset=digits, out=tmp_path / "run")
    state = tmp_path / "run" / "checkpoint" / "state.safetensors"
    tensors, metadata = read_tensors(state)
    snr_db = float(tensors.pop("uplink.snr_db"))
    write_tensors(state, tensors, metadata | {"snr_db": repr(snr_db)})
    assert snr_db < 0  # or the next round would not depend on it
    parts = simulate(experiment, dataset=digits, out=tmp_path / "run", resume=True)
    assert without_times(whole.metrics) == without_times(parts.metrics)
