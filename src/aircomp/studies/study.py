"""Studies: a TOML file each, with a question, what varies, what is measured, and claims about it.

    results/NAME.toml       a table or figure of the paper, or one that we add: `aircomp reproduce`
    challenges/NAME.toml    schemes beside each other at equal channel uses and energy: `aircomp arena`

A claim is the paper's only where it names the section that makes it. Where the paper gives no number, the margin is ours.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from aircomp.common.artefact import config_hash
from aircomp.common.checks import check_name
from aircomp.common.results import Row
from aircomp.common.settings import Presets, Settings
from aircomp.errors import ConfigError, unknown_name

Source = Literal["paper", "ours"]
"""Who says something."""
Where = dict[str, Any]
"""Fields that tell one row from the others."""
EACH = "each"
"""In the place of a value of a claim's side: what `each` has under this name."""


class Claim(Settings):
    """A sentence about two rows, A and B: the paper's, or one that we add."""

    says: str
    field: str
    a: Where
    """The row that should be larger; for errors the rival's."""
    b: Where
    kind: Literal["larger", "near"] = "larger"
    """A is larger than B, or they are near each other."""
    margin: float = 0.0
    """By how much larger, or how near."""
    section: str = ""
    """Where the paper says it; empty: we do."""

    @property
    def source(self) -> Source:
        """Who says it."""
        return "paper" if self.section else "ours"

    @property
    def common(self) -> Where:
        """What A and B share: rows that have it, or nothing there, belong to the comparison."""
        return {name: value for name, value in self.a.items() if self.b.get(name) == value}

    @property
    def criterion(self) -> str:
        """What must hold for the claim, for people."""
        return f"A − B > {self.margin:g}" if self.kind == "larger" else f"|A − B| < {self.margin:g}"


class ClaimOfEach(Claim):
    """A claim that is made several times."""

    each: dict[str, tuple[Any, ...]] | tuple[dict[str, Any], ...] = ()
    """Values by name, of which all combinations are meant, or a list of them with perhaps a margin each. They take the place
    of `"each"` in A and B, and of {name} in the sentence."""

    def claims(self) -> Iterator[Claim]:
        """Yield every one of them."""
        told: dict[str, Any] = self.model_dump(exclude={"each"}, exclude_unset=True)
        each = self.each
        if isinstance(each, Mapping):
            each = [dict(zip(each, values, strict=True)) for values in product(*each.values())]
        for values in each or ({},):
            sides = {side: {k: values[k] if v == EACH else v for k, v in told[side].items()} for side in ("a", "b")}
            margin = {"margin": values["margin"]} if "margin" in values else {}
            yield Claim.parse(told | sides | margin | {"says": self.says.format(**values)})


class Study(Settings):
    """A question, and the claims about its answer."""

    title: str
    question: str
    """One sentence; of a result of the paper, what the paper says."""
    claim: tuple[ClaimOfEach, ...] = ()

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Every claim."""
        return tuple(found for each in self.claim for found in each.claims())


# ── results ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Axis(Settings):
    """Something that varies over the jobs of a measurement."""

    setting: str = ""
    """The path of the setting that has the values."""
    values: tuple[Any, ...] = ()
    named: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Instead of values: what jobs are told, by name."""
    at: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    """The values or names at scales that have not all of them."""

    def places(self, scale: str) -> list[tuple[Any, dict[str, Any]]]:
        """Return every value with what jobs are told."""
        chosen = self.at.get(scale, tuple(self.named) or self.values)
        return [(v, self.named[v] if self.named else _nested(self.setting, v)) for v in chosen]


def _nested(path: str, value: Any) -> dict[str, Any]:
    """Return a value under `group/setting`; without a group it is a parameter of the job itself."""
    group, slash, name = path.partition("/")
    return {group: {name: value}} if slash else {path: value}


