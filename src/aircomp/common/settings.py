"""Base of every configuration model: frozen, no unknown keys, errors that name the path.

Each component owns its settings and receives only those. A group that has alternatives is `Tagged`: a class for each of them,
so that a setting without effect cannot be written. Precedence when an experiment is built: model default < TOML preset <
command line.
"""

import difflib
import inspect
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar, dataclass_transform, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.annotated_handlers import GetCoreSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from aircomp.common.artefact import read_toml
from aircomp.errors import ArtefactError, ConfigError, nearest_names, unknown_name

S = TypeVar("S", bound="Settings")
T = TypeVar("T", bound="Tagged")
HOMES_NAMED = 4
"""Alternatives that a sentence lists; of more it gives the number."""


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
class Elsewhere(Problem):
    """A setting that other alternatives of its group have, and the chosen one lacks."""

    tag: str
    """The path of the setting that chooses the alternative, with its value in `chosen`."""
    chosen: str
    homes: tuple[str, ...]
    """The values with which there is such a setting."""

    @property
    def sentence(self) -> str:
        """Say it."""
        named = [repr(home) for home in self.homes[:HOMES_NAMED]]
        if more := len(self.homes) - len(named):
            named.append(f"{more} others")
        homes = f"{', '.join(named[:-1])} and {named[-1]}" if named[1:] else named[0]
        return f"there is no setting {self.path} with {self.tag} = {self.chosen!r}; it belongs to {homes}"

    def inside(self, path: str) -> "Elsewhere":
        """Return the problem as seen from the group above."""
        return replace(self, path=f"{path}.{self.path}".strip("."), tag=f"{path}.{self.tag}".strip("."))


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(Field,))
class Settings(BaseModel):
    """A frozen group of settings; the docstring under each field is its help text."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False, defer_build=True
    )

    def __init__(self, **values: Any):  # Any: pydantic checks the types
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SettingsError(_problems(type(self), error, values)) from None

    @classmethod
    def parse(cls: type[S], values: Mapping[str, Any]) -> S:
        """Build from nested dictionaries, reporting every mistake at once with its path."""
        return cls(**values)

    def changed(self: S, **values: Any) -> S:
        """Return a copy with dotted-path values replaced, validated again: `changed(**{"channel.snr_db": 5})`.

        What nobody set stays unset (`model_fields_set`). Another alternative of a `Tagged` group takes over the settings
        that it shares with the one before.
        """
        here = {path: value for path, value in values.items() if "." not in path}
        model = self._with_tag(here)
        found = {name: getattr(self, name) for name in model.model_fields if name in self.model_fields_set} | here
        below: dict[str, dict[str, Any]] = {}
        for path, value in values.items():
            name, dot, rest = path.partition(".")
            if dot:
                below.setdefault(name, {})[rest] = value
        problems = []
        for name, changes in below.items():
            try:
                found[name] = _group_at(self, model, name, here).changed(**changes)
            except SettingsError as error:
                problems += [problem.inside(name) for problem in error.problems]
            except LookupError:
                problems += [p for rest in changes for p in _unknown(model, f"{name}.{rest}", found)]
        try:
            made = model(**found)
        except SettingsError as error:
            raise SettingsError([*error.problems, *problems]) from None
        if problems:
            raise SettingsError(problems)
        return made

    def _with_tag(self: S, values: Mapping[str, Any]) -> type[S]:
        """Return the class that has these values: its own, but for alternatives."""
        return type(self)


class Tagged(Settings):
    """A group of settings that has alternatives, chosen by the value of one setting, the tag.

    A direct subclass is the group: what all alternatives share, and the tag, whose default says which one is meant where none
    is named. Each of its subclasses is an alternative, beside the part that it is for:

        class PartitionSettings(Tagged):
            kind: str = "shards"

        class DirichletSettings(PartitionSettings):
            kind: Literal["dirichlet"] = "dirichlet"
            alpha: float = 0.5

    A field with the type of the group holds any of them, and `PartitionSettings(kind="dirichlet")` makes the one that is
    named. An alternative for several values has all of them in its `Literal`, and no default. A group whose alternatives
    stand in a registry returns it from `alternatives`; those need no `Literal`.
    """

    TAG: ClassVar[str] = "kind"
    """The name of the tag."""
    _is_group: ClassVar[bool] = False
    _known: ClassVar[dict[str, type["Tagged"]]]

    def __init_subclass__(cls, **keywords: Any):  # Any: pydantic's settings of a class
        super().__init_subclass__(**keywords)
        cls._is_group = Tagged in cls.__bases__
        if cls._is_group:
            cls._known = {}
            return
        for value in get_args(inspect.get_annotations(cls).get(cls.TAG)):
            other = cls._known.setdefault(value, cls)
            if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
                raise ConfigError(f"{cls.__name__} and {other.__name__} both have {cls.TAG} = {value!r}; rename one")
            cls._known[value] = cls

    def __new__(cls: type[T], **values: Any) -> T:
        """Make the alternative that values name."""
        return object.__new__(cls.chosen(values) if cls._is_group else cls)

    def __init__(self, **values: Any):  # Any: pydantic checks the types
        own = self.tags()
        default = type(self).model_fields[self.TAG].default
        named = values.get(self.TAG, default if default in own else own[0] if len(own) == 1 else None)
        if own and named not in own:
            raise SettingsError([Problem(self.TAG, repr(named), f"expected {' or '.join(map(repr, own))}")])
        if own and named != self.group().model_fields[self.TAG].default:
            values = {self.TAG: named, **values}  # always set, so that what is saved says which alternative it is
        super().__init__(**values)

    @classmethod
    def group(cls) -> type["Tagged"]:
        """Return the group that this is, or is an alternative of."""
        return next(model for model in cls.__mro__ if issubclass(model, Tagged) and model._is_group)

    @classmethod
    def alternatives(cls) -> Mapping[str, type["Tagged"]]:
        """Return the class of each value of the tag."""
        return cls._known

    @classmethod
    def tags(cls) -> list[str]:
        """Return the values of the tag that mean this class."""
        return [value for value, model in cls.alternatives().items() if model is cls]

    @classmethod
    def chosen(cls: type[T], values: Mapping[str, Any]) -> type[T]:
        """Return the class of the alternative that values name, or else of the default one.

        Raises:
            SettingsError: If there is none of that name.
        """
        named, known = values.get(cls.TAG, cls.group().model_fields[cls.TAG].default), cls.alternatives()
        if isinstance(named, str) and named in known:
            return known[named]  # pyright: ignore[reportReturnType] (all are of this group)
        near = nearest_names(named, known) if isinstance(named, str) else []
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"expected one of {', '.join(known)}"
        raise SettingsError([Problem(cls.TAG, repr(named), hint)])

    def _with_tag(self: T, values: Mapping[str, Any]) -> type[T]:
        return self.chosen(values) if self.TAG in values else type(self)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if not cls._is_group:
            return handler(source)
        whole = core_schema.simple_ser_schema("any")  # of the alternative, not of the group
        return core_schema.no_info_plain_validator_function(cls._parsed, serialization=whole)

    @classmethod
    def _parsed(cls, value: object) -> "Tagged":
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise ValueError(f"expected settings with a {cls.TAG}, say {cls.TAG} = {next(iter(cls.alternatives()))!r}")
        return cls.parse(value)


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


def value_at(settings: BaseModel, path: str) -> Any:
    """Return the setting at a dotted path."""
    value: Any = settings
    for name in path.split("."):
        value = getattr(value, name)
    return value


def given_paths(values: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the paths of nested values: `{"partition": {"alpha": 1}}` gives partition.alpha."""
    paths: list[str] = []
    for name, value in values.items():
        inner = value.model_dump(exclude_unset=True) if isinstance(value, BaseModel) else value
        paths += given_paths(inner, f"{prefix}{name}.") if isinstance(inner, Mapping) else [prefix + name]
    return paths


