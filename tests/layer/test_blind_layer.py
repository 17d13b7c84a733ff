"""The files of a trained blind receiver: what is saved comes back, what is foreign or damaged is refused."""

import json

import pytest
import torch

from aircomp.common.tensors import read_tensors
from aircomp.errors import ArtefactError
from aircomp.layer.analog_code import AnalogCode
from aircomp.layer.blind_net import BlindLayer, BlindNetworks
from aircomp.layer.files import write_layer


@pytest.fixture
def saved(tmp_path):
    networks = BlindNetworks.untrained(16, 8, seed=1)
    with torch.no_grad():
        networks.net.offset += 0.1
    BlindLayer(networks, training={"epochs": 1}).save(tmp_path)
    return tmp_path


def test_a_saved_receiver_comes_back(saved):
    layer = BlindLayer.load(saved)
    expected = BlindNetworks.untrained(16, 8, seed=1)
    torch.testing.assert_close(layer.codebook, expected.codebook.detach(), atol=0, rtol=0)
    assert layer.net.offset.tolist() == (expected.net.offset + 0.1).tolist()
    assert not any(parameter.requires_grad for parameter in layer.networks.parameters())
    assert layer.training == {"epochs": 1}


def test_the_bundled_receiver_has_the_papers_size_in_kilobytes_and_says_how_it_was_made():
    layer = BlindLayer.load()
    assert layer.codebook.shape == (128, 64)
    torch.testing.assert_close(layer.codebook.norm(dim=1), torch.ones(128))
    assert sum(weight.numel() for weight in layer.networks.state_dict().values()) < 10_000
    assert layer.training["rounds"]["test"]


def test_other_trained_things_are_refused(saved):
    with pytest.raises(ArtefactError, match="does not describe an analog code"):
        AnalogCode.load(saved)
    description = json.loads((saved / "layer.json").read_text())
    del description["config"]["fading"]
    (saved / "layer.json").write_text(json.dumps(description))
    with pytest.raises(
        ArtefactError, match="does not describe a trained blind receiver; give a directory made by aircomp"
    ):
        BlindLayer.load(saved)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"rows": torch.zeros(16, 8)}, "holds no codewords"),
        ({"rows": torch.ones(16, 7)}, "holds no codewords"),
        ({"rows": torch.full((16, 8), torch.nan)}, "not finite"),
        ({"more": torch.zeros(1)}, "holds no codewords"),
        ({"net.offset": torch.zeros(2, 4)}, "expected float32"),
    ],
)
def test_files_that_hold_something_else_are_refused(saved, changed, sentence):
    weights, _ = read_tensors(saved / "layer.safetensors")
    write_layer(saved, weights | changed, {"fading": {}}, {})
    with pytest.raises(ArtefactError, match=sentence):
        BlindLayer.load(saved)
