"""A user's own parts: checked when they come in, copied where a run would change them, named in what it leaves behind."""

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from aircomp.common import artefact
from aircomp.common import rng as rngs
from aircomp.common.checks import check_callable, check_methods, describe
from aircomp.common.settings import Settings
from aircomp.data.images import ImageData
from aircomp.device.update import FlatModel
from aircomp.errors import ConfigError

PROBE_SAMPLES = 64
"""Training images that a model of the user's own is tried on before the run."""
FIXED = "fixed.safetensors"
"""File of a checkpoint with what training does not move: frozen parameters, counters."""


class OwnParts(Settings):
    """The parts that came from Python as objects, by the name of their class or function; empty where none did.

    A run is resumed with the same ones only, and no command line can repeat it.
    """

    model: str = ""
    layout: str = ""
    """Hash of the model's parameter and buffer names, shapes and types, and of which are sent."""
    dataset: str = ""
    samples: str = ""
    """Hash of the dataset's images and labels."""
    uplink: str = ""
    decoder: str = ""
    channel: str = ""
    aggregator: str = ""
    before: str = ""
    after: str = ""

    @property
    def names(self) -> dict[str, str]:
        """Return the parts that there are, without the hashes."""
        return {name: getattr(self, name) for name in PARTS if getattr(self, name)}


PARTS = tuple(name for name in OwnParts.model_fields if name not in ("layout", "samples"))
"""What a user may bring along: the keywords of `simulate`."""


def part_name(part: Any) -> str:
    """Return the full name of a function, or of an object's class; a dataset in memory has a name of its own.

    >>> part_name(nn.Linear(1, 1)), part_name(F.relu), part_name(partial(F.relu, inplace=True))
    ('torch.nn.modules.linear.Linear', 'torch.nn.functional.relu', 'partial of torch.nn.functional.relu')
    """
    if isinstance(part, partial):
        return f"partial of {part_name(part.func)}"
    if isinstance(part, ImageData):
        return part.variant
    if isinstance(part, tuple) and part:  # a dataset to train on and one to test with
        return part_name(part[0])
    named: Any = part if hasattr(part, "__qualname__") else type(part)
    return f"{getattr(named, '__module__', None) or 'builtins'}.{named.__qualname__}"


def check_parts(own: dict[str, Any]) -> None:
    """Refuse parts that cannot be what their keyword says, and parts that exclude each other.

    Args:
        own: The parts by keyword of `simulate`.

    Raises:
        ConfigError: Naming the part.
    """
    methods = {"uplink": ("broadcast", "encode", "decode", "diagnose")}
    methods |= {"decoder": ("decode",), "channel": ("sound", "carry")}
    forms = {"aggregator": "of (counts, codewords)", "before": "of an update", "after": "of the aggregate"}
    for name, part in own.items():
        if name in methods:
            check_methods(name, part, *methods[name])
        elif name in forms:
            check_callable(name, part, forms[name])
        elif name == "dataset" and not (isinstance(part, ImageData) or (isinstance(part, tuple) and len(part) == 2)):
            raise ConfigError(
                f"dataset is {describe(part)}; expected an ImageData, or a pair (train, test) of datasets"
            )
    for attribute in ("name", "offers", "uses_radio", "estimates_num_active", "side_information"):
        if "uplink" in own and not hasattr(own["uplink"], attribute):
            raise ConfigError(
                f"uplink is {describe(own['uplink'])} without {attribute!r}; let its class inherit "
                "aircomp.uplinks.base.Scheme and say its name and what it offers"
            )
    if "uplink" in own and "decoder" in own:
        raise ConfigError("decoder and an uplink of your own were given; expected one of them: the uplink has its own")


def copy_model(model: Any) -> nn.Module:
    """Copy a user's own model for a run; the caller's object stays as it is: values, mode, device.

    Any: whatever the user passed.

    Raises:
        ConfigError: If it cannot be trained, saying why.
    """
    _check_module(model)
    try:
        return copy.deepcopy(model)
    except Exception as error:  # an edge: copying runs the user's code
        raise ConfigError(f"the model {part_name(model)} cannot be copied ({_line(error)})") from error


