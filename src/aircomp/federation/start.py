"""A trained model in a file, and federated runs that begin from it.

`model.safetensors` holds the parameters and buffers of a module under the names of its `state_dict`. Every finished run
leaves one, and so does central training (`federation/central.py`).
"""

import os
from pathlib import Path

from torch import nn

from aircomp.common.tensors import expect_tensor, read_tensors, write_tensors
from aircomp.errors import ArtefactError

MODEL_FILE = "model.safetensors"


def save_model(directory: Path, module: nn.Module) -> None:
    """Write a module's parameters and buffers beside the run that trained it."""
    tensors = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
    write_tensors(directory / MODEL_FILE, tensors)


def load_start(module: nn.Module, start: Path) -> None:
    """Set a module's parameters and buffers to those of a finished run, or of a safetensors file.

    Args:
        module: Gets the values.
        start: A run directory that holds `model.safetensors`, or such a file.

    Raises:
        ArtefactError: If the file is missing, damaged, or belongs to another model; the module is then unchanged.
    """
    path = start / MODEL_FILE if os.path.isdir(start) else start
    if os.path.isdir(start) and not os.path.lexists(path):
        raise ArtefactError(f"start = {start} holds no {MODEL_FILE}; finish that run with --resume, or give another")
    given, _ = read_tensors(path)
    expected = module.state_dict()
    _check_names(path, set(given), set(expected))
    trained = {name for name, p in module.named_parameters() if p.requires_grad}
    for name, tensor in expected.items():
        remedy = "give a start of the same model"
        expect_tensor(path, given, name, tensor.dtype, tensor.shape, remedy, finite=name in trained)
    module.load_state_dict(given)


def _check_names(path: Path, given: set[str], expected: set[str]) -> None:
    missing, foreign = sorted(expected - given), sorted(given - expected)
    if missing or foreign:
        what = f"lacks {missing[0]}" if missing else f"holds {foreign[0]}, which the model does not have"
        raise ArtefactError(
            f"the start {path} does not fit the model: it {what} "
            f"({len(missing)} tensors missing, {len(foreign)} foreign); give a start of the same model"
        )
