"""Base of every configuration model: frozen, no unknown keys, errors that name the path.

Each component owns its settings and receives only those. Precedence when an experiment is built:
model default < TOML preset < command line.
"""

import difflib
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from aircomp.errors import ConfigError


class Settings(BaseModel):
    """A frozen group of settings; the docstring under each field is its help text."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    def __init__(self, **values: Any):  # Any: pydantic checks the types
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(_sentence(type(self), error)) from None

    @classmethod
    def parse(cls, values: dict[str, Any]) -> Self:
        """Build from nested dictionaries, reporting every mistake at once with its path."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ConfigError(_sentence(cls, error)) from None

    def changed(self, **values: Any) -> Self:
        """Return a copy with dotted-path values replaced, validated again: `changed(**{"channel.snr_db": 5})`."""
        nested = self.model_dump()
        for path, value in values.items():
            *groups, name = path.split(".")
            target = nested
            for group in groups:
                target = target.setdefault(group, {})
            target[name] = value
        return type(self).parse(nested)


def _sentence(model: type[BaseModel], error: ValidationError) -> str:
    return "; ".join(_describe(model, e) for e in error.errors())


def _describe(model: type[BaseModel], error: Any) -> str:
    path = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(path, _paths(model), n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "see --help for all settings"
        return f"there is no setting {path!r}: {hint}"
    reason = error["msg"].removeprefix("Value error, ")
    if not path:
        return reason
    if error["type"] == "missing":
        return f"the setting {path} is missing"
    return f"{path} = {error['input']!r}: {reason[0].lower()}{reason[1:]}"


def _paths(model: type[BaseModel], prefix: str = "") -> list[str]:
    paths: list[str] = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            paths += _paths(kind, f"{prefix}{name}.")
        else:
            paths.append(prefix + name)
    return paths
