"""Base of every configuration model: frozen, no unknown keys, errors that name the path.

Each component owns its settings and receives only those. Precedence when an experiment is built:
model default < TOML preset < command line.
"""

import difflib
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from aircomp.errors import ArtefactError, ConfigError

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


class Settings(BaseModel):
    """A frozen group of settings; the docstring under each field is its help text."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

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
        """Return a copy with dotted-path values replaced, validated again: `changed(**{"channel.snr_db": 5})`."""
        nested = self.model_dump()
        for path, value in values.items():
            *groups, name = path.split(".")
            target = nested
            for group in groups:
                target = target.setdefault(group, {})
            target[name] = value
        return type(self).parse(nested)


def read_settings(model: type[S], path: Path, presets: Iterable[str]) -> S:
    """Read settings from a TOML file; `presets` are the names to offer where there is no such file."""
    try:
        return model.parse(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ArtefactError(f"{path} does not exist; give a preset ({', '.join(presets)}) or a TOML file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ArtefactError(f"{path} is not readable TOML: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _problems(model: type[BaseModel], error: ValidationError) -> list[Problem]:
    return [problem for e in error.errors() for problem in _describe(model, e)]


def _describe(model: type[BaseModel], error: Any) -> list[Problem]:
    path = ".".join(str(part) for part in error["loc"])
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, SettingsError):  # from a group further down, which has said it all
        return [problem.inside(path) for problem in cause.problems]
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(path, _paths(model), n=3, cutoff=0.5)
        return [Problem(path, None, f"did you mean {' or '.join(near)}?" if near else "see --help for all settings")]
    reason = error["msg"].removeprefix("Value error, ")
    return [Problem(path, repr(error["input"]), f"{reason[0].lower()}{reason[1:]}" if path else reason)]


def _paths(model: type[BaseModel], prefix: str = "") -> list[str]:
    paths: list[str] = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            paths += _paths(kind, f"{prefix}{name}.")
        else:
            paths.append(prefix + name)
    return paths
