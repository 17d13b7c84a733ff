"""Communication layers as training might leave them."""

import json
from pathlib import Path

import torch

from aircomp.common.artefact import write_json
from aircomp.common.tensors import read_tensors, tensor_hash
from aircomp.decoders.net.gamp_net import GampNet
from aircomp.decoders.settings import GampNetSettings
from aircomp.encode.codebook import make_codebook
from aircomp.layer.communication import CommunicationLayer, _weights_hash
from helpers.draws import seeded

NUM_CODEWORDS, LENGTH = 16, 16


def make_layer(
    seed: int = 0, *, change: float = 0.01, snr_reference: str = "round", **settings: object
) -> CommunicationLayer:
    """Return a small layer, every parameter of it moved away from where it starts."""
    rng = seeded(seed)
    net = GampNet(GampNetSettings(**({"num_layers": 2, "filters": 4} | settings)), rng=rng)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(change * torch.randn(parameter.shape, generator=rng))
    codebook = make_codebook("two-bases", NUM_CODEWORDS, LENGTH, rng=rng)
    return CommunicationLayer(codebook, net, snr_reference=snr_reference, config={"seed": seed}, training={"epochs": 3})


def describe_anew(directory: Path) -> None:
    """Make a layer's hashes fit its tensors, as someone who changes them and means it would."""
    tensors, _ = read_tensors(directory / "layer.safetensors")
    description = json.loads((directory / "layer.json").read_text())
    weights = {name.removeprefix("decoder."): t for name, t in tensors.items() if name.startswith("decoder.")}
    description["decoder_hash"] = _weights_hash(weights)
    if "codebook" in tensors:
        description["codebook_hash"] = tensor_hash(tensors["codebook"])
    write_json(directory / "layer.json", description)
