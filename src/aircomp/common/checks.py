"""Checks of what callers pass to public functions: one sentence each, with the argument, what was given, what is expected.

They run at the public entry, not inside loops.
"""

import math
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from aircomp.errors import ConfigError, ShapeError, unknown_name

Kind = Literal["real", "floating"]
"""Which numbers a tensor holds: any real ones, or floating-point ones."""


def describe(value: Any) -> str:
    """Say in a few words what was given.

    >>> describe(torch.zeros(2, 3)), describe("x"), describe([1] * 100)
    ('torch.float32 [2, 3]', "the str 'x'", 'the list [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, …')
    """
    if isinstance(value, Tensor):
        return f"{value.dtype} {list(value.shape)}{'' if value.device.type == 'cpu' else f' on {value.device}'}"
    if value is None or isinstance(value, bool | int | float):
        text = repr(value)
    elif isinstance(value, type):
        text = f"the class {value.__name__}"
    else:
        text = f"the {type(value).__name__} {' '.join(repr(value).split())}"
    return text if len(text) <= 50 else f"{text[:49]}…"


def part_name(part: Any) -> str:
    """Return the full name of a function, or of an object's class.

    >>> part_name(torch.nn.Linear(1, 1)), part_name(torch.relu), part_name(partial(torch.sum, dim=0))
    ('torch.nn.modules.linear.Linear', 'torch.relu', 'partial of torch.sum')
    """
    if isinstance(part, partial):
        return f"partial of {part_name(part.func)}"
    named: Any = part if hasattr(part, "__qualname__") else type(part)
    name = f"{getattr(named, '__module__', None) or 'builtins'}.{named.__qualname__}"
    return name.replace("_VariableFunctionsClass.", "")


def all_finite(values: Tensor) -> bool:
    """Return whether all real numbers of a tensor are finite; one pass and no mask, unlike `torch.isfinite`."""
    return values.numel() == 0 or all(math.isfinite(end) for end in torch.stack(torch.aminmax(values)).tolist())


def check_number(
    name: str,
    value: Any,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    integer: bool = False,
    open_low: bool = False,
) -> None:
    """Refuse what is not a number in [low, high], or in (low, high] with `open_low`; NaN never is.

    Raises:
        ConfigError: Naming the argument.
    """
    kinds = int if integer else int | float
    inside = isinstance(value, kinds) and not isinstance(value, bool) and low <= value <= high  # NaN fails
    if inside and not (open_low and value == low):
        return
    wanted = "an integer" if integer else "a number"
    if low > -math.inf:
        wanted += f" {'above' if open_low else 'of at least'} {low:g}"
    if high < math.inf:
        wanted += f"{' and' if low > -math.inf else ' of'} at most {high:g}"
    raise ConfigError(f"{name} is {describe(value)}; expected {wanted}")


def check_choice(name: str, value: Any, known: Collection[str]) -> None:
    """Refuse what is not one of the known names.

    Raises:
        ConfigError: Naming the argument and the nearest names.
    """
    if not isinstance(value, str):
        raise ConfigError(f"{name} is {describe(value)}; expected one of {', '.join(known)}")
    if value not in known:
        raise unknown_name(name, value, known)


def check_type(name: str, value: Any, kind: type | tuple[type, ...], wanted: str) -> None:
    """Refuse an object of another type.

    Raises:
        ConfigError: Naming the argument.
    """
    if not isinstance(value, kind):
        raise ConfigError(f"{name} is {describe(value)}; expected {wanted}")


def check_numbers(name: str, values: Any, *, low: float = -math.inf, high: float = math.inf) -> None:
    """Refuse what is not a list of numbers in [low, high] with at least one of them.

    Raises:
        ConfigError: Naming the argument.
    """
    if not isinstance(values, list | tuple) or not values:
        raise ConfigError(f"{name} is {describe(values)}; expected at least one number")
    for value in values:
        check_number(name, value, low=low, high=high)


def check_path(name: str, value: Any) -> None:
    """Refuse what cannot be a path.

    Raises:
        ConfigError: Naming the argument.
    """
    if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
        raise ConfigError(f"{name} is {describe(value)}; expected a path")


def check_device(name: str, value: Any) -> None:
    """Refuse a place that this machine or this build of torch does not have.

    Raises:
        ConfigError: Naming the argument.
    """
    try:
        place = torch.device(value)
    except (RuntimeError, TypeError, ValueError):
        raise ConfigError(f"{name} is {describe(value)}; expected cpu or cuda") from None
    if place.type not in ("cpu", "cuda") or (place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count()):
        raise ConfigError(
            f"{name} = {str(place)!r}, but this machine or this build of torch has none; use --device cpu"
        )


def check_generator(name: str, value: Any) -> None:
    """Refuse what is not a source of randomness.

    Raises:
        ConfigError: Naming the argument.
    """
    check_type(name, value, torch.Generator, "a torch.Generator, such as torch.Generator().manual_seed(0)")


def check_methods(name: str, part: Any, *methods: str) -> None:
    """Refuse an object that lacks a method, or a class in place of its object.

    Raises:
        ConfigError: Naming the argument and the method.
    """
    if isinstance(part, type):
        raise ConfigError(f"{name} is {describe(part)}; expected an object of it: {part.__name__}(…)")
    missing = [method for method in methods if not callable(getattr(part, method, None))]
    if missing:
        raise ConfigError(f"{name} is {describe(part)}; expected an object with the method {missing[0]}")


def check_callable(name: str, part: Any, form: str) -> None:
    """Refuse what cannot be called.

    Raises:
        ConfigError: Naming the argument and what it is called with.
    """
    if not callable(part):
        raise ConfigError(f"{name} is {describe(part)}; expected a function {form}")


def check_tensor(name: str, value: Any, axes: str, kind: Kind = "real") -> None:
    """Refuse what is not a tensor with so many axes, of the right kind of numbers, all finite.

    Args:
        name: Of the argument.
        value: What was given.
        axes: Their names, separated by spaces.
        kind: Which numbers.

    Raises:
        ShapeError: Naming the argument.
    """
    wanted = f"expected a tensor of finite {KINDS[kind]} [{', '.join(axes.split())}]"
    if not isinstance(value, Tensor) or value.ndim != len(axes.split()) or not _is_kind(value, kind):
        raise ShapeError(f"{name} is {describe(value)}; {wanted}")
    if value.is_floating_point() and not all_finite(value):
        raise ShapeError(f"{name} is {describe(value)} with values that are not finite; {wanted}")


KINDS = {"real": "real numbers", "floating": "floating-point numbers"}


def _is_kind(tensor: Tensor, kind: Kind) -> bool:
    if tensor.is_complex() or tensor.dtype == torch.bool or tensor.is_meta:
        return False
    return kind == "real" or tensor.is_floating_point()