def check_paths(settings: Settings, paths: Sequence[str]) -> None:
    """Refuse paths of settings that do not exist, or not in the chosen alternatives.

    Raises:
        SettingsError: Naming each.
    """
    problems = []
    for path in paths:
        *groups, name = path.split(".")
        inside: Any = settings
        for place, group in enumerate(groups):
            below = getattr(inside, group, None)
            if not isinstance(below, Settings):
                groups, name = groups[:place], ".".join([*groups[place:], name])
                break
            inside = below
        if name not in type(inside).model_fields:
            found = _unknown(type(inside), name, inside.model_dump())
            problems += [problem.inside(".".join(groups)) for problem in found]
    if problems:
        raise SettingsError(problems)


def setting_paths(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Return the dotted path of every setting in the tree, in whichever alternatives it is."""
    paths: dict[str, None] = {}
    for part in classes_of(model):
        for name, field in part.model_fields.items():
            kind = group_class(field.annotation)
            found = [prefix + name] if kind is None else setting_paths(kind, f"{prefix}{name}.")
            paths |= dict.fromkeys(found)
    return list(paths)


SYNONYMS = {
    **dict.fromkeys(("snr", "noise", "noise_db", "sigma", "ebn0"), ("snr_db",)),
    **dict.fromkeys(("lr", "eta", "step_size", "rate"), ("learning_rate",)),
    **dict.fromkeys(("clients", "num_clients", "devices", "num_devices", "users"), ("devices.total",)),
    **dict.fromkeys(("num_rounds", "iterations", "communication_rounds"), ("rounds",)),
    **dict.fromkeys(("wd", "l2"), ("weight_decay",)),
    **dict.fromkeys(("batch", "batchsize", "bs"), ("batch_size", "batch_slots")),
    **dict.fromkeys(("scheme", "algorithm", "method"), ("uplink.name",)),
    **dict.fromkeys(("receive_antennas", "num_antennas", "rx", "mimo"), ("antennas",)),
    **dict.fromkeys(("rician", "k_factor"), ("rician_factor",)),
    **dict.fromkeys(("iid", "non_iid", "heterogeneity", "dirichlet"), ("partition.kind", "alpha")),
    **dict.fromkeys(("byzantine", "attack", "attackers", "malicious"), ("corruption.kind", "fraction")),
    **dict.fromkeys(
        ("num_active", "active", "sampling", "client_fraction"), ("participation.kind", "participation.number")
    ),
    **dict.fromkeys(("codebook_size", "num_centroids"), ("num_codewords",)),
    **dict.fromkeys(("optim", "server_optimizer"), ("local.optimizer", "server.kind")),
    **dict.fromkeys(("network", "architecture"), ("model.name",)),
    **dict.fromkeys(("gpu", "cuda"), ("device",)),
    **dict.fromkeys(("random_seed", "rng"), ("seed",)),
}
"""Words that people say, and how the path of a setting that they may mean ends."""


def similar_paths(model: type[BaseModel], path: str) -> list[str]:
    """Return the settings that somebody may mean who wrote a path that does not exist, likeliest first."""
    known, (group, _, name) = setting_paths(model), path.rpartition(".")
    ends = SYNONYMS.get(name.lower(), ())
    meant = [p for end in ends for p in known if f".{p}".endswith(f".{end}") and p.startswith(group)]
    return meant[:3] or difflib.get_close_matches(path, known, n=3, cutoff=0.5)


def classes_of(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Return the class itself, or the group and then each of its alternatives."""
    yield model
    if issubclass(model, Tagged) and model.group() is model:
        yield from dict.fromkeys(model.alternatives().values())


def group_class(annotation: Any) -> type[BaseModel] | None:
    """Return the class of a field that is a group of settings; None for other fields."""
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def bounds(field: FieldInfo) -> dict[str, float]:
    """Return the limits of a number by pydantic's names for them: ge and gt below, le and lt above."""
    found: dict[str, float] = {}
    for limit in [*field.metadata, *_limits(field.annotation)]:
        found |= {name: getattr(limit, name) for name in ("ge", "gt", "le", "lt") if hasattr(limit, name)}
    return found


def range_of(field: FieldInfo) -> str:
    """Say which numbers a setting takes, and which words in place of one."""
    found = bounds(field)
    low = _written(found["ge"]) if "ge" in found else f"more than {_written(found['gt'])}" if "gt" in found else ""
    high = _written(found["le"]) if "le" in found else f"less than {_written(found['lt'])}" if "lt" in found else ""
    words = [
        repr(word) for part in get_args(field.annotation) if get_origin(part) is Literal for word in get_args(part)
    ]
    return " or ".join([*words, f"{low} to {high}" if low and high else low or high])


def _written(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"


def _limits(annotation: Any) -> Iterator[Any]:
    """Return what annotations inside a union say of its numbers."""
    for part in get_args(annotation):
        for said in getattr(part, "__metadata__", ()):
            yield from said.metadata if isinstance(said, FieldInfo) else [said]
        yield from _limits(part)


OUT_OF_RANGE = {"greater_than", "greater_than_equal", "less_than", "less_than_equal"}
"""What pydantic calls a number outside its range."""


def _group_at(settings: Settings, model: type[Settings], name: str, given: Mapping[str, Any]) -> Settings:
    """Return the group in which values are changed: as given whole, as it was, or the default of a new alternative."""
    field = model.model_fields[name]
    value = given.get(name, getattr(settings, name, field.get_default(call_default_factory=True, validated_data={})))
    kind = group_class(field.annotation)
    if isinstance(value, Mapping) and kind is not None and issubclass(kind, Settings):
        value = kind.parse(value)
    if not isinstance(value, Settings):
        raise LookupError(name)
    return value


def _problems(model: type[BaseModel], error: ValidationError, values: Mapping[str, Any]) -> list[Problem]:
    found: list[Problem] = []
    for e in error.errors():
        name, *inside = e["loc"] or ("",)
        field = model.model_fields.get(str(name))
        if (
            field is not None and inside and isinstance(inside[0], str) and bounds(field)
        ):  # a number, or a word: one sentence
            found += [Problem(str(name), repr(values[str(name)]), f"expected {range_of(field)}")]
        else:
            found += _describe(model, e, values)
    return list(dict.fromkeys(found))


def _describe(model: type[BaseModel], error: Any, values: Mapping[str, Any]) -> list[Problem]:
    path = ".".join(str(part) for part in error["loc"])
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, SettingsError):  # from a group further down, which has said it all
        return [problem.inside(path) for problem in cause.problems]
    if error["type"] == "extra_forbidden":
        return _unknown(model, path, values)
    reason = error["msg"].removeprefix("Value error, ")
    field = model.model_fields.get(str(error["loc"][0])) if error["loc"] else None
    if error["type"] in OUT_OF_RANGE and field:
        reason = f"expected {range_of(field)}"
    if error["type"] == "model_type" and field and (group := group_class(field.annotation)):
        reason = f"it is a group of settings; give one of them, say {path}.{next(iter(group.model_fields))}"
    return [Problem(path, repr(error["input"]), f"{reason[0].lower()}{reason[1:]}" if path else reason)]


def _unknown(model: type[BaseModel], path: str, values: Mapping[str, Any]) -> list[Problem]:
    """Say that there is no such setting, and where there is one."""
    if issubclass(model, Tagged):
        name = path.partition(".")[0]
        homes = tuple(value for value, other in model.alternatives().items() if name in other.model_fields)
        if homes and name not in model.model_fields:
            chosen = values.get(model.TAG, model.model_fields[model.TAG].default)
            return [Elsewhere(path, None, "", model.TAG, chosen, homes)]
        model = model.group()
    near = similar_paths(model, path)
    return [Problem(path, None, f"did you mean {' or '.join(near)}?" if near else "see --help for all settings")]
