"""Checks of what callers pass to public functions: one sentence each, with the argument, what was given, what is expected.

They run at the public entry, not inside loops.
"""

import math
import sys
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

from aircomp.errors import ConfigError, unknown_name


def describe(value: Any) -> str:
    """Say in a few words what was given.

    >>> describe(torch.zeros(2, 3)), describe("x"), describe([1] * 100)
    ('torch.float32 [2, 3]', "the str 'x'", 'the list [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, …')
    """
    torch = sys.modules.get("torch")  # without it there is no tensor
    if torch is not None and isinstance(value, torch.Tensor):
        layout = "" if value.layout is torch.strided else f" of {value.layout}"
        return f"{value.dtype} {list(value.shape)}{layout}{'' if value.device.type == 'cpu' else f' on {value.device}'}"
    if value is None or isinstance(value, bool | int | float):
        text = repr(value)
    elif isinstance(value, type):
        text = f"the class {value.__name__}"
    else:
        try:
            text = f"the {type(value).__name__} {' '.join(repr(value).split())}"
        except Exception:  # a user's own repr, which is not what the sentence is about
            text = f"the {type(value).__name__}"
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


def check_name(what: str, value: Any) -> None:
    """Refuse what cannot name a row of a table or a file: nothing, or signs that cannot be shown.

    Raises:
        ConfigError: Saying what it names.
    """
    if not isinstance(value, str) or not value.isprintable() or not value.strip():
        raise ConfigError(f"{what} is {describe(value)}; expected a name of printable characters")


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
