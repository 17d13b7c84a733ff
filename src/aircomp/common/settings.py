"""Base of every configuration model: frozen, no unknown keys, errors that name the path.

Each component owns its settings and receives only those. Precedence when an experiment is built:
model default < TOML preset < command line.
"""

import difflib
import logging
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from aircomp.common.artefact import read_toml
from aircomp.errors import ArtefactError, ConfigError, unknown_name

log = logging.getLogger(__name__)

S = TypeVar("S", bound="Settings")


class SettingsError(ConfigError):
    """Every mistake in a group of settings, each with its path."""

    def __init__(self, problems: list["Problem"]):
        super().__init__("; ".join(problem.sentence for problem in problems))
        self.problems = problems


@dataclass(frozen=True)
class Problem:
    """One mistake: where, what was given (None for a setting that does not exist), what is wrong."""

    path: str
    given: str | None
    reason: str

    @property
    def sentence(self) -> str:
        """Say it."""
        if self.given is None:
            return f"there is no setting {self.path!r}: {self.reason}"
        return f"{self.path} = {self.given}: {self.reason}" if self.path else self.reason

    def inside(self, path: str) -> "Problem":
        """Return the problem as seen from the group above."""
        return replace(self, path=f"{path}.{self.path}".strip("."))


@dataclass(frozen=True)
class Except:
    """Every value but these."""

    values: tuple[Any, ...]

    def __init__(self, *values: Any):
        object.__setattr__(self, "values", values)


@dataclass(frozen=True)
class Needs:
    """What a setting needs to have an effect: one of these settings, by path, with one of these values."""

    settings: Mapping[str, tuple[Any, ...] | Except]
    refused: bool = False
    """Whether a setting without effect is an error; otherwise it is a warning."""

    def met(self, settings: "Settings") -> bool:
        """Tell whether one of them has such a value."""
        return any(_is_among(value_at(settings, path), values) for path, values in self.settings.items())

    def inside(self, path: str) -> "Needs":
        """Return the needs as seen from the group above."""
        return replace(self, settings={f"{path}.{name}": values for name, values in self.settings.items()})

    def sentence(self, path: str, settings: "Settings") -> str:
        """Say that the setting at `path` has no effect, and what it needs."""
        wanted = [_wanted(name, values, value_at(settings, name)) for name, values in self.settings.items()]
        return f"{path} was given but has no effect: it needs {', or '.join(wanted)}"


def _is_among(value: Any, values: tuple[Any, ...] | Except) -> bool:
    return value not in values.values if isinstance(values, Except) else value in values


def _wanted(path: str, values: tuple[Any, ...] | Except, value: Any) -> str:
    part = path.rpartition(".")[2]
    if values == Except(""):
        return f"a {part} of your own"
    if values == ("",):
        return f"no {part} of your own, which is {value}"
    if isinstance(values, Except):
        return f"{path} other than {' or '.join(map(repr, values.values))}"
    return f"{path} = {' or '.join(map(repr, values))}, not {value!r}"


def needs(path: str, *values: Any, refused: bool = False) -> tuple[Needs]:
    """Return the need of one setting with one of these values, or with any value `Except(…)` some."""
    wanted = values[0] if isinstance(values[0], Except) else values
    return (Needs({path: wanted}, refused),)


NeedsTable = Mapping[str, tuple[Needs, ...]]
"""What settings, or whole groups, need to have an effect: all of these."""


