"""The files of a trained joint code: what is saved comes back, what is foreign or damaged is refused."""

import json

import pytest
import torch

from aircomp.common.tensors import read_tensors
from aircomp.encode.settings import JointCodeSettings
from aircomp.errors import ArtefactError
from aircomp.layer.blind_net import BlindLayer
from aircomp.layer.files import write_layer
from aircomp.layer.joint_code import JointLayer, untrained


@pytest.fixture
def saved(tmp_path):
    JointLayer(untrained(JointCodeSettings(width=3), 1), training={"epochs": 1}).save(tmp_path)
    return tmp_path


def test_a_saved_code_comes_back(saved):
    layer, expected = JointLayer.load(saved), untrained(JointCodeSettings(width=3), 1).state_dict()
    assert {name: weight.tolist() for name, weight in layer.code.state_dict().items()} == {
        name: weight.tolist() for name, weight in expected.items()
    }
    assert not any(parameter.requires_grad for parameter in layer.code.parameters())
    assert layer.training == {"epochs": 1}


def test_the_bundled_code_is_trained_has_kilobytes_and_says_how_it_was_made():
    layer = JointLayer.load()
    weights = layer.code.state_dict()
    assert 100 < sum(weight.numel() for weight in weights.values()) < 10_000
    assert weights["network.4.weight"].abs().max() > 0.1
    assert layer.training["rounds"]["test"]


def test_other_trained_things_are_refused(saved):
    with pytest.raises(ArtefactError, match="does not describe a trained blind receiver"):
        BlindLayer.load(saved)
    description = json.loads((saved / "layer.json").read_text())
    del description["config"]["joint"]
    (saved / "layer.json").write_text(json.dumps(description))
    with pytest.raises(ArtefactError, match="does not describe a joint code; give a directory made by aircomp"):
        JointLayer.load(saved)


@pytest.mark.parametrize(
    ("changed", "config", "sentence"),
    [
        ({"network.0.weight": torch.zeros(3, 8)}, {"width": 3}, "expected float32"),
        ({"network.0.weight": torch.full((3, 7), torch.nan)}, {"width": 3}, "not finite"),
        ({"more": torch.zeros(1)}, {"width": 3}, "holds more than the network"),
        ({}, {"width": 4}, "expected float32"),
        ({}, {"width": -1}, r"config\.joint"),
        ({}, {"depth": 3}, r"config\.joint"),
    ],
)
def test_files_that_hold_something_else_are_refused(saved, changed, config, sentence):
    weights, _ = read_tensors(saved / "layer.safetensors")
    write_layer(saved, weights | changed, {"joint": config}, {})
    with pytest.raises(ArtefactError, match=sentence):
        JointLayer.load(saved)
