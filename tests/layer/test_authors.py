"""A checkpoint of the authors' code becomes a layer, or is refused in one sentence."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from aircomp.errors import ArtefactError
from aircomp.layer.communication import CommunicationLayer

REFERENCE = Path(__file__).parents[1] / "decoders" / "reference"


@pytest.fixture(scope="module")
def state():
    codebook = load_file(REFERENCE / "inputs.safetensors")["codebook"]
    return load_file(REFERENCE / "parameters.safetensors") | {"C_nt": codebook}


def test_sizes_come_from_the_state_dict(state):
    layer = CommunicationLayer.from_authors(state)
    settings = layer.net.settings
    assert (layer.form, settings.num_layers, settings.filters, settings.kernel) == ("authors", 10, 32, 3)
    assert torch.equal(layer.codebook, state["C_nt"])
    assert sum(p.numel() for p in layer.net.parameters()) == 37_530


def test_it_is_saved_and_loaded_with_its_form(state, tmp_path):
    layer = CommunicationLayer.from_authors(state)
    layer.save(tmp_path)
    loaded = CommunicationLayer.load(tmp_path)
    assert loaded.form == "authors"
    received = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(loaded.decode(received, torch.ones(128)).mean, layer.decode(received, torch.ones(128)).mean)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: {}, r"lacks res_scale_raw, denoisers.0.2.weight, C_nt"),
        (
            lambda s: {k: v for k, v in s.items() if not k.startswith("denoisers.3")},
            r"lacks denoisers.3.0.weight, denoisers.3.2",
        ),
        (lambda s: s | {"extra": torch.ones(1)}, "names that the authors' AMP-DA-Net does not have: extra"),
        (
            lambda s: s | {"log_tau": torch.ones(4)},
            r"log_tau of the state dict has shape \(4,\); expected \(10,\) for 10 layers",
        ),
        (
            lambda s: s | {"damp_raw": torch.full((10,), float("nan"))},
            "damp_raw of the state dict is not a tensor of finite numbers",
        ),
        (lambda s: s | {"denoisers.0.2.weight": torch.ones(32, 32, 2)}, "expected an odd number"),
        (
            lambda s: s | {"C_nt": torch.ones(3)},
            r"C_nt of the state dict has shape \(3,\); expected \[codewords, uses\]",
        ),
        (lambda s: s | {"mix_raw": "ten"}, "mix_raw of the state dict is not a tensor"),
    ],
)
def test_foreign_state_dicts_are_named(state, change, message):
    with pytest.raises(ArtefactError, match=message):
        CommunicationLayer.from_authors(change(dict(state)))