class Settings(BaseModel):
    """A frozen group of settings; the docstring under each field is its help text."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    NEEDS: ClassVar[NeedsTable] = {}
    """What the settings of this group, and its groups, need to have an effect."""

    def __init__(self, **values: Any):  # Any: pydantic checks the types
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SettingsError(_problems(type(self), error)) from None

    @classmethod
    def parse(cls: type[S], values: dict[str, Any]) -> S:
        """Build from nested dictionaries, reporting every mistake at once with its path."""
        return cls(**values)

    def changed(self: S, **values: Any) -> S:
        """Return a copy with dotted-path values replaced, validated again: `changed(**{"channel.snr_db": 5})`.

        What nobody set stays unset (`model_fields_set`).
        """
        nested, whole = self.model_dump(exclude_unset=True), self.model_dump()
        for path, value in values.items():
            *groups, name = path.split(".")
            target, known, owner = nested, whole, self
            for group in groups:
                owner = getattr(owner, group, None)
                # a group that nobody set may have a default of its own, other than its class's
                default = owner.model_dump(exclude_unset=True) if isinstance(owner, BaseModel) else {}
                target, known = target.setdefault(group, default), known.get(group, {})
                if not isinstance(target, dict) or not isinstance(known, dict):
                    raise SettingsError([Problem(path, None, "see --help for all settings")])
            target[name] = value
        return type(self).parse(nested)


def absolute(path: Path | None) -> Path | None:
    """Validate a path among settings: a run that is resumed from elsewhere means the same file."""
    return None if path is None else Path(os.path.abspath(path.expanduser()))


class Presets(Generic[S]):
    """Settings that come with the package as TOML files in one folder of it.

    Args:
        model: What they are settings of.
        *folder: Where they lie in the package.
    """

    def __init__(self, model: type[S], *folder: str):
        self.model, self.folder = model, resources.files("aircomp").joinpath(*folder)

    def names(self) -> list[str]:
        """Return their names."""
        return sorted(f.name.removesuffix(".toml") for f in self.folder.iterdir() if f.name.endswith(".toml"))

    def load(self, preset: str | Path) -> S:
        """Read one by name, or a user's own TOML file by path."""
        if str(preset).endswith(".toml"):
            return self.read(Path(preset))
        if preset not in self.names():
            raise unknown_name("preset", str(preset), self.names())
        return self.model.parse(tomllib.loads((self.folder / f"{preset}.toml").read_text(encoding="utf-8")))

    def read(self, path: Path) -> S:
        """Read a user's own TOML file."""
        return read_settings(self.model, path, self.names())


def read_settings(model: type[S], path: Path, presets: Sequence[str] = ()) -> S:
    """Read settings from a TOML file; `presets` are the names to offer where there is no such file."""
    if not os.path.lexists(path):
        offer = f"give a preset ({', '.join(presets)}) or a TOML file" if presets else "check the path"
        raise ArtefactError(f"{path} does not exist; {offer}")
    try:
        return model.parse(read_toml(path))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def value_at(settings: Settings, path: str) -> Any:
    """Return the setting at a dotted path."""
    value: Any = settings
    for name in path.split("."):
        value = getattr(value, name)
    return value


def all_needs(model: type[BaseModel]) -> Iterator[tuple[str, Needs]]:
    """Return (path of a setting or a group, what it needs) for the whole tree."""
    if issubclass(model, Settings):
        yield from ((path, needs) for path, several in model.NEEDS.items() for needs in several)
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from ((f"{name}.{path}", needs.inside(name)) for path, needs in all_needs(field.annotation))


def check_given(settings: Settings, given: Iterable[str]) -> None:
    """Refuse, or warn about, settings that the user gave and that have no effect.

    Args:
        settings: All settings. One that comes from a preset may be without effect: nobody asked for it.
        given: Paths of those that the user gave, on the command line or by keyword.

    Raises:
        ConfigError: If a setting that surely was meant to have an effect has none.
    """
    needed = list(all_needs(type(settings)))
    refused = []
    for path in given:
        missed = [n for place, n in needed if path == place or path.startswith(f"{place}.") if not n.met(settings)]
        for needs in sorted(missed, key=lambda n: not n.refused)[:1]:  # one sentence a setting, the gravest
            if needs.refused:
                refused.append(needs.sentence(path, settings))
            else:
                log.warning("%s", needs.sentence(path, settings))
    if refused:
        raise ConfigError("; ".join(refused))


def given_paths(values: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the paths of nested values: `{"partition": {"alpha": 1}}` gives partition.alpha."""
    paths: list[str] = []
    for name, value in values.items():
        inner = value.model_dump(exclude_unset=True) if isinstance(value, BaseModel) else value
        paths += given_paths(inner, f"{prefix}{name}.") if isinstance(inner, Mapping) else [prefix + name]
    return paths


def _problems(model: type[BaseModel], error: ValidationError) -> list[Problem]:
    return [problem for e in error.errors() for problem in _describe(model, e)]


def _describe(model: type[BaseModel], error: Any) -> list[Problem]:
    path = ".".join(str(part) for part in error["loc"])
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, SettingsError):  # from a group further down, which has said it all
        return [problem.inside(path) for problem in cause.problems]
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(path, setting_paths(model), n=3, cutoff=0.5)
        return [Problem(path, None, f"did you mean {' or '.join(near)}?" if near else "see --help for all settings")]
    reason = error["msg"].removeprefix("Value error, ")
    return [Problem(path, repr(error["input"]), f"{reason[0].lower()}{reason[1:]}" if path else reason)]


def setting_paths(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Return the dotted path of every setting in the tree."""
    paths: list[str] = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            paths += setting_paths(kind, f"{prefix}{name}.")
        else:
            paths.append(prefix + name)
    return paths
