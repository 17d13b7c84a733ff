"""The schemes of a comparison: those of this package by name, a TOML file of settings, or a class of your own."""

import hashlib
import importlib
import inspect
import sys
import uuid
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from aircomp.common.checks import check_methods
from aircomp.common.settings import Settings, read_settings
from aircomp.errors import ConfigError, unknown_name
from aircomp.fl.experiment import AggregateSettings
from aircomp.uplinks.base import Uplink
from aircomp.uplinks.outputs import Counts, Mean, Output, Vectors, Vote
from aircomp.uplinks.schemes import make_uplink, uplink_names
from aircomp.uplinks.settings import UplinkSettings

ROBUST: dict[type[Output], str] = {
    Counts: "coordinate-median",
    Vectors: "coordinate-median",
    Mean: "mean",
    Vote: "sign-vote",
}
"""The most robust rule that each form of output serves."""


@dataclass(frozen=True)
class Entrant:
    """A scheme with its settings."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the experiment, by path."""
    ours: bool = False
    """Whether it is a scheme of this package: digital, or the hybrid of digital and analog."""
    own: str = ""
    """MODULE:CLASS of a user's scheme."""

    @cached_property
    def offers(self) -> type[Output]:
        """What the scheme offers, as it stands alone."""
        if self.own:
            return load_own(self.own).offers
        parts = {path.split(".", 1)[1]: value for path, value in self.settings.items() if path.startswith("uplink.")}
        return make_uplink(UplinkSettings().changed(**parts)).offers

    @cached_property
    def told(self) -> dict[str, str]:
        """What a job is told of a user's scheme: its name and a hash of its code, so that an edited one is measured anew."""
        return {"own": self.own, "source": source_hash(type(load_own(self.own)))} if self.own else {}


_NAMED = {
    "digital": ({"uplink.name": "gamp"}, True),
    "digital-matched": ({"uplink.name": "gamp", "uplink.energy": "matched"}, True),
    "digital-rate": ({"uplink.name": "gamp", "uplink.energy": "matched", "uplink.rate": "auto"}, True),
    "gamp-net": ({"uplink.name": "gamp-net"}, True),
    "joint-net": ({"uplink.name": "joint-net"}, True),
    "hybrid": ({"uplink.name": "hybrid"}, True),
    "widened": ({"uplink.name": "widened"}, True),
    "blind": ({"uplink.name": "blind"}, True),
    "blind-net": ({"uplink.name": "blind-net"}, True),
    "semi-blind": ({"uplink.name": "semi-blind"}, True),
    "analog-lmmse": ({"uplink.name": "analog", "uplink.analog.estimate": "lmmse"}, False),
}


def entrant_names() -> list[str]:
    """Return the names that `find_entrant` knows; those of uplinks are among them."""
    return list(dict.fromkeys([*_NAMED, *uplink_names()]))


def find_entrant(given: str) -> Entrant:
    """Return an entrant by its name, by a TOML file of settings, or by MODULE:CLASS.

    Raises:
        ConfigError: If there is none.
    """
    if given.endswith(".toml"):
        return _from_file(Path(given))
    if ":" in given:
        return Entrant(load_own(given).name, own=given)
    if given in _NAMED:
        settings, ours = _NAMED[given]
        return Entrant(given, settings, ours)
    if given not in uplink_names():
        raise unknown_name("scheme", given, entrant_names())
    return Entrant(given, {"uplink.name": given})


class _File(Settings):
    """A scheme's settings in a file, named as in a preset."""

    uplink: UplinkSettings = UplinkSettings()
    aggregate: AggregateSettings = AggregateSettings()


def _from_file(path: Path) -> Entrant:
    return Entrant(path.stem, _flat(read_settings(_File, path).model_dump(mode="json", exclude_unset=True)))


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in tree.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def load_own(given: str) -> Uplink:
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
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"--scheme {given}: {error}; expected MODULE:CLASS of a scheme that takes no arguments"
        ) from None
    check_methods("scheme", made, "broadcast", "encode", "decode", "diagnose")
    return made


_SEEN: dict[type, str] = {}


def source_hash(scheme: type) -> str:
    """Return a hash of the file that defines a class; a class without a file has a new one in every process.

    Raises:
        ConfigError: If the file has changed since it was first hashed here: the class is still the old one.
    """
    try:
        path = Path(inspect.getsourcefile(scheme) or "")
        found = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except (TypeError, OSError):
        return _SEEN.setdefault(scheme, uuid.uuid4().hex)
    if _SEEN.setdefault(scheme, found) != found:
        raise ConfigError(f"{path} has changed since it was imported; start Python anew, or use importlib.reload")
    return found
