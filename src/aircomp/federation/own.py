"""A user's own parts: checked when they come in, copied where a run would change them, named in what it leaves behind."""

import copy
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from aircomp.common import artefact
from aircomp.common import rng as rngs
from aircomp.common.checks import check_callable, check_methods, describe, part_name
from aircomp.common.tensors import tensor_hash
from aircomp.data.images import ImageData
from aircomp.data.samples import Samples, TensorSamples, distinct_tensors, first_batch
from aircomp.device.local import Objective, moved, pair_of
from aircomp.device.update import FlatModel
from aircomp.errors import AirCompError, ConfigError, ShapeError

log = logging.getLogger(__name__)

PROBE_SAMPLES = 64
"""Training images that a model of the user's own is tried on before the run."""
PRECISIONS = (torch.float32, torch.bfloat16, torch.float16)
"""Of parameters that can be trained; all are sent as float32."""


def own_name(part: Any) -> str:
    """Return the full name of a function, or of an object's class; a dataset in memory has a name of its own."""
    if isinstance(part, ImageData):
        return part.variant
    if isinstance(part, tuple) and part:  # a dataset to train on and one to test with
        return own_name(part[0])
    return part_name(part)


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
                "aircomp.Scheme and say its name and what it offers"
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
        raise ConfigError(f"model is {describe(model)}; expected a torch.nn.Module")
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise ConfigError(
            f"the model {part_name(model)} is compiled by torch.jit, which keeps its parameters to itself; give the module "
            "that it was made of"
        )
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
        if p.dtype not in PRECISIONS:
            raise ConfigError(f"the model's {name} is {p.dtype}; expected torch.float32, which model.float() makes it")
        if not torch.isfinite(p).all():
            raise ConfigError(f"the model's {name} holds values that are not finite; expected numbers to start from")
        other = places.setdefault(p.data_ptr(), name)
        if p.numel() and other != name:
            raise ConfigError(
                f"the model's {other} and {name} share their memory without being one parameter; assign one to the other"
            )


def idle_parameters(
    module: nn.Module,
    samples: Samples,
    objective: Objective,
    *,
    seed: int,
    device: str,
    num_classes: int | None = None,
) -> tuple[str, ...]:
    """Try a copy on one batch, and return the names of the trainable parameters that no gradient reached.

    In training mode and out of it: a layer that is dropped at random in the one has its gradient in the other.

    Args:
        module: Copied.
        samples: Those of one holder.
        objective: What training makes small.
        seed: What random layers draw from.
        device: Where to try it.
        num_classes: Of a classifier, whose outputs are checked.

    Raises:
        ConfigError: If model, loss or data fail on the batch.
    """
    probe, place = copy.deepcopy(module), torch.device(device)
    with rngs.global_state(seed, "probe", device=device), torch.backends.cudnn.flags(enabled=False):
        with _explained("reading a batch", "the dataset"):
            batch = first_batch(samples, PROBE_SAMPLES)
        inputs = batch[0] if isinstance(batch, tuple | list) and batch else batch
        for training in (True, False):
            probe.train(training)
            if objective.step is None:
                _, targets = pair_of(batch)
                with _explained(f"a batch of {_described(inputs)}"):
                    outputs = probe(moved(inputs, place))
                if num_classes is not None:
                    _check_logits(outputs, len(inputs), num_classes)
                with _explained(f"its outputs {_described(outputs)}", part_name(objective.loss)):
                    loss = objective.of_outputs(outputs, moved(targets, place))
            else:
                with _explained(f"a batch of {_described(inputs)}", part_name(objective.step)):
                    loss = objective(probe, batch, place)
            if not loss.requires_grad:
                raise ConfigError("no trainable parameter of the model reaches the loss; expected at least one")
            with _explained("the gradient of a batch"):
                loss.backward()
    return tuple(name for name, p in probe.named_parameters() if p.requires_grad and p.grad is None)


def _described(values: Any) -> str:
    if isinstance(values, Tensor):
        return f"{tuple(values.shape)} of {str(values.dtype).removeprefix('torch.')}"
    return f"the class {type(values).__name__}"


def samples_hash(holders: Mapping[int, Samples], test: Samples | None) -> str:
    """Return a short hash of how many samples each holder has, and of tensors what they hold."""
    everything = [*holders.values(), *([] if test is None else [test])]
    rows = [samples.indices for samples in everything if isinstance(samples, TensorSamples)]
    sizes = torch.tensor([len(samples) for samples in everything])
    return tensor_hash(sizes, *rows, *distinct_tensors(everything))[:16]


@contextmanager
def _explained(what: str, whose: str = "the model") -> Iterator[None]:
    try:
        yield
    except ShapeError:
        raise
    except Exception as error:  # an edge: the user's code
        log.debug("%s fails on %s", whose, what, exc_info=True)
        cause = error.__cause__ if type(error) is AirCompError and error.__cause__ is not None else error
        raise ConfigError(f"{whose} fails on {what} ({_line(cause)}); try it on the dataset alone") from error


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
