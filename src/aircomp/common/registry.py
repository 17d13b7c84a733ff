"""Classes by name, entered by a decorator on the class, the package's own or a user's.

Modules of the package are imported when a name of theirs is first asked for. Which names they enter is read from their text:
`@scheme("reed", …)` at the beginning of a line. So is one attribute of the class: `settings_class = ReedSettings`.
"""

import importlib
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

from aircomp.common.checks import check_name
from aircomp.errors import ConfigError, unknown_name

C = TypeVar("C", bound=type)


@dataclass(frozen=True)
class Entry:
    """What the text of a module says of a name."""

    module: str
    word: str | None
    """The value of the attribute that is read."""


class Registry(Generic[C]):
    """Classes of one kind by name.

    Args:
        kind: What the decorator is called, and errors call them.
        package: The package whose modules, in all of its folders, enter classes.
        reads: The attribute of a class that is read from its text, so that it is known before the module is imported.
    """

    def __init__(self, kind: str, package: str, *, reads: str):
        self.kind, self.package, self.reads = kind, package, reads
        self.loaded: dict[str, C] = {}
        """Those whose module has been imported."""

    @cached_property
    def entries(self) -> Mapping[str, Entry]:
        """What the text of the package says of every name that it enters, by folder and file."""
        found: dict[str, Entry] = {}
        spec = importlib.util.find_spec(self.package)
        assert spec is not None  # a package of ours
        # a decorator with a name, up to the first line after the class that begins with a word
        classes = re.compile(
            rf'^@{self.kind}\(\s*"([^"]+)"(?=(.*?^class .*?)(?:^["#@\w]|\Z))', re.MULTILINE | re.DOTALL
        )
        said = re.compile(rf"^    {self.reads}(?:: [^=\n]+)? = (\w+)$", re.MULTILINE)
        for root in map(Path, spec.submodule_search_locations or ()):
            for path in sorted(root.rglob("*.py")):
                module = ".".join((self.package, *path.relative_to(root).with_suffix("").parts))
                for name, text in classes.findall(path.read_text(encoding="utf-8")):
                    word = said.search(text)
                    entry = found.setdefault(name, Entry(module, word and word[1]))
                    if entry.module != module:
                        raise self._taken(name, entry.module, module)
        return found

    def word(self, name: str) -> str | None:
        """Return what the text of a class of the package says of the attribute; None: nothing."""
        return self.entries[name].word if name in self.entries else None

    def enter(self, name: str, entered: C) -> None:
        """Put a class under a name.

        Raises:
            ConfigError: If another class has it, or it cannot be shown.
        """
        check_name(f"the name of the {self.kind} {place_of(entered)}", name)
        place = place_of(entered)
        other = (
            place_of(self.loaded[name]) if name in self.loaded else place
        )  # a reloaded module enters its class again
        if other == place and name in self.entries and self.entries[name].module != entered.__module__:
            other = self.entries[name].module
        if other != place:
            raise self._taken(name, other, place)
        self.loaded[name] = entered

    def _taken(self, name: str, one: str, other: str) -> ConfigError:
        return ConfigError(f"two {self.kind}s are called {name!r}: {one} and {other}; give one another name")

    def names(self) -> list[str]:
        """Return every name: the package's, then those that were entered beside."""
        return list(dict.fromkeys((*self.entries, *self.loaded)))

    def __getitem__(self, name: str) -> C:
        """Return the class of a name.

        Raises:
            ConfigError: If there is none.
        """
        if name not in self.loaded:
            if name not in self.entries:
                raise unknown_name(self.kind, name, self.names())
            importlib.import_module(self.entries[name].module)
        return self.loaded[name]


def place_of(entered: type) -> str:
    """Return where a class stands."""
    return f"{entered.__module__}.{entered.__qualname__}"
