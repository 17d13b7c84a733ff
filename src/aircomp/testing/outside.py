"""What a scheme keeps outside of its objects: on its classes, in their modules, in closures of their methods."""

import copy
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Container = dict | list | set | bytearray | deque
"""What can be filled without giving a name another value."""


class Outside:
    """The state outside of an object, one container deep, as it is when this is made.

    Args:
        part: The object, of a class of the user's or of the package.
    """

    def __init__(self, part: object):
        kinds = [kind for kind in type(part).__mro__ if kind.__module__ not in ("abc", "builtins", "typing")]
        modules = [sys.modules[name] for name in {kind.__module__ for kind in kinds} if name in sys.modules]
        self._places = [*kinds, *modules]
        self._names = [_names(place) for place in self._places]
        held = [value for names in self._names for value in names.values()]
        held += [inside for value in held for inside in _enclosed(value)]
        self._filled = [(value, copy.copy(value)) for value in held if isinstance(value, Container)]

    @contextmanager
    def as_it_was(self, part: object) -> Iterator[None]:
        """Let all be as it was when this was made, until the end of the block.

        Args:
            part: An object of the same class.
        """
        now = Outside(part)
        self._restore()
        try:
            yield
        finally:
            now._restore()

    def _restore(self) -> None:
        for place, names in zip(self._places, self._names, strict=True):
            present = _names(place)
            for name in present.keys() - names.keys():
                delattr(place, name)
            for name, value in names.items():
                if name not in present or present[name] is not value:
                    setattr(place, name, value)
        for value, content in self._filled:
            value.clear()
            fill: Any = value.update if isinstance(value, dict | set) else value.extend
            fill(content)


def _names(place: Any) -> dict[str, Any]:  # Any: a class or a module
    return {name: value for name, value in vars(place).items() if not name.startswith("__")}


def _enclosed(value: object) -> list[Any]:
    """Return what a method finds in the function around its class."""
    found = []
    for cell in getattr(getattr(value, "__func__", value), "__closure__", None) or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    return found