class Measurement(Settings):
    """Jobs of one kind: one for every combination of what varies, with every seed."""

    kind: str
    """Which function of `kinds.py` makes the job."""
    only: tuple[str, ...] = ()
    """The scales that have it; empty: all."""
    params: dict[str, Any] = Field(default_factory=dict)
    """What all of these jobs are told."""
    over: dict[str, Axis] = Field(default_factory=dict)
    by: tuple[str, ...] = ()
    """Fields of a job's own rows that tell them apart."""
    keep: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    """The rows of a job that are taken: those with one of these values."""
    fields: tuple[str, ...] = ()
    """What is averaged over seeds; empty: as in the measurement before, whose rows these join."""

    def places(self, scale: str) -> Iterator[tuple[Row, dict[str, Any]]]:
        """Yield every combination: the fields that tell it from others, and what its job is told."""
        for place in product(*(axis.places(scale) for axis in self.over.values())):
            told = self.params
            for _, more in place:
                told = _merged(told, more)
            yield dict(zip(self.over, (value for value, _ in place), strict=True)), told


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        k: _merged(one[k], v) if isinstance(v, Mapping) and isinstance(one.get(k), Mapping) else v
        for k, v in other.items()
    }
    return {**one, **both}


class Drawing(Settings):
    """A figure of the rows: lines over an axis, or bars."""

    field: str
    labels: tuple[str, ...]
    """The fields that name a line."""
    x: str = "snr_db"
    where: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    """The rows that are drawn: those with one of these values."""
    panels: str = ""
    """A field of which every value has a panel; rows of schemes that have one value only stand in all of them."""
    log: bool = False
    title: str = ""


class Result(Study):
    """A table or figure of the paper, or one that we add."""

    section: str = ""
    """Where the paper has it; empty: we add it."""
    numbers: tuple[str, ...] = ()
    """What the paper calls it; names of `aircomp reproduce`, too."""
    only: tuple[str, ...] = ()
    """The scales that it can be run at; all if empty."""
    seeds: int = 0
    """How many seeds at the most; 0: as many as asked for."""
    order: int = 99
    """Its place on the page."""
    same_as: str = ""
    """A result whose measurements this one looks at in another way."""
    measure: tuple[Measurement, ...] = ()
    show: tuple[str, ...] = ()
    """The fields that the docs show, the first one as a figure; all if empty."""
    note: str = ""
    printed: tuple[dict[str, Any], ...] = ()
    """Numbers of the paper: the fields of a row, and `value`."""
    printed_note: str = ""
    draw: tuple[Drawing, ...] = ()
    """Figures beside or instead of the usual one."""
    extra: tuple[Literal["curves", "geometry", "information", "working-range"], ...] = ()
    """What the report shows beside that."""
    full: str = ""
    """What it would take to judge the claims fully, where that is not the same at the scale `paper`."""

    @property
    def source(self) -> Source:
        """Whose it is."""
        return "paper" if self.section else "ours"

    @property
    def statement(self) -> str:
        """What is said of it, and by whom."""
        return f"The paper ({self.section}): {self.question}" if self.section else f"We add: {self.question}"

    def printed_value(self, row: Row) -> float | None:
        """Return what the paper prints for a row."""
        for each in self.printed:
            if all(row.get(name) == value for name, value in each.items() if name != "value"):
                return each["value"]
        return None


class Results(Presets[Result]):
    """All results, in the order of the page."""

    def all(self) -> dict[str, Result]:
        """Return them by name."""
        found = {name: self.load(name) for name in self.names()}
        return dict(sorted(found.items(), key=lambda item: item[1].order))

    def find(self, name: str, scale: str) -> str:
        """Return the name of a result given by name or number, if it can be run at a scale.

        Raises:
            ConfigError: If it cannot, or there is none.
        """
        known = self.all()
        named = {number: each for each, result in known.items() for number in result.numbers}
        found = name if name in known else named.get(name)
        if found is None:
            raise unknown_name("result", name, [*known, *named, "all"])
        if scale not in (known[found].only or (scale,)):
            usable = " or ".join(known[found].only)
            raise ConfigError(f"the result {found} is not for --scale {scale}; use --scale {usable}")
        return found

    def at(self, scale: str) -> dict[str, Result]:
        """Return the results that can be run at a scale."""
        return {name: result for name, result in self.all().items() if scale in (result.only or (scale,))}

    def measurements(self, name: str, scale: str) -> list[Measurement]:
        """Return what a result measures at a scale."""
        return [each for each in self.load(self.home(name)).measure if scale in (each.only or (scale,))]

    def home(self, name: str) -> str:
        """Return the result whose measurements a result has: mostly its own."""
        return self.load(name).same_as or name


RESULTS = Results(Result, "studies", "results")


