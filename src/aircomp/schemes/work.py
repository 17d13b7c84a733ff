"""How much arithmetic a computation takes, counted while it runs.

A product of matrices is two operations for each pair of numbers that it multiplies. Other arithmetic is one operation for
each number that comes out of it (a sum: that goes in), be it an addition or an exponential. A complex number counts as two,
and a product of complex matrices as four real ones. Copies, look-ups and random numbers are free.
"""

from collections.abc import Callable, Sequence
from functools import cache
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
LEFT_FACTOR = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}
"""Where usual products of matrices have their left factor; PyTorch's own formulas say the same, and take longer."""
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

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep PyTorch from loading its compiler, which nothing here uses, for every operator anew."""
        return False

    def __torch_dispatch__(  # Any: PyTorch's own signature
        self, func: Any, types: Sequence[Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if (operations := _operations_of(func)) is not None:
            self.total += operations(func, args, kwargs, out)
        return out


Operations = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], float]
"""Returns the operations of an operator, from the operator, what goes in and what comes out."""


@cache  # a decoder calls a few operators many thousand times
def _operations_of(func: Any) -> Operations | None:
    """Return how the operations of an operator are counted; None: it is free."""
    packet = func.overloadpacket
    name = packet.__name__
    if name in LEFT_FACTOR:
        return _product
    if packet in flop_registry:
        return _registered
    if name.rstrip("_") in FREE:
        return None
    if torch.Tag.pointwise in func.tags:
        return _of_output
    return _of_input if torch.Tag.reduction in func.tags or name in SORTED else None


def _product(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> float:
    left = args[LEFT_FACTOR[func.overloadpacket.__name__]]
    return 2.0 * out.numel() * left.shape[-1] * (4 if out.is_complex() else 1)


def _registered(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> float:
    plain = flop_registry[func.overloadpacket](*args, **kwargs, out_val=out)
    return plain * (4 if isinstance(out, Tensor) and out.is_complex() else 1)


def _of_output(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> float:
    return _size(out) if isinstance(out, Tensor) else 0.0


def _of_input(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> float:
    return _size(args[0]) if args and isinstance(args[0], Tensor) else 0.0


def _size(tensor: Tensor) -> float:
    return float(tensor.numel() * (2 if tensor.is_complex() else 1))
