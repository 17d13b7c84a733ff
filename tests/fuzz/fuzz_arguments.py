"""Command lines, from the commands' own options: every flag with values of its type, and with odd ones."""

import dataclasses
import os
import random
import shutil
import types
import typing
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Union

from fuzz_case import Case
from fuzz_material import TINY_RUN, TINY_TRAINING
from fuzz_values import FLOATS, INTEGERS, PATHS, WORDS, misspelt, some
from pydantic import BaseModel

IN = "../../inputs"
TAKE_TIME = ("rounds", "epochs", "repeats", "seeds", "lloyd-iterations", "iterations", "samples", "steps", "seconds")
"""More of these is more work, which is no fault: they get small values and wrong ones."""
UNTRIED = ("--update-expected",)
"""It rewrites the package and its docs, as it should."""


@dataclasses.dataclass(frozen=True)
class Flag:
    """One option of a command."""

    name: str
    kind: Any
    pairs: bool = False
    """Whether there is `--no-NAME`, too."""

    @property
    def takes_time(self) -> bool:
        return any(word in self.name for word in TAKE_TIME)


@dataclasses.dataclass(frozen=True)
class Command:
    """A command with what makes a valid and quick call of it."""

    words: list[str]
    options: str
    """Module and class of its options."""
    flags: dict[str, str]
    positional: list[str] = dataclasses.field(default_factory=list)
    weight: int = 1
    never: dict[str, str] = dataclasses.field(default_factory=dict)
    """Flags that make it fail, for commands whose valid calls take minutes."""


COMMANDS = [
    Command(["simulate"], "simulate:Options", TINY_RUN, ["digits"], 10),
    Command(["collect"], "collect:Options", TINY_RUN, ["digits"], 4),
    Command(["central"], "central:Options", TINY_RUN | {"--central.epochs": "1"}, ["digits"], 2),
    Command(["pretrain"], "pretrain:Options", TINY_TRAINING, [f"{IN}/fragments"], 3),
    Command(
        ["evaluate"],
        "evaluate:Options",
        {"--fragments": f"{IN}/fragments", "--snr-db": "5", "--slots": "4", "--decoder": "gamp"},
        weight=4,
    ),
    Command(["cost"], "cost:Options", {"--model": "digits-cnn"}, weight=4),
    Command(["schemes"], "schemes:Options", {}, weight=2),
    Command(["layers"], "layers:Options", {}, weight=2),
    Command(["arena"], "arena:Options", {}, weight=2, never={"--seeds": "0"}),
    Command(["explain"], "explain:Options", {}, weight=2),
    Command(["report"], "report:Options", {"--out": "page"}, [f"{IN}/run"], 2),
    Command(["export"], "export:Options", {"--format": "torch"}, [f"{IN}/layer"]),
    Command(
        ["reproduce"], "reproduce:Options", {"--seeds": "1", "--workers": "1", "--out": "out"}, ["codebook_geometry"]
    ),
    Command(["demo"], "demo:Options", {"--rounds": "1", "--snr-db": "5", "--seeds": "1", "--workers": "1"}),
    Command(["data", "list"], "data:ListOptions", {}),
    Command(["list", "layers"], "layers:Options", {}),
    Command(["data", "fetch"], "data:FetchOptions", {}, ["digits"]),
]
ENVIRONMENT = {
    "AIRCOMP_LOG": ["debug", "INFO", "10", "foo", "", "ü", "-1", "None"],
    "AIRCOMP_DATA": ["", "nowhere", "/dev/null", f"{IN}/data", "~nobody", "\udcff"],
    "COLUMNS": ["0", "1", "-5", "x", "100000"],
    "HOME": [None, "", "/dev/null", "nowhere"],
    "TERM": ["dumb", "", "x"],
    "TMPDIR": ["/dev/null", "nowhere"],
    "NO_COLOR": ["1"],
    "FORCE_COLOR": ["1"],
}


@cache
def flags_of(options: str) -> tuple[list[Flag], list[Flag]]:
    """Return the flags and the positional arguments of a class of options."""
    module, name = options.split(":")
    found = list(_fields(getattr(import_module(f"aircomp.cli.{module}"), name), ""))
    if module in ("simulate", "collect"):
        full = {flag.name: flag for flag in found}
        short = {f"--{name.replace('_', '-')}": f"--{path.replace('_', '-')}" for name, path in other_names().items()}
        found += [dataclasses.replace(full[path], name=name) for name, path in short.items() if path in full]
    return [f for f in found if f.name and f.name not in UNTRIED], [f for f in found if not f.name]


def other_names() -> dict[str, str]:
    """Return settings by their short names."""
    from aircomp.federation.experiment import SHORT_NAMES, full_name

    return {name: full_name(name) for name in SHORT_NAMES}


def _fields(options: Any, prefix: str) -> typing.Iterator[Flag]:
    if issubclass(options, BaseModel):
        hints = {name: (field.annotation, tuple(field.metadata)) for name, field in options.model_fields.items()}
    else:
        hints = {n: _split(hint) for n, hint in typing.get_type_hints(options, include_extras=True).items()}
    for name, (kind, markers) in hints.items():
        said = repr(markers)
        unnamed = any(getattr(marker, "name", None) == "" for marker in markers)
        aliases = [alias for marker in markers for alias in getattr(marker, "aliases", None) or ()]
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _fields(kind, prefix if unnamed else f"{prefix}{name}.")
        elif "Positional" in said:
            yield Flag("", kind)
        else:
            for flag in (f"--{prefix}{name}".replace("_", "-"), *aliases):
                yield Flag(flag, kind, pairs=kind is bool and "FlagCreatePairsOff" not in said)


