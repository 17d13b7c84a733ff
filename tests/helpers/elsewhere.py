"""A GPU that is made up: tensors that say they are on it, and refuse what a GPU's tensors refuse.

    with Elsewhere():
        values = torch.ones(3).to(GPU)  # says values.device == GPU
        values + torch.ones(3)  # raises: the other one is here

Numbers stay on the CPU, so results can be compared. What a GPU does not mind is let through: an index that is here, numbers
without axes, a copy. A generator that is here cannot fill a tensor there.
"""

from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

GPU = torch.device("cuda", 0)
READ = {"tolist", "item", "numel", "size", "dim", "is_floating_point", "is_complex", "__len__", "__bool__", "__int__"}
READ |= {"__float__", "__complex__", "__index__", "__repr__", "__format__", "__contains__"}
"""What leaves a GPU as a number, and needs no tensor there."""


class There(Tensor):
    """A tensor that says it is on the GPU."""


def _there(value: Any) -> Any:
    return value.detach().as_subclass(There) if isinstance(value, Tensor) else value


def _here(value: Any) -> Any:
    return value.as_subclass(Tensor) if isinstance(value, There) else value


def _is_gpu(place: Any) -> bool:
    return isinstance(place, There) if isinstance(place, Tensor) else torch.device(place) == GPU


def _move(module: torch.nn.Module, device: Any) -> torch.nn.Module:
    """Take the place of `Module.to`; what is there is not trained."""
    for part in module.modules() if _is_gpu(device) else ():
        for held in (part._parameters, part._buffers):
            held.update({name: _there(value) for name, value in held.items()})
    return module


class Elsewhere(TorchFunctionMode):
    """Within the block, torch has that GPU."""

    def __enter__(self):
        self._patches = [patch("torch.nn.Module.to", _move), patch("torch.cuda.device_count", lambda: 1)]
        for each in self._patches:
            each.start()
        return super().__enter__()

    def __exit__(self, *raised):
        for each in self._patches:
            each.stop()
        return super().__exit__(*raised)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, attribute = func.__name__, getattr(getattr(func, "__self__", None), "__name__", "")
        kwargs, tensors = dict(kwargs or {}), [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
        gpu = any(isinstance(x, There) for x in tensors)
        with torch._C.DisableTorchFunctionSubclass():
            if name == "__get__" and attribute in ("device", "is_cuda"):
                return {"device": GPU, "is_cuda": True}[attribute] if gpu else func(*args)
            if name == "as_subclass":
                return func(*args)
            if name == "to":
                places = [x for x in (*args[1:], *kwargs.values()) if isinstance(x, Tensor | str | torch.device)]
                gpu = _is_gpu(places[0] if places else args[0])
                args, kwargs = tree_map(_on_cpu, (args, kwargs))
            elif kwargs.get("device") is not None:
                gpu, kwargs["device"] = _is_gpu(kwargs["device"]), torch.device("cpu")
            if name == "cpu" or name in READ:
                gpu = False
            elif gpu and name not in ("to", "copy_", "__get__"):
                _refuse(name, args, kwargs, tensors)
            found = func(*tree_map(_here, args), **tree_map(_here, kwargs))
            return tree_map(_there, found) if gpu else found


def _on_cpu(value: Any) -> Any:
    is_place = isinstance(value, torch.device) or (isinstance(value, str) and value.startswith("cuda"))
    return torch.device("cpu") if is_place else value


def _refuse(name: str, args: tuple, kwargs: dict, tensors: list[Tensor]) -> None:
    """Raise what a GPU would."""
    if name == "numpy" or kwargs.get("generator") is not None:
        raise RuntimeError(f"{name} works on the CPU, but the tensor is on a GPU")
    if name in ("__getitem__", "__setitem__") and isinstance(args[0], There):
        tensors = [x for x in args[2:] if isinstance(x, Tensor)]  # any index will do
    if not all(isinstance(x, There) for x in tensors if x.ndim):
        raise RuntimeError(f"{name} has tensors on the CPU and on a GPU")
