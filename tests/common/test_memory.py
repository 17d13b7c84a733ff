import pytest
import torch

import aircomp
from aircomp.cli import main
from aircomp.common import memory
from aircomp.common.memory import check_memory, machine_memory
from aircomp.errors import ConfigError
from aircomp.federation.configure import memory_needs
from aircomp.federation.experiment import Experiment, load_experiment, preset_names
from aircomp.federation.round import MEMORIES_IN_RAM


def test_what_fits_passes_and_what_does_not_is_refused_with_its_size():
    check_memory({"little": machine_memory() // 2, "as little": machine_memory() // 2})
    with pytest.raises(ConfigError, match=r"at least 9,000,000\.0 GB of memory, .* of it for the model"):
        check_memory({"the model": 9 * 10**15, "the rest": 10**6})
    with pytest.raises(ConfigError, match="more than a billion GB"):
        check_memory({"everything": 10**400})


@pytest.mark.parametrize("preset", preset_names())
def test_no_preset_needs_more_than_two_gigabytes(preset):
    assert sum(memory_needs(load_experiment(preset), 269_722).values()) < 2e9


def test_the_need_grows_with_what_takes_memory():
    few = Experiment(uplink="gamp")
    many = few.changed(**{"devices.total": 100_000, "rounds": 100_000})
    assert memory_needs(many, 10**6)["error memories (devices.total, model.width)"] == MEMORIES_IN_RAM
    assert (
        memory_needs(few, 10**4)["error memories (devices.total, model.width)"] == 39 * 4 * 10**4
    )  # of 40, on average
    wide = few.changed(**{"uplink.quantize.num_codewords": 256})
    counts = "counts (uplink.quantize.num_codewords, uplink.quantize.fragment_length)"
    assert memory_needs(wide, 10**6)[counts] == 2 * memory_needs(few, 10**6)[counts]


WIDE = ["--model.name", "resnet", "--model.width", "256", "--uplink.quantize.fragment-length", "2"]


@pytest.mark.parametrize(
    "args",
    [
        ["simulate", "digits", "--model.name", "resnet", "--model.width", "1024", "--model.blocks", "64"],
        ["simulate", "digits", "--uplink", "gamp", *WIDE, "--uplink.codeword-length", "65536"],
        ["simulate", "digits", "--uplink", "amp-da", *WIDE, "--uplink.codeword-length", "65536"],
    ],
    ids=" ".join,
)
def test_absurd_sizes_are_refused_before_anything_is_allocated(args, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(args)
    assert stop.value.code == 2
    assert "GB of memory" in capsys.readouterr().err


@pytest.mark.parametrize("length", [2**16 + 1, 2**40, 10**14])
def test_a_length_beyond_its_range_is_refused(length, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["simulate", "digits", "--uplink", "gamp", "--uplink.codeword-length", str(length)])
    assert stop.value.code == 2
    assert f"uplink.codeword_length = {length}: expected 1 to 65,536" in capsys.readouterr().err


def test_a_codebook_beyond_memory_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "machine_memory", lambda: 10**9)  # a small machine
    with pytest.raises(ConfigError, match=r"17\.1 GB of memory"):
        aircomp.make_codebook("gaussian", 32_767, 65_536, rng=torch.Generator())
