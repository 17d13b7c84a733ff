"""Which devices take part in a round (Sec. II; Sec. IV draws their number uniformly from 7 to 13 of 40)."""

import torch

from aircomp.common.artefact import read_text
from aircomp.errors import ArtefactError, ConfigError
from aircomp.federation.settings import Bernoulli, Fixed, ParticipationSettings, Trace, Uniform


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
    match settings:
        case Fixed():
            _check_number("number", settings.number, total)
            return _choose(settings.number, total, rng)
        case Bernoulli():
            active = torch.rand(total, generator=rng, device=rng.device) < settings.probability
            return tuple(active.nonzero().flatten().tolist())
        case Trace():
            lines = _trace_lines(settings)
            return _parse_line(lines, round_index % len(lines), total, settings)
        case Uniform():
            _check_number("high", settings.high, total)
            number = int(torch.randint(settings.low, settings.high + 1, (), generator=rng, device=rng.device))
            return _choose(number, total, rng)
    raise TypeError(settings)  # a group is always one of its alternatives


def check_participation(settings: ParticipationSettings, total: int) -> None:
    """Raise what `active_devices` would raise in any round: a bad line is found before the first, not at its turn."""
    match settings:
        case Uniform():
            _check_number("high", settings.high, total)
        case Fixed():
            _check_number("number", settings.number, total)
        case Trace():
            lines = _trace_lines(settings)
            for index in range(len(lines)):
                _parse_line(lines, index, total, settings)


def clipped(settings: ParticipationSettings, total: int) -> ParticipationSettings:
    """Return settings that ask for no more devices than there are, for numbers that nobody gave."""
    match settings:
        case Uniform() if settings.high > total:
            return settings.changed(low=min(settings.low, total), high=total)
        case Fixed() if settings.number > total:
            return settings.changed(number=total)
    return settings


def most_active(settings: ParticipationSettings, total: int) -> int:
    """Return the most devices that may be active in a round."""
    match settings:
        case Uniform():
            return settings.high
        case Fixed():
            return settings.number
        case Trace():
            return max(len(line.split()) for line in _trace_lines(settings))
    return total


def fewest_active(settings: ParticipationSettings) -> int:
    """Return the fewest devices that are active in a round; none where chance or a file decides."""
    match settings:
        case Uniform():
            return settings.low
        case Fixed():
            return settings.number
    return 0


def _check_number(name: str, number: int, total: int) -> None:
    if number > total:
        raise ConfigError(
            f"participation.{name} = {number} active devices, but there are only {total}; lower it or raise devices.total"
        )


def _choose(number: int, total: int, rng: torch.Generator) -> tuple[int, ...]:
    return tuple(sorted(torch.randperm(total, generator=rng, device=rng.device)[:number].tolist()))


def _trace_lines(settings: Trace) -> list[str]:
    try:
        lines = read_text(settings.trace).splitlines()
    except ArtefactError as error:
        raise ArtefactError(f"the trace {error}") from None
    if not lines:
        raise ConfigError(f"the trace {settings.trace} is empty; expected one line of device ids a round")
    return lines


def _parse_line(lines: list[str], index: int, total: int, settings: Trace) -> tuple[int, ...]:
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
