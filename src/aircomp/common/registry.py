"""Classes by name, entered by a decorator on the class, the package's own or a user's.

Modules of the package are imported when a name of theirs is first asked for. Which names they enter is read from their text:
`@scheme("reed", …)` at the beginning of a line.
"""

import importlib
import importlib.util
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

from aircomp.errors import ConfigError, unknown_name

C = TypeVar("C", bound=type)


class Registry(Generic[C]):
    """Classes of one kind by name.

    Args:
        kind: What the decorator is called, and errors call them.
        package: The package whose modules, in all of its folders, enter classes.
    """

    def __init__(self, kind: str, package: str):
        self.kind, self.package = kind, package
        self.loaded: dict[str, C] = {}
        """Those whose module has been imported."""

    @cached_property
    def modules(self) -> Mapping[str, str]:
        """The module of every name that the package enters, by folder and file."""
        found: dict[str, str] = {}
        spec = importlib.util.find_spec(self.package)
        assert spec is not None  # a package of ours
        pattern = re.compile(rf'^@{self.kind}\(\s*"([^"]+)"', re.MULTILINE)
        for root in map(Path, spec.submodule_search_locations or ()):
            for path in sorted(root.rglob("*.py")):
                module = ".".join((self.package, *path.relative_to(root).with_suffix("").parts))
                for name in pattern.findall(path.read_text(encoding="utf-8")):
                    if found.setdefault(name, module) != module:
                        raise self._taken(name, found[name], module)
        return found

    def enter(self, name: str, entered: C) -> None:
        """Put a class under a name.

        Raises:
            ConfigError: If another class has it.
        """
        place = place_of(entered)
        other = (
            place_of(self.loaded[name]) if name in self.loaded else place
        )  # a reloaded module enters its class again
        if other == place and self.modules.get(name, entered.__module__) != entered.__module__:
            other = self.modules[name]
        if other != place:
            raise self._taken(name, other, place)
        self.loaded[name] = entered

    def _taken(self, name: str, one: str, other: str) -> ConfigError:
        return ConfigError(f"two {self.kind}s are called {name!r}: {one} and {other}; give one another name")

    def names(self) -> list[str]:
        """Return every name: the package's, then those that were entered beside."""
        return list(dict.fromkeys((*self.modules, *self.loaded)))

    def __getitem__(self, name: str) -> C:
        """Return the class of a name.

        Raises:
            ConfigError: If there is none.
        """
        if name not in self.loaded:
            if name not in self.modules:
                raise unknown_name(self.kind, name, self.names())
            importlib.import_module(self.modules[name])
        return self.loaded[name]


def place_of(entered: type) -> str:
    """Return where a class stands."""
    return f"{entered.__module__}.{entered.__qualname__}"
