"""Settings as flags: those of the chosen alternatives, each with its help, and nothing else."""

import dataclasses
import difflib
import re
from collections.abc import Callable, Collection, Sequence
from inspect import getdoc
from typing import Annotated, Any, Literal, TypeVar

import tyro
from pydantic import BaseModel, Field, create_model

from aircomp.cli.common import parse
from aircomp.common.settings import (
    SYNONYMS,
    Settings,
    Tagged,
    check_paths,
    group_class,
    setting_paths,
    similar_paths,
    value_at,
)
from aircomp.errors import ConfigError

T = TypeVar("T")


def parse_settings(
    options: type[T],
    args: Sequence[str],
    prog: str,
    start: Settings,
    *,
    field: str = "experiment",
    hidden: Collection[str] = (),
    usual: Collection[str] | None = None,
    full_name: Callable[[str], str] = str,
) -> tuple[T, list[str]]:
    """Parse arguments of which some are settings; return the options, with the settings in place, and the paths given.

    The alternatives that the arguments name are chosen first, so that help shows their flags alone.

    Args:
        options: The command's dataclass.
        args: The words after the command.
        prog: The command.
        start: The settings that the arguments override.
        field: The option that holds them.
        hidden: Paths of settings that are no flags.
        usual: Paths of the settings that `--help` shows, each in one sentence, where the chosen alternatives have them;
            `--help-all` shows all in full. None: both show all.
        full_name: Returns the path that a short name stands for, and others as they are.

    Raises:
        ConfigError: Naming a flag that does not exist, or not in the chosen alternatives.
    """
    args = with_full_names(args, full_name)
    given = given_settings(type(start), args)
    _check_flags(type(start), args, options, f"aircomp {prog}", hidden, full_name)
    chosen = _with_tags(start, args)
    check_paths(chosen, given)
    brief = bool({"-h", "--help"} & set(args))
    args = ["--help" if word == "--help-all" else word for word in args]
    flags = _usual_flags(chosen, usual) if brief and usual is not None else _flags(chosen, hidden)
    shown = dataclasses.make_dataclass(
        options.__name__,
        [(field, Annotated[flags, tyro.conf.arg(name="")], dataclasses.field(default_factory=flags))],
        bases=(options,),
        frozen=True,
        kw_only=True,
        namespace={"__doc__": options.__doc__},
    )
    found: Any = parse(shown, args, prog)  # Any: a class made here
    values = {path: value_at(getattr(found, field), path) for path in given}
    return dataclasses.replace(found, **{field: chosen.changed(**values)}), given


def with_full_names(args: Sequence[str], full_name: Callable[[str], str]) -> list[str]:
    """Return the arguments with short and older flags written out: `--snr-db 5` becomes `--channel.snr-db 5`."""
    found = []
    for word in args:
        flag, equals, value = word.partition("=")
        path = flag.removeprefix("--").replace("-", "_")
        full = full_name(path)
        changed = word.startswith("--") and full != path
        found.append(f"--{full.replace('_', '-')}{equals}{value}" if changed else word)
    return found


def _check_flags(
    model: type[Settings],
    args: Sequence[str],
    options: type,
    prog: str,
    hidden: Collection[str],
    full_name: Callable[[str], str],
) -> None:
    """Refuse a flag that does not exist before tyro is asked: its search takes a third of the time of the whole command.

    Raises:
        ConfigError: Naming the flags that may be meant.
    """
    known = setting_paths(model) + [path for option in dataclasses.fields(options) for path in _paths_of(option)]
    spelt: dict[str, str] = {}  # in full and in short
    for path in known:
        ways = [path, *(part for part in path.rpartition(".")[::2] if full_name(part) == path)]
        if not {path, path.partition(".")[0]} & {*hidden}:
            spelt |= dict.fromkeys(ways, path.rpartition(".")[2] if path.rpartition(".")[2] in ways else path)
    for word in args:
        flag = word.partition("=")[0]
        path = flag.removeprefix("--").replace("-", "_")
        group, dot, name = path.rpartition(".")
        if {path, group + dot + name.removeprefix("no_")} & {*known, *ALWAYS} or not re.match(r"--(?!tyro-)\w", word):
            continue
        near = similar_paths(model, path) if name.lower() in SYNONYMS else difflib.get_close_matches(path, spelt)
        names = [f"--{spelt[n].replace('_', '-')}" for n in near if n in spelt]
        hint = f": did you mean {' or '.join(dict.fromkeys(names))}?" if names else f"; see {prog} --help"
        raise ConfigError(f"there is no flag {flag}{hint}")