def _split(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return (hint.__origin__, hint.__metadata__) if hasattr(hint, "__metadata__") else (hint, ())


@cache
def names() -> list[str]:
    """Return every name that some setting knows."""
    import aircomp
    from aircomp.federation import models
    from aircomp.federation.experiment import preset_names
    from aircomp.studies.study import RESULTS
    from aircomp.train import recipe

    known = [*aircomp.uplink_names(), *aircomp.decoder_names(), *aircomp.aggregator_names(), *models.USUAL_WIDTH]
    return [*known, *preset_names(), *recipe.preset_names(), *RESULTS.names()]


def values(rng: random.Random, flag: Flag, kind: Any = None) -> list[str]:
    """Return the words after a flag."""
    kind = flag.kind if kind is None else kind
    kind, _ = _split(kind)
    origin = typing.get_origin(kind)
    if origin is Union or isinstance(kind, types.UnionType):
        return values(rng, flag, rng.choice(typing.get_args(kind)))
    if origin is tuple:
        return [word for _ in range(rng.randint(0, 3)) for word in values(rng, flag, typing.get_args(kind)[0])]
    if origin is Literal:
        choice = str(rng.choice([c for c in typing.get_args(kind) if c != "ray"]))  # starting Ray takes too long
        return [choice if rng.random() < 0.8 else misspelt(rng, choice)]
    if kind is type(None):
        return ["None"]
    if kind is int:
        small = [n for n in INTEGERS if not (n.strip().isdecimal() and int(n) > 3)]
        return [rng.choice(small if flag.takes_time or "workers" in flag.name else INTEGERS)]
    if kind is float:
        return [rng.choice(FLOATS)]
    if kind is Path:  # what was made for all cases is to be read only
        return [rng.choice([path for path in PATHS if not (flag.name == "--out" and path.startswith(IN))])]
    if kind is str:
        return [rng.choice([*names(), *WORDS] if rng.random() < 0.7 else [misspelt(rng, rng.choice(names()))])]
    return [rng.choice(WORDS)]


def make(name: str) -> Case:
    """Make the case of a name."""
    rng = random.Random(name)
    command = rng.choices(COMMANDS, [c.weight for c in COMMANDS])[0]
    flags, positional = flags_of(command.options)
    chosen = {flag: [value] for flag, value in command.flags.items()}
    for flag in some(rng, flags, 0, 3) if rng.random() < 0.9 else []:
        _set(rng, chosen, flag)
    places = list(command.positional)
    if positional and rng.random() < 0.2:
        places = values(rng, positional[0])
    if rng.random() < 0.06 and "--out" in {flag.name for flag in flags}:
        chosen |= {"--out": ["../foreign"], "--overwrite": []}
    args = [*command.words, *places, *_written(rng, chosen | {f: [v] for f, v in command.never.items()})]
    if rng.random() < 0.25:
        args = _disturbed(rng, args, flags)
    env = {k: rng.choice(v) for k, v in ENVIRONMENT.items() if rng.random() < 0.03}
    stdout = "utf-8" if rng.random() < 0.85 else rng.choice(["ascii", "latin-1", "broken", "closed", "full"])
    if "report" in args:  # which writes beside what it reads
        args = [word.replace(f"{IN}/", "") for word in args]
        return Case(name, args, env=env, stdout=stdout, prepare=copies)
    return Case(name, args, env=env, stdout=stdout, prepare=odd_paths)


def copies(here: Path) -> None:
    """Put copies of finished runs into the working directory."""
    odd_paths(here)
    for run in ("run", "fragments", "layer"):
        shutil.copytree(here / IN / run, here / run)


def odd_paths(here: Path) -> None:
    """Put what nobody can read into the working directory: a loop of links, a pipe that nobody writes to."""
    (here / "loop").symlink_to("loop")
    os.mkfifo(here / "fifo")


def _set(rng: random.Random, chosen: dict[str, list[str]], flag: Flag) -> None:
    if flag.kind is bool:
        chosen[flag.name.replace("--", "--no-") if flag.pairs and rng.random() < 0.5 else flag.name] = []
    else:
        chosen[flag.name] = values(rng, flag)


def _written(rng: random.Random, chosen: dict[str, list[str]]) -> list[str]:
    groups = [
        [f"{flag}={given[0]}"] if len(given) == 1 and rng.random() < 0.1 else [flag, *given]
        for flag, given in chosen.items()
    ]
    rng.shuffle(groups)
    return [word for group in groups for word in group]


def _disturbed(rng: random.Random, args: list[str], flags: list[Flag]) -> list[str]:
    """Return arguments with a word lost, doubled, misspelt, added or moved."""
    args, place = list(args), rng.randrange(len(args))
    known = [flag.name for flag in flags] or ["--out"]
    extras: list[Callable[[], list[str]]] = [
        lambda: [misspelt(rng, rng.choice(known))],
        lambda: [misspelt(rng, rng.choice(known)), "3"],
        lambda: [rng.choice(WORDS)],
        lambda: ["--help"],
        lambda: ["-h"],
        lambda: ["--version"],
        lambda: ["--tyro-print-completion", rng.choice(["bash", "x"])],
        lambda: [rng.choice(known)],
        lambda: ["--resume"],
        lambda: ["--overwrite"],
    ]
    match rng.randrange(5):
        case 0:
            del args[place]
        case 1:
            args.insert(place, args[place])
        case 2:
            args[place] = misspelt(rng, args[place])
        case 3:
            args[place:place] = rng.choice(extras)()
        case _:
            args += rng.choice(extras)()
    return args
