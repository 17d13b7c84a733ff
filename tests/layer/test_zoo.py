"""The layers of the package by name, by size and by budget."""

import json
from pathlib import Path

import pytest
import torch

import aircomp
from aircomp import CommunicationLayer
from aircomp.cli.layers import run
from aircomp.decoders.net.gamp_net import OFF_RANGE
from aircomp.errors import ConfigError
from aircomp.layer.zoo import bundled, layer_for, layer_names, layer_sizes, pick_layer
from aircomp.schemes.settings import SchemeSettings
from helpers.commands import call

NAMES = ["64x32", "128x32", "128x64", "256x64", "256x128"]


def test_the_package_has_a_layer_of_each_size():
    assert layer_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_loads_by_its_name_and_has_the_sizes_it_is_called_by(name):
    layer = CommunicationLayer.load(name)
    assert tuple(layer.codebook.shape) == layer_sizes(name)
    assert layer.num_active_range == (1, 64)


def test_the_layer_for_the_papers_cell_has_a_name_of_its_own():
    layer = CommunicationLayer.load("cell")
    assert (tuple(layer.codebook.shape), layer.num_active_range) == ((128, 64), (7, 13))
    link = aircomp.make_scheme(SchemeSettings(name="gamp-net", layer="cell"))
    assert torch.equal(link.codebook, layer.codebook)


@pytest.mark.parametrize("name", [*NAMES, "cell"])
def test_its_card_says_from_how_many_devices_on_there_is_a_warning(name):
    with bundled(name) as directory:
        card = (directory / "README.md").read_text()
    low, high = CommunicationLayer.load(name).num_active_range or (0, 0)
    said = f"Trained with {low} to {high} devices. Beyond, it still decodes; beyond {high * OFF_RANGE:g}, a warning"
    assert said in card


@pytest.fixture
def namesake(tmp_path, monkeypatch):
    """A working directory where a layer of other sizes is called 256x64, and something else 128x64."""
    monkeypatch.chdir(tmp_path)
    CommunicationLayer.load("64x32").save("256x64")
    Path("128x64").mkdir()


def test_a_directory_does_not_replace_the_layer_of_its_name(namesake, capsys):
    assert CommunicationLayer.load().codebook.shape == (128, 64)
    assert CommunicationLayer.load("256x64").codebook.shape == (256, 64)
    assert SchemeSettings(name="gamp-net", layer="256x64").layer == Path("256x64")
    assert aircomp.make_scheme("gamp-net").codebook.shape == (128, 64)
    run([])
    assert "256x64" in capsys.readouterr().out


def test_a_directory_of_that_name_is_meant_by_its_path(namesake):
    assert CommunicationLayer.load("./256x64").codebook.shape == (64, 32)
    assert SchemeSettings(name="gamp-net", layer="./256x64").layer == Path("256x64").absolute()


@pytest.mark.parametrize("words", [["--layer", "./256x64"], ["--uplink.layer=./256x64"], ["--layer", "256x64/"]])
def test_the_command_line_takes_the_directory_by_its_path(namesake, capsys, words):
    cost = ["cost", "--parameters", "2000", "--uplink", "gamp-net", "--uplink.quantize.num-codewords", "64"]
    assert call(*cost, *words) == 0
    assert call(*cost, "--layer", "256x64") == 2
    assert "256x64 has 256 codewords, but 64 are asked for" in capsys.readouterr().err


@pytest.mark.parametrize(("budget", "name"), [(1.6, "128x32"), (3.2, "256x64"), (5.0, "256x64"), (100, "256x128")])
def test_a_budget_has_the_longest_codewords_that_fit(budget, name):
    assert pick_layer(budget) == name


def test_longer_fragments_fit_a_smaller_budget():
    assert pick_layer(0.8, fragment_length=40) == "128x32"
    with pytest.raises(
        ConfigError, match=r"less than any layer takes with fragments of 20 parameters; .* at least 1.6"
    ):
        pick_layer(0.8)


def test_a_link_takes_the_layer_of_its_sizes():
    settings = SchemeSettings(name="gamp-net", codeword_length=32, quantize={"num_codewords": 64})
    assert tuple(aircomp.make_scheme(settings).codebook.shape) == (64, 32)


def test_sizes_without_a_layer_are_refused_by_those_that_have_one():
    with pytest.raises(ConfigError, match=r"no layer for 100 codewords of 64 channel uses; take .*128x64, 256x64"):
        layer_for(100, 64)
    settings = SchemeSettings(name="gamp-net", layer=Path("64x32"))
    fits = r"has 64 codewords, but 128 are asked for; .*\(128x32, 128x64\), or set uplink.quantize.num_codewords = 64 "
    with pytest.raises(ConfigError, match=fits):
        aircomp.make_scheme(settings)
    assert len(aircomp.make_scheme(settings.changed(**{"quantize.num_codewords": 64})).codebook) == 64


def test_the_command_lists_them_and_picks_one(capsys, tmp_path):
    run(["--out", str(tmp_path / "out")])
    rows = json.loads((tmp_path / "out" / "result.json").read_text())["rows"]
    assert [row["layer"] for row in rows] == ["paper", "cell", *NAMES]
    assert all(row["count_accuracy_10db"] > row["count_accuracy_0db"] for row in rows)
    said = capsys.readouterr().out
    assert "256x128" in said
    assert "the schemes blind-net, joint-net, learned-analog bring theirs and need no --layer" in said
    run(["--uses-per-parameter", "1.6"])
    assert "128x32" in capsys.readouterr().out