ALWAYS = ("help", "help_all")
"""Flags that are neither settings nor options."""


def _paths_of(option: "dataclasses.Field[Any]") -> list[str]:  # Any: options are of many types
    """Return the path of an option, or of each setting in its group."""
    kind = group_class(option.type)
    return [option.name] if kind is None else setting_paths(kind, f"{option.name}.")


def given_settings(model: type[Settings], args: Sequence[str]) -> list[str]:
    """Return the paths of the settings that the arguments set: `--partition.alpha=1` gives partition.alpha."""
    known, found = setting_paths(model), []
    for word in args:
        path = word.partition("=")[0].removeprefix("--").replace("-", "_")
        group, dot, name = path.rpartition(".")
        path = next((p for p in (path, group + dot + name.removeprefix("no_")) if p in known), None)
        if word.startswith("--") and path is not None:
            found.append(path)
    return found


def _with_tags(start: Settings, args: Sequence[str]) -> Settings:
    """Return the settings with the alternatives that the arguments name, outer groups first."""
    known = setting_paths(type(start))
    words = [(*word.partition("="), after) for word, after in zip(args, [*args[1:], None], strict=False)]
    flags = [
        (flag.removeprefix("--").replace("-", "_"), value if equals else after) for flag, equals, value, after in words
    ]
    for path, value in sorted(flags, key=lambda flag: flag[0].count(".")):
        group, _, name = path.rpartition(".")
        inside = _group(start, group)
        if path in known and isinstance(inside, Tagged) and name == inside.TAG and value is not None:
            start = start.changed(**{path: value})
    return start


def _group(settings: Settings, path: str) -> object:
    """Return the group at a path, or None where the chosen alternatives have none."""
    inside: object = settings
    for name in path.split(".") if path else ():
        inside = getattr(inside, name, None)
    return inside


def _flags(settings: Settings, hidden: Collection[str] = (), prefix: str = "") -> type[BaseModel]:
    """Return a class with the fields of settings as they are: types and help, but no checks, which the settings make."""
    fields: Any = {}  # Any: pydantic takes pairs of a type and a default
    for name, field in type(settings).model_fields.items():
        value, help_text = getattr(settings, name), field.description
        if prefix + name in hidden:
            continue
        if isinstance(value, Settings):
            group = _flags(value, hidden, f"{prefix}{name}.")
            fields[name] = (group, Field(default_factory=group, description=help_text or getdoc(type(value))))
            continue
        kind: Any = field.annotation
        if isinstance(settings, Tagged) and name == settings.TAG:
            kind = Literal[tuple(settings.alternatives())]  # pyright: ignore[reportInvalidTypeForm] (known only here)
            help_text = settings.group().model_fields[name].description
        # tyro would keep the source's line breaks beside those of the terminal
        fields[name] = (kind, Field(default=value, description=" ".join((help_text or "").split())))
    return create_model(type(settings).__name__, __doc__=type(settings).__doc__, **fields)


def _usual_flags(settings: Settings, usual: Collection[str]) -> type[BaseModel]:
    """Return a flat class with the usual flags alone, in their order, each with one sentence of help."""
    fields: Any = {}  # Any: as above
    for path in usual:
        inside, name = _group(settings, path.rpartition(".")[0]), path.rpartition(".")[2]
        if not isinstance(inside, Settings) or name not in type(inside).model_fields:
            continue  # of another alternative
        field, value = type(inside).model_fields[name], getattr(inside, name)
        kind, text = field.annotation, _first_sentence(field.description or "")
        metavar = None
        if isinstance(inside, Tagged) and name == inside.TAG:
            known, few = list(inside.alternatives()), len(inside.alternatives()) <= MOST_LISTED
            kind, metavar = str, f"{{{','.join(known)}}}" if few else "NAME"
            text = _first_sentence(inside.group().__doc__ or "") if few else " ".join((field.description or "").split())
        flag: Any = Annotated[kind, tyro.conf.arg(name=path, metavar=metavar)]  # pyright: ignore[reportInvalidTypeForm]
        fields[path.replace(".", "_")] = (flag, Field(default=value, description=text))
    return create_model("Usual", **fields)


MOST_LISTED = 8
"""Alternatives that brief help lists."""


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[a-z0-9)])[.;] ", " ".join(text.split()), maxsplit=1)[0].rstrip(".") + "."
