"""The schemes of a comparison: those of this package by name, a TOML file of settings, or a class of your own.

Who invented a scheme and whether it is ours is read from its class. Two entrants are the same if their content is: settings,
and of a user's own class the files that it is made of. Two of one display name are told apart by what was given, or refused.
"""

import contextlib
import importlib
import logging
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from aircomp.aggregation.settings import AggregateSettings
from aircomp.common.boundary import blaming
from aircomp.common.checks import check_methods, check_name, describe
from aircomp.common.settings import Settings, read_settings
from aircomp.errors import ConfigError, unknown_name
from aircomp.schemes.base import Scheme
from aircomp.schemes.outputs import Counts, Mean, Output, Vectors, Vote
from aircomp.schemes.registry import scheme_class
from aircomp.schemes.settings import SchemeSettings, scheme_names
from aircomp.studies.sources import own_files, source_hash

log = logging.getLogger(__name__)

ROBUST: dict[type[Output], str] = {
    Counts: "coordinate-median",
    Vectors: "coordinate-median",
    Mean: "mean",
    Vote: "sign-vote",
}
"""The most robust rule that each form of output serves."""
OWN_UPDATE = "own-update"
"""The base station's own update, scaled to the least error: what there is without any radio."""
SKETCHED = {"uplink.codeword_length": 60, "sketch": 1 / 15}
"""Four uses of every slot of 64 are for sketches."""
SHORT = {
    "digital": {"uplink.name": "gamp"},
    "digital-matched": {"uplink.name": "gamp", "uplink.energy": "matched"},
    "digital-rate": {"uplink.name": "gamp", "uplink.energy": "matched", "uplink.rate": "auto"},
    "analog-lmmse": {"uplink.name": "analog", "uplink.estimate": "lmmse"},
    "analog-sketched": {"uplink.name": "analog"} | SKETCHED,
    "refined-sketched": {"uplink.name": "refined-analog"} | SKETCHED,
    "refined-soft": {"uplink.name": "refined-analog", "aggregate.readout": "soft"},
}
"""Names that are short for settings."""
REFERENCES = {
    OWN_UPDATE: "the base station's own update, best scaled, without radio",
    "ideal": "the exact mean",
    "perfect": "quantised, counts without errors",
    "capacity": "quantised, bits at the capacity of the multiple-access channel",
    "computation-rate": "whole numbers at the rate of compute-and-forward",
}
"""What is drawn beside the schemes and takes no part; none of them bounds the error of a scheme."""


@dataclass(frozen=True)
class Entrant:
    """A scheme with its settings."""

    name: str
    """What results call it."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the experiment, by path."""
    own: str = ""
    """MODULE:CLASS of a user's scheme, or `own-update`."""
    given: str = ""
    """What was asked for."""

    @cached_property
    def kind(self) -> type[Scheme]:
        """The class of the scheme."""
        if ":" in self.own:
            return type(load_own(self.own))
        return scheme_class(self.settings.get("uplink.name", "ideal"))

    @property
    def ours(self) -> bool:
        """Whether this package invented it."""
        return not self.own and self.kind.facts.ours

    @property
    def offers(self) -> type[Output]:
        """The form of its output."""
        return load_own(self.own).offers if ":" in self.own else self.kind.offers

    @cached_property
    def told(self) -> dict[str, str]:
        """What a job is told of it beside its settings: of a user's scheme a hash of its files, which may be edited."""
        return {"own": self.own} | ({"source": source_hash(self.kind)} if ":" in self.own else {})


@cache
def is_ours(name: str) -> bool:
    """Tell whether a scheme of this package by that name is this package's invention."""
    return name in entrant_names() and find_entrant(name).ours


def entrant_names() -> list[str]:
    """Return the names that `find_entrant` knows; those of schemes are among them."""
    return list(dict.fromkeys([OWN_UPDATE, *SHORT, *scheme_names()]))


def find_entrant(given: str) -> Entrant:
    """Return an entrant by its name, by a TOML file of settings, or by MODULE:CLASS.

    Raises:
        ConfigError: If there is none.
    """
    if not isinstance(given, str):
        raise ConfigError(f"schemes has {describe(given)}; expected names, TOML files or MODULE:CLASS")
    if given.endswith(".toml"):
        found = read_settings(_File, Path(given)).model_dump(mode="json", exclude_unset=True)
        return Entrant(Path(given).stem, _flat(found), given=given)
    if ":" in given:
        return Entrant(load_own(given).name, own=given, given=given)
    if given == OWN_UPDATE:
        return Entrant(given, own=OWN_UPDATE, given=given)
    if given not in entrant_names():
        raise unknown_name("scheme", given, entrant_names())
    return Entrant(given, SHORT.get(given, {"uplink.name": given}), given=given)


def find_entrants(given: Sequence[str]) -> list[Entrant]:
    """Return several entrants, each with a name of its own.

    Raises:
        ConfigError: If one is given twice.
    """
    found = [find_entrant(each) for each in given]
    taken = Counter(entrant.name for entrant in found)
    known = set(entrant_names())
    named = [
        replace(each, name=each.given.removesuffix(".toml"))
        if each.given != each.name and (taken[each.name] > 1 or each.name in known)
        else each
        for each in found
    ]
    twice = [name for name, number in Counter(entrant.name for entrant in named).items() if number > 1]
    if twice:
        raise ConfigError(f"the scheme {twice[0]} was given twice; leave one out, or give the other one another name")
    for each in named:
        check_name("a scheme's name", each.name)
    return named


class _File(Settings):
    """A scheme's settings in a file, named as in a preset."""

    uplink: SchemeSettings = SchemeSettings()
    aggregate: AggregateSettings = AggregateSettings()


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in tree.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


# ── schemes of the user's own ────────────────────────────────────────────────────────────────────────────────────────


def load_own(given: str) -> Scheme:
    """Import a scheme of the user's own; modules of the working directory are found, too.

    Raises:
        ConfigError: If there is no such module or class, or it is no scheme.
    """
    module, _, name = given.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        made = getattr(importlib.import_module(module), name)()
    except (Exception, SystemExit) as error:  # whatever a user's file raises
        log.debug("importing %s failed", given, exc_info=True)
        raise ConfigError(
            f"--scheme {given}: {type(error).__name__}: {error}; expected MODULE:CLASS of a scheme that takes no arguments"
        ) from None
    check_methods("scheme", made, "broadcast", "encode", "decode", "diagnose")
    check_name(f"the name of --scheme {given}", getattr(made, "name", None))
    if getattr(made, "offers", None) not in ROBUST:
        forms = ", ".join(form.__name__ for form in ROBUST)
        raise ConfigError(f"--scheme {given} has no offers; expected one of {forms}")
    return made


def named(own: str) -> contextlib.AbstractContextManager[None]:
    """Turn whatever a scheme of the user's own raises into one sentence that names it; of ours it is a bug, and stays."""
    return blaming(load_own(own)) if ":" in own else contextlib.nullcontext()


def check_told(params: Mapping[str, Any]) -> None:
    """Refuse a job whose scheme is no longer the one that the job was named for: its files changed before a worker read them.

    Args:
        params: What the job is told.
    """
    own = params["own"]
    if ":" not in own:
        return
    kind = type(load_own(own))
    if own_files(kind) and source_hash(kind) != params["source"]:
        raise ConfigError(f"the files of --scheme {own} have changed since the run began; start it again")
