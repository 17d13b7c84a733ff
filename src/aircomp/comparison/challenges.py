"""Challenges: each asks one question about schemes, in a TOML file of a dozen lines."""

from typing import Any

from pydantic import Field

from aircomp.common.settings import Presets, Settings
from aircomp.errors import unknown_name

ORDER = ("awgn", "awgn-cap", "budget", "devices", "phase", "csi", "power", "timing", "blind")
ORDER += ("byzantine", "byzantine-flip", "byzantine-scale", "heterogeneous")
"""The order of the challenges on the page."""


class Challenge(Settings):
    """One question, and the one size that varies."""

    title: str
    question: str
    """One sentence."""
    axis: str
    """The field that varies; `measure/fields.py` has its heading."""
    values: tuple[float, ...]
    """The values of the axis: the points of the figure."""
    vary: dict[str, tuple[Any, ...]]
    """Settings by path, with a value for each of `values`."""
    schemes: tuple[str, ...]
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings that are the same at all points."""
    robust: bool = False
    """Whether every scheme takes the most robust aggregation rule that it can serve."""
    trained_at: tuple[float, ...] = ()
    """The values at which models are trained; empty: all of them."""

    def places(self, task: str) -> list[int]:
        """Return the places in `values` that a task measures."""
        chosen = self.trained_at if task == "training" and self.trained_at else self.values
        return [place for place, value in enumerate(self.values) if value in chosen]

    def settings_at(self, place: int, others: dict[str, Any]) -> dict[str, Any]:
        """Return all settings of a point; `others` take the place of the challenge's own, but for what varies."""
        return self.settings | others | {path: values[place] for path, values in self.vary.items()}


CHALLENGES = Presets(Challenge, "comparison", "challenges")


def challenge_names() -> list[str]:
    """Return the names of all challenges, in the order of the page."""
    return sorted(CHALLENGES.names(), key=ORDER.index)


def find_challenge(name: str) -> Challenge:
    """Return a challenge by its name, or from a TOML file of your own.

    Raises:
        ConfigError: If there is none.
    """
    if not name.endswith(".toml") and name not in CHALLENGES.names():
        raise unknown_name("challenge", name, challenge_names())
    return CHALLENGES.load(name)
