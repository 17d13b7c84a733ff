"""Where objects of the user's own are called: what they raise is named, what they return is checked.

    found = ask(scheme.broadcast, base_update, memory, rng=rng)    # raises: one sentence that names the scheme
    check_returned(scheme.broadcast, found, Broadcast, {"params": len(base_update)})

What a result must be is read from the annotations of its class: which fields may be None, which numbers a tensor holds, and
its axes by name. Objects of this package are called as they are, because tests hold them to the same.
"""

import contextlib
import dataclasses
import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, partial
from numbers import Real
from types import MethodType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from aircomp.common.checks import describe, part_name
from aircomp.common.tensors import has_numbers
from aircomp.errors import AirCompError, ConfigError, ShapeError, is_lack_of_memory

log = logging.getLogger(__name__)
T = TypeVar("T")

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Of each width in bytes."""


def is_own(part: Any) -> bool:
    """Tell whether a function, a method's object or an object is the user's: it comes from another package than this one."""
    part = _unbound(part)
    part = part.__self__ if isinstance(part, MethodType) else part
    named = part if hasattr(part, "__qualname__") else type(part)
    return (getattr(named, "__module__", None) or "").split(".")[0] != "aircomp"


def name_of(function: Any) -> str:
    """Return what to call a function, or a method of an object, in a sentence.

    >>> name_of(torch.nn.Linear(1, 1).forward), name_of(torch.relu)
    ('torch.nn.modules.linear.Linear.forward', 'torch.relu')
    """
    part = _unbound(function)
    return f"{part_name(part.__self__)}.{part.__name__}" if isinstance(part, MethodType) else part_name(part)


def _unbound(part: Any) -> Any:
    while isinstance(part, partial):
        part = part.func
    return part


def ask(function: Callable[..., T], *given: Any, **named: Any) -> T:
    """Call a function or a method, which may be of an object of the user's own.

    Raises:
        AirCompError: If the user's object raises, naming it; the traceback is logged where AIRCOMP_LOG=debug.
        ConfigError: If it wrote into what it was given.
    """
    if not is_own(function):
        return function(*given, **named)
    with blaming(function), leaving(function, given, named):
        return function(*given, **named)


@contextlib.contextmanager
def leaving(part: Any, *given: Any) -> Iterator[None]:
    """See that a function or an object of the user's own writes into nothing that it is given within the block.

    Raises:
        ConfigError: If it does.
    """
    before = [(tensor, _mark(tensor)) for tensor in _tensors(given)] if is_own(part) else []
    yield
    for tensor, mark in before:
        if _mark(tensor) != mark:
            raise ConfigError(
                f"{name_of(part)} wrote into the {describe(tensor)} that it was given; expected it to leave that as it "
                "is, so let it change a clone"
            )


@contextlib.contextmanager
def blaming(part: Any) -> Iterator[None]:
    """Name a function or an object of the user's own in what it raises within the block.

    Raises:
        AirCompError: In place of what it raised; what says itself what is wrong, and a lack of memory, go through.
    """
    try:
        yield
    except AirCompError:
        raise
    except (Exception, SystemExit) as error:
        if not is_own(part) or (isinstance(error, Exception) and is_lack_of_memory(error)):
            raise
        log.debug("%s failed", name_of(part), exc_info=True)
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise AirCompError(f"{name_of(part)} raised {reason}") from error


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in a value, in the fields of dataclasses and in containers."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from _tensors(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _tensors(each)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _tensors(getattr(value, field.name))


def _mark(tensor: Tensor) -> tuple[int, int]:
    """Return what changes when a tensor is written to: torch counts its own writes, and bits tell those through NumPy."""
    version = 0 if tensor.is_inference() else tensor._version
    if not has_numbers(tensor) or not tensor.numel():
        return version, 0
    plain = torch.view_as_real(tensor.detach().resolve_conj()) if tensor.is_complex() else tensor.detach()
    bits = plain.contiguous().view(INTEGERS[plain.element_size()])
    return version, int(bits.sum(dtype=torch.int64))


# ── what comes back ──────────────────────────────────────────────────────────────────────────────────────────────────


def check_returned(
    function: Any,
    value: Any,
    kind: Any,
    sizes: Mapping[str, int] | None = None,
    non_negative: Collection[str] = (),
) -> None:
    """Check what a function or method of the user's own returned.

    Args:
        function: What returned it.
        value: What it returned.
        kind: A class whose fields are annotated, or an annotation.
        sizes: Of axes, by the names that annotations give them; those that are not here must agree with each other.
        non_negative: Fields whose numbers are not below zero.

    Raises:
        ConfigError: If it is something else, naming the function and the field.
        ShapeError: If a tensor in it has another shape, other numbers, or numbers that are not finite.
    """
    if is_own(function):
        _check(f"what {name_of(function)} returned", value, kind, dict(sizes or {}), non_negative)


def _check(what: str, value: Any, kind: Any, sizes: dict[str, int], non_negative: Collection[str]) -> None:
    alternatives = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if value is None and type(None) in alternatives:
        return
    kinds = [each for each in alternatives if each is not type(None)]
    if len(kinds) == 1 and kinds[0] is not Any:
        _check_one(what, value, kinds[0], sizes, non_negative)


def _check_one(what: str, value: Any, kind: Any, sizes: dict[str, int], non_negative: Collection[str]) -> None:
    signed = what.rsplit(".", 1)[-1] not in non_negative
    if hasattr(kind, "dim_str"):
        _check_tensor(what, value, kind, sizes, signed)
    elif kind in (int, float):
        if not _is_number(value, kind) or not (math.isfinite(value) and (signed or value >= 0)):
            wanted = "a whole number" if kind is int else "a finite number"
            raise ConfigError(f"{what} is {describe(value)}; expected {wanted}{'' if signed else ' of at least 0'}")
    elif get_origin(kind) is not None and issubclass(get_origin(kind), Mapping):
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise ConfigError(f"{what} is {describe(value)}; expected values by name")
        for name, each in value.items():
            _check(f"{what}[{name!r}]", each, get_args(kind)[1], {}, ())
    elif kind is Tensor:
        if not has_numbers(value):
            raise ShapeError(f"{what} is {describe(value)}; expected a tensor")
    elif isinstance(kind, type) and getattr(kind, "_is_protocol", False):
        _check_fields(what, value, sizes, non_negative)  # properties may compute with them
        missing = [name for name in _members(kind) if not hasattr(value, name)]
        if missing:
            raise ConfigError(f"{what} is {describe(value)}; expected an object with {missing[0]}")
    elif isinstance(kind, type):
        if not isinstance(value, kind):
            raise ConfigError(f"{what} is {describe(value)}; expected an object of {kind.__name__}")
        _check_fields(what, value, sizes, non_negative)


def _check_fields(what: str, value: Any, sizes: dict[str, int], non_negative: Collection[str]) -> None:
    for name, each in _annotations(type(value)).items() if dataclasses.is_dataclass(value) else ():
        _check(f"{what}.{name}", getattr(value, name), each, sizes, non_negative)


@cache
def _annotations(kind: type) -> dict[str, Any]:
    """Return the annotations of a dataclass's fields; those that only a type checker can read say nothing here."""
    try:
        hints = get_type_hints(kind)
    except NameError:
        hints = kind.__annotations__
    return {field.name: hints.get(field.name, Any) for field in dataclasses.fields(kind)}


