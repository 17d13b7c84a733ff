"""Every error that a user can cause, and how its sentence is built.

A message says what was given, what was expected and what to do, in one sentence.
"""

import difflib
from collections.abc import Iterable
from typing import Any

LONGEST_MESSAGE = 1000  # characters


class AirCompError(Exception):
    """Root of all errors raised on purpose by aircomp. They travel between processes, whatever their `__init__` takes."""

    def __str__(self) -> str:
        return one_line(super().__str__())

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[AirCompError], args: tuple[Any, ...], attributes: dict[str, Any]) -> AirCompError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class ConfigError(AirCompError, ValueError):
    """A setting, a name or an argument that cannot be used."""


class ShapeError(AirCompError, ValueError):
    """A tensor of the wrong shape, type or content."""


class ArtefactError(AirCompError, OSError):
    """A file or directory that is missing, damaged, foreign or in use."""


class DecodeDiverged(AirCompError, ArithmeticError):
    """A decoder whose state stopped being finite."""


class PowerMismatch(AirCompError):
    """Devices that spent another mean power than the one that the noise was set by."""


class TrainingDiverged(AirCompError, ArithmeticError):
    """Training that produced numbers that are not finite."""


def one_line(text: str) -> str:
    """Return a message as one line of bearable length, whatever values it quotes: tensors, files, whole arguments."""
    line = " ".join(text.split())
    half = LONGEST_MESSAGE // 2
    return line if len(line) <= LONGEST_MESSAGE else f"{line[:half]} … {line[-half:]}"


def is_lack_of_memory(error: Exception) -> bool:
    """Tell whether Python or torch, which says so in words alone, could not allocate what was asked for."""
    return isinstance(error, MemoryError) or "allocate memory" in str(error) or "out of memory" in str(error)


def nearest_names(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names most like `name`, best first."""
    return difflib.get_close_matches(name, list(known), n=3, cutoff=0.4)


def unknown_name(what: str, name: str, known: Iterable[str]) -> ConfigError:
    """Build the error for a name nobody knows: the nearest ones, or all of them.

    >>> str(unknown_name("dataset", "digit", ["digits", "cifar10"]))
    "there is no dataset 'digit': did you mean 'digits'?"
    """
    known = list(known)
    near = nearest_names(name, known)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"expected one of {', '.join(known)}"
    return ConfigError(f"there is no {what} {name!r}: {hint}")