# ── challenges ───────────────────────────────────────────────────────────────────────────────────────────────────────

EMBEDDED = "digits"
"""The preset of a challenge that names none: its data come with the package."""
TASKS = ("round", "training")
Task = Literal["round", "training"]


class Challenge(Study):
    """One question about schemes, and the one size that varies."""

    axis: str
    """The field that varies; `measure/fields.py` has its heading."""
    values: tuple[float, ...] = Field(min_length=1)
    """The values of the axis: the points of the figure."""
    vary: dict[str, tuple[Any, ...]] = Field(min_length=1)
    """Settings by path, with a value for each of `values`."""
    schemes: tuple[str, ...] = Field(min_length=1)
    preset: str = EMBEDDED
    """Whose data, model and local training the rounds are of; or a TOML file."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings that are the same at all points."""
    robust: bool = False
    """Whether every scheme takes the most robust aggregation rule that it can serve."""
    trained_at: tuple[float, ...] = ()
    """The values at which models are trained; empty: all of them."""
    order: int = 99
    """Its place on the page."""
    physics: str = ""
    """What is modelled, in a paragraph, and what theory says of it."""
    version: int = Field(default=1, ge=1)
    """Grows whenever what is measured changes: numbers of two versions are no rivals."""
    frozen: str = ""
    """The fingerprint of what is measured; empty in a file of your own that is not frozen."""

    @property
    def fingerprint(self) -> str:
        """A hash of what is measured. Words and entrants are no part of it: schemes may join a frozen challenge."""
        measured = self.model_dump(mode="json", include={"axis", "values", "vary", "settings", "robust", "version"})
        return config_hash(measured | ({} if self.preset == EMBEDDED else {"preset": self.preset}))

    @model_validator(mode="after")
    def _as_frozen(self) -> "Challenge":
        if self.frozen and self.frozen != self.fingerprint:
            raise ValueError(
                f"the challenge was frozen as {self.frozen}, but is {self.fingerprint} now; undo the change, or raise "
                "version and freeze it anew"
            )
        return self

    @field_validator("values", "trained_at", mode="before")
    @classmethod
    def _numbers(cls, values: Any) -> Any:  # Any: before validation
        if isinstance(values, list | tuple) and not all(
            isinstance(v, int | float) and math.isfinite(v) for v in values
        ):
            raise ValueError("expected finite numbers")
        return values

    @model_validator(mode="after")
    def _as_many_as_values(self) -> "Challenge":
        for path, values in self.vary.items():
            if len(values) != len(self.values):
                raise ValueError(
                    f"vary.{path} has {len(values)} values for {len(self.values)} points; give one for each"
                )
        if len(set(self.values)) < len(self.values):
            raise ValueError("two points have the same value; leave one out")
        if unknown := set(self.trained_at) - set(self.values):
            raise ValueError(f"trained_at has {min(unknown):g}, which is none of values")
        return self

    def places(self, task: Task) -> list[int]:
        """Return the places in `values` that a task measures."""
        chosen = self.trained_at if task == "training" and self.trained_at else self.values
        return [place for place, value in enumerate(self.values) if value in chosen]

    def settings_at(self, place: int, others: Mapping[str, Any]) -> dict[str, Any]:
        """Return all settings of a point; `others` take the place of the challenge's own, but for what varies."""
        return self.settings | dict(others) | {path: values[place] for path, values in self.vary.items()}


CHALLENGES = Presets(Challenge, "studies", "challenges")


def challenge_names() -> list[str]:
    """Return the names of all challenges, in the order of the page."""
    return sorted(CHALLENGES.names(), key=lambda name: (CHALLENGES.load(name).order, name))


def find_challenge(name: str) -> Challenge:
    """Return a challenge by its name, or from a TOML file of your own.

    Raises:
        ConfigError: If there is none.
    """
    check_name("a challenge's name", name)
    if not name.endswith(".toml") and name not in CHALLENGES.names():
        raise unknown_name("challenge", name, challenge_names())
    return CHALLENGES.load(name)


def rows_with(rows: Sequence[Row], where: Mapping[str, Sequence[Any]]) -> list[Row]:
    """Return the rows that have, of every field, one of the given values."""
    return [row for row in rows if all(row.get(name) in values for name, values in where.items())]
