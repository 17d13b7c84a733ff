"""Which devices take part in a round (Sec. II; Sec. IV draws their number uniformly from 7 to 13 of 40)."""

from pathlib import Path
from typing import ClassVar, Literal

import torch
from pydantic import Field, field_validator, model_validator

from aircomp.common.artefact import read_text
from aircomp.common.settings import NeedsTable, Settings, absolute, needs
from aircomp.errors import ArtefactError, ConfigError


class ParticipationSettings(Settings):
    """How the active devices of a round are chosen."""

    NEEDS: ClassVar[NeedsTable] = {
        "low": needs("kind", "uniform"),
        "high": needs("kind", "uniform"),
        "number": needs("kind", "fixed"),
        "probability": needs("kind", "bernoulli"),
        "trace": needs("kind", "trace"),
    }

    kind: Literal["uniform", "fixed", "bernoulli", "trace"] = "uniform"
    """uniform: a random number of random devices; fixed: always the same number; bernoulli: each device by chance;
    trace: from a file."""
    low: int = Field(default=7, ge=0)
    """uniform: the least number of active devices (paper: 7)."""
    high: int = Field(default=13, ge=0)
    """uniform: the greatest number of active devices, included (paper: 13)."""
    number: int = Field(default=10, ge=0)
    """fixed: the number of active devices."""
    probability: float = Field(default=0.25, ge=0, le=1)
    """bernoulli: the probability that a device is active."""
    trace: Path | None = None
    """trace: a text file. Line t holds the ids of the devices active in round t, separated by spaces; after the last
    line it starts over."""

    _absolute = field_validator("trace")(absolute)

    @model_validator(mode="after")
    def _consistent(self) -> "ParticipationSettings":
        if self.low > self.high:
            raise ValueError(f"low = {self.low} is above high = {self.high}; exchange them")
        if self.kind == "trace" and self.trace is None:
            raise ValueError("kind = 'trace' needs the path of a file in the setting trace")
        return self


def active_devices(
    settings: ParticipationSettings, total: int, round_index: int, *, rng: torch.Generator
) -> tuple[int, ...]:
    """Return the ids of the devices active in round `round_index`, ascending.

    Args:
        settings: How to choose.
        total: Number of devices (paper: K_t); ids are 0 to `total - 1`.
        round_index: The round, from 0; only a trace looks at it.
        rng: The generator of this round.

    Raises:
        ConfigError: If more devices are asked for than there are, or the line of the trace is wrong.
        ArtefactError: If the trace cannot be read.
    """
    match settings.kind:
        case "uniform":
            _check_number("high", settings.high, total)
            number = int(torch.randint(settings.low, settings.high + 1, (), generator=rng, device=rng.device))
            return _choose(number, total, rng)
        case "fixed":
            _check_number("number", settings.number, total)
            return _choose(settings.number, total, rng)
        case "bernoulli":
            active = torch.rand(total, generator=rng, device=rng.device) < settings.probability
            return tuple(active.nonzero().flatten().tolist())
        case "trace":
            lines = _trace_lines(settings)
            return _parse_line(lines, round_index % len(lines), total, settings)


def check_participation(settings: ParticipationSettings, total: int) -> None:
    """Raise what `active_devices` would raise in any round: a bad line is found before the first, not at its turn."""
    match settings.kind:
        case "uniform":
            _check_number("high", settings.high, total)
        case "fixed":
            _check_number("number", settings.number, total)
        case "trace":
            lines = _trace_lines(settings)
            for index in range(len(lines)):
                _parse_line(lines, index, total, settings)


def most_active(settings: ParticipationSettings, total: int) -> int:
    """Return the most devices that may be active in a round."""
    match settings.kind:
        case "uniform":
            return settings.high
        case "fixed":
            return settings.number
        case "bernoulli":
            return total
        case "trace":
            return max(len(line.split()) for line in _trace_lines(settings))


def _check_number(name: str, number: int, total: int) -> None:
    if number > total:
        raise ConfigError(f"{name} = {number} active devices, but there are only {total}; lower {name} or add devices")


def _choose(number: int, total: int, rng: torch.Generator) -> tuple[int, ...]:
    return tuple(sorted(torch.randperm(total, generator=rng, device=rng.device)[:number].tolist()))


def _trace_lines(settings: ParticipationSettings) -> list[str]:
    assert settings.trace is not None  # the settings' validator asked for it
    try:
        lines = read_text(settings.trace).splitlines()
    except ArtefactError as error:
        raise ArtefactError(f"the trace {error}") from None
    if not lines:
        raise ConfigError(f"the trace {settings.trace} is empty; expected one line of device ids a round")
    return lines


def _parse_line(lines: list[str], index: int, total: int, settings: ParticipationSettings) -> tuple[int, ...]:
    words = lines[index].split()
    where = f"line {index + 1} of the trace {settings.trace}"
    for word in words:
        if not (word.isascii() and word.isdecimal() and len(word) < 20 and int(word) < total):
            raise ConfigError(
                f"{where} holds {word[:20]!r}; expected device ids from 0 to {total - 1} separated by spaces"
            )
    ids = sorted(int(word) for word in words)
    if len(set(ids)) < len(ids):
        raise ConfigError(f"{where} names a device twice; name each active device once")
    return tuple(ids)