def _check_module(model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model is {describe(model)}; expected a torch.nn.Module that maps images to logits")
    parameters = dict(model.named_parameters())
    for name, tensor in [*parameters.items(), *model.named_buffers()]:
        if is_lazy(tensor):
            raise ConfigError(f"the model's {name} has no shape yet; run one batch through the model before the run")
        if tensor.is_meta:
            raise ConfigError(f"the model's {name} is on the meta device and has no values; load the weights first")
    trainable = {name: p for name, p in parameters.items() if p.requires_grad}
    if not any(p.numel() for p in trainable.values()):
        raise ConfigError(
            f"the model has {len(parameters)} parameters, none to train; expected some that requires_grad"
        )
    places: dict[int, str] = {}
    for name, p in trainable.items():
        if p.dtype != torch.float32:
            raise ConfigError(f"the model's {name} is {p.dtype}; expected torch.float32, which model.float() makes it")
        if not torch.isfinite(p).all():
            raise ConfigError(f"the model's {name} holds values that are not finite; expected numbers to start from")
        other = places.setdefault(p.data_ptr(), name)
        if p.numel() and other != name:
            raise ConfigError(
                f"the model's {other} and {name} share their memory without being one parameter; assign one to the other"
            )


def idle_parameters(module: nn.Module, data: ImageData, *, seed: int, device: str) -> tuple[str, ...]:
    """Try a copy on one batch, and return the names of the trainable parameters that no gradient reached.

    In training mode and out of it: a layer that is dropped at random in the one has its gradient in the other.

    Raises:
        ConfigError: If the model fails on the batch, or does not return logits.
    """
    probe = copy.deepcopy(module)
    images = data.inputs(data.train_images[:PROBE_SAMPLES], module).to(device)
    labels = data.train_labels[:PROBE_SAMPLES].to(device)
    with rngs.global_state(seed, "probe", device=device), torch.backends.cudnn.flags(enabled=False):
        for training in (True, False):
            with _explained(f"a batch of images {tuple(images.shape)}"):
                logits = probe.train(training)(images)
            _check_logits(logits, len(labels), data.num_classes)
            with _explained("the loss of a batch"):
                F.cross_entropy(logits, labels).backward()
    return tuple(name for name, p in probe.named_parameters() if p.requires_grad and p.grad is None)


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # an edge: the user's code
        raise ConfigError(f"the model fails on {what} ({_line(error)}); try it on the dataset alone") from error


def _check_logits(logits: Any, batch: int, num_classes: int) -> None:
    given = f"{logits.dtype} {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
    expected = f"expected logits [{batch}, {num_classes}], one row an image and one column a class"
    if not isinstance(logits, Tensor) or not logits.is_floating_point() or logits.ndim != 2 or len(logits) != batch:
        raise ConfigError(f"the model returns {given} for {batch} images; {expected}")
    if logits.shape[1] < num_classes:
        raise ConfigError(f"the model returns {given} for a dataset of {num_classes} classes; {expected}")
    if not logits.requires_grad:
        raise ConfigError("no trainable parameter of the model reaches its logits; expected at least one")


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def layout_hash(model: FlatModel) -> str:
    """Return a short hash of what the model consists of and which of it is sent; the values do not count."""
    tensors = [*model.module.named_parameters(), *model.module.named_buffers()]
    return artefact.config_hash([[name, list(t.shape), str(t.dtype), name in model.layer_names] for name, t in tensors])


def save_fixed(checkpoint: Path, model: FlatModel) -> None:
    """Write what training does not move, once, at the start of a run."""
    if fixed := model.fixed():
        artefact.write_tensors(checkpoint / FIXED, {name: tensor.clone() for name, tensor in fixed.items()})


def has_fixed(checkpoint: Path) -> bool:
    """Return whether it was written; older versions wrote it for a user's own model only."""
    return os.path.lexists(checkpoint / FIXED)


@torch.no_grad()
def load_fixed(checkpoint: Path, model: FlatModel) -> None:
    """Give a resumed run the frozen values that it began with, wherever the module's own come from."""
    if not (fixed := model.fixed()):
        return
    path = checkpoint / FIXED
    saved, _ = artefact.read_tensors(path)
    for name, tensor in fixed.items():
        remedy = "start anew with --overwrite"
        tensor.copy_(artefact.expect_tensor(path, saved, name, tensor.dtype, tensor.shape, remedy, finite=False))
