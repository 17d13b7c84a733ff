"""How much arithmetic a computation takes, counted while it runs.

A product of matrices is two operations for each pair of numbers that it multiplies. Other arithmetic is one operation for
each number that comes out of it (a sum: that goes in), be it an addition or an exponential. A complex number counts as two,
and a product of complex matrices as four real ones. Copies, look-ups and random numbers are free.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

SORTED = {
    "sort",
    "topk",
    "cumsum",
    "_softmax",
    "_log_softmax",
    "logsumexp",
    "max",
    "min",
    "linalg_vector_norm",
    "_cdist_forward",
}
"""Operators that PyTorch calls neither element-wise nor sums, though they do arithmetic on all that goes in."""
FREE = {"clone", "where", "real", "imag", "conj", "_conj", "view_as_real", "view_as_complex", "complex"}
"""Operators that PyTorch calls element-wise, though they compute nothing."""


def count_operations(run: Callable[[], object]) -> float:
    """Return the arithmetic operations of a call."""
    with _Counter() as counter:
        run()
    return counter.total


class _Counter(TorchDispatchMode):
    """Adds up the operations of every operator that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0.0

    def __torch_dispatch__(  # Any: PyTorch's own signature
        self, func: Any, types: Sequence[Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self.total += _operations(func, args, kwargs or {}, out)
        return out


def _operations(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> float:
    name = func.overloadpacket.__name__
    if func.overloadpacket in flop_registry:
        plain = flop_registry[func.overloadpacket](*args, **kwargs, out_val=out)
        return plain * (4 if isinstance(out, Tensor) and out.is_complex() else 1)
    if name.rstrip("_") in FREE:
        return 0.0
    if torch.Tag.pointwise in func.tags and isinstance(out, Tensor):
        return _size(out)
    if torch.Tag.reduction in func.tags or name in SORTED:
        return _size(args[0]) if args and isinstance(args[0], Tensor) else 0.0
    return 0.0


def _size(tensor: Tensor) -> float:
    return float(tensor.numel() * (2 if tensor.is_complex() else 1))