def _members(protocol: type) -> list[str]:
    return [name for name in vars(protocol) if not name.startswith("_")]


def _is_number(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return False
    if kind is float:
        return isinstance(value, Real)
    return isinstance(value, int) and -(2**63) <= value < 2**63  # as whole numbers travel and are kept


def _check_tensor(what: str, value: Any, kind: Any, sizes: dict[str, int], signed: bool) -> None:
    axes = kind.dim_str.split()
    found = has_numbers(value)
    fits = found and value.ndim == len(axes) and str(value.dtype).removeprefix("torch.") in kind.dtypes
    if any(axis.startswith(("*", "#", "...")) for axis in axes):
        fits, axes = found, []
    for axis, size in zip(axes, value.shape if fits else (), strict=False):
        fits = fits and size == (int(axis) if axis.isdecimal() else sizes.setdefault(axis, size))
    if not fits:
        shape = ", ".join(f"{axis} = {sizes[axis]}" if axis in sizes else axis for axis in axes)
        raise ShapeError(f"{what} is {describe(value)}; expected {_words(kind)} [{shape}]")
    if not _all_finite(value):
        raise ShapeError(f"{what} holds values that are not finite; expected {_words(kind)}")
    if not signed and value.numel() and bool((value < 0).any()):
        raise ShapeError(f"{what} holds negative values; expected none below zero")


def _words(kind: Any) -> str:
    return f"a tensor of {kind.__name__.split('[')[0].lower()} numbers"


def _all_finite(value: Tensor) -> bool:
    return not (value.is_floating_point() or value.is_complex()) or bool(torch.isfinite(value).all())
