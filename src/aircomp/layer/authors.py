"""A checkpoint of the authors' code as a network of form `authors`; names and shapes are those of their state dict."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.common.checks import check_type
from aircomp.decoders.net.amp_da_net import AmpDaNet
from aircomp.decoders.settings import AmpDaNetSettings
from aircomp.errors import ArtefactError, ConfigError

SCALARS = {
    "res_scale_raw": "gain",
    "inv_scale_raw": "precision",
    "damp_raw": "damping",
    "mix_raw": "cnn_gate",
    "log_tau": "temperature",
    "alpha_mix_raw": "activity_gate",
    "sigma_step_raw": "noise_gate",
    "k_step_raw": "total_step",
    "pi_step_raw": "popularity_step",
}
"""Vectors of one raw scalar a layer: their name, ours."""
WEIGHTS = {0: "weight_in", 2: "weight_mid", 4: "weight_out"}
"""Convolutions of a layer: their place, our name."""
CODEBOOK = "C_nt"


def from_authors(state_dict: Mapping[str, Tensor]) -> tuple[Float[Tensor, "codewords uses"], AmpDaNet]:
    """Return codebook and network of a state dict.

    Raises:
        ArtefactError: If names are missing or unknown, or a size does not go with the others; it says which.
    """
    check_type("state_dict", state_dict, Mapping, "a state dict of the authors' network")
    settings = _sizes(state_dict)
    net = AmpDaNet(settings)
    expected = {name: ours for name, ours in _names(settings.num_layers).items()}
    shapes = {name: tuple(net.state_dict()[ours].shape) for name, ours in expected.items()}
    _check_names(state_dict, [*shapes, CODEBOOK])
    for name, shape in shapes.items():
        if tuple(state_dict[name].shape) != shape:
            raise ArtefactError(
                f"{name} of the state dict has shape {tuple(state_dict[name].shape)}; expected {shape} for "
                f"{settings.num_layers} layers, {settings.filters} filters and kernel {settings.kernel}"
            )
    net.load_state_dict({ours: state_dict[name] for name, ours in expected.items()})
    return state_dict[CODEBOOK].float(), net.eval().requires_grad_(False)


def _sizes(state_dict: Mapping[str, Tensor]) -> AmpDaNetSettings:
    """Read the sizes off the first of each kind of tensor."""
    vector, middle = "res_scale_raw", "denoisers.0.2.weight"
    _check_names(state_dict, [vector, middle, CODEBOOK], unknown=False)
    shapes = {name: tuple(state_dict[name].shape) for name in (vector, middle, CODEBOOK)}
    for name, (rank, what) in {
        vector: (1, "[layers]"),
        middle: (3, "[filters, filters, kernel]"),
        CODEBOOK: (2, "[codewords, uses]"),
    }.items():
        if len(shapes[name]) != rank:
            raise ArtefactError(f"{name} of the state dict has shape {shapes[name]}; expected {what}")
    try:
        return AmpDaNetSettings(
            form="authors", num_layers=shapes[vector][0], filters=shapes[middle][0], kernel=shapes[middle][2]
        )
    except ConfigError as error:
        raise ArtefactError(f"the state dict is of a network that cannot be: {error}") from None


def _names(num_layers: int) -> dict[str, str]:
    """Return our name for each of theirs."""
    cnns = {f"denoisers.{t}.{i}.weight": f"cnn.{t}.{ours}" for t in range(num_layers) for i, ours in WEIGHTS.items()}
    return SCALARS | cnns


def _check_names(state_dict: Mapping[str, Tensor], expected: list[str], *, unknown: bool = True) -> None:
    missing = [name for name in expected if name not in state_dict]
    if missing:
        raise ArtefactError(
            f"the state dict lacks {_listed(missing)}; expected the authors' AMP-DA-Net with the options of its recipes"
        )
    for name in expected:
        value = state_dict[name]
        if not isinstance(value, Tensor) or not value.is_floating_point() or not torch.isfinite(value).all():
            raise ArtefactError(f"{name} of the state dict is not a tensor of finite numbers")
    others = [str(name) for name in state_dict if name not in expected] if unknown else []
    if others:
        raise ArtefactError(f"the state dict has names that the authors' AMP-DA-Net does not have: {_listed(others)}")


def _listed(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
