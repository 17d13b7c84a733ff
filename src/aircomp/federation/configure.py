"""From a preset, keywords and a user's own parts to the settings of a run; what cannot work is refused here."""

import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

from aircomp.channel.base import make_channel
from aircomp.channel.settings import COHERENT, BlockFadingSettings
from aircomp.common.settings import given_paths
from aircomp.common.tensors import check_device
from aircomp.errors import ConfigError
from aircomp.federation.experiment import Buffers, Experiment, full_name, load_experiment
from aircomp.federation.participation import check_participation, clipped
from aircomp.federation.round import MEMORIES_IN_RAM
from aircomp.federation.settings import Bernoulli, Fixed, ParticipationSettings, Uniform
from aircomp.quantize.fragment import num_slots
from aircomp.schemes.base import Scheme
from aircomp.schemes.outputs import Vote
from aircomp.schemes.registry import scheme_class

FLOAT, INTEGER = 4, 8  # bytes
WORKER = 16_000_000
"""Bytes that a forked process does not share with its parent."""
OF_THE_RADIO = ("channel", "power")
"""Groups of settings that have no effect on an uplink without radio."""


def configure(
    preset: str | Path | Experiment, overrides: dict[str, Any], own: dict[str, Any] | None = None
) -> Experiment:
    """Return the preset with overrides in place; every mistake is reported with its path.

    Args:
        preset: As for `simulate`.
        overrides: Settings by name.
        own: The user's own parts by keyword of `simulate`; the settings keep the name of each.
    """
    if own:
        from aircomp.federation.own import check_parts

        check_parts(own)
    experiment = preset if isinstance(preset, Experiment) else load_experiment(preset)
    experiment = name_parts(experiment.changed(**_full_names(overrides)), own or {})
    given = given_paths(_full_names(overrides))
    experiment = default_rule(default_power_control(default_scheme(experiment, given), given))
    if experiment.own.channel and not _own_scheme(experiment) and not scheme_class(experiment.uplink.name).uses_radio:
        raise ConfigError(
            f"a channel was given, but uplink = {experiment.uplink.name!r} has none; choose a digital one, say gamp"
        )
    if not any(path.startswith("participation.") for path in given):
        experiment = experiment.changed(participation=clipped(experiment.participation, experiment.devices.total))
    check_participation(experiment.participation, experiment.devices.total)
    if experiment.buffers == "recomputed" and experiment.server.base == "first-device":
        raise ConfigError(
            "buffers = 'recomputed' takes images of the base station, but with server.base = 'first-device' it has none; "
            "use buffers = 'average' or 'estimated'"
        )
    check_device("device", experiment.device)
    return experiment


def check_buffers(policy: Buffers, uplink: Scheme) -> None:
    """Refuse `buffers = 'estimated'` where the uplink makes no estimate.

    Raises:
        ConfigError: If the uplink is told the number of devices.
    """
    if policy == "estimated" and not getattr(uplink, "estimates_num_active", True):
        raise ConfigError(
            f"buffers = 'estimated' divides by the estimated number of devices, but uplink = {uplink.name!r} estimates "
            "nothing; use buffers = 'average', or a digital uplink"
        )


def default_scheme(experiment: Experiment, given: Collection[str]) -> Experiment:
    """Choose an uplink for a fading channel where the user gave none.

    Signals that arrive in phase are heard by `widened`, others by `blind`. The scheme of the preset `digits` is made for
    white noise, so who asks for fading alone gets a receiver for it.

    Args:
        experiment: The settings.
        given: Paths of those that the user gave.
    """
    name = experiment.uplink.name
    open_choice = name == "ideal" or (name == "amp-da-net" and "channel.kind" in given)
    chosen = not open_choice or "uplink.name" in given or experiment.own.uplink
    if not isinstance(experiment.channel, BlockFadingSettings) or chosen:
        return experiment
    return experiment.changed(uplink="widened" if experiment.power.control in COHERENT else "blind")


def _own_scheme(experiment: Experiment) -> bool:
    return bool(experiment.own.uplink or experiment.own.decoder)


def default_power_control(experiment: Experiment, given: Collection[str]) -> Experiment:
    """Return the settings with the power control that a scheme is made of, where the user gave none.

    Args:
        experiment: The settings.
        given: Paths of those that the user gave.
    """
    implied = scheme_class(experiment.uplink.name).power_control
    if implied is None or not isinstance(experiment.channel, BlockFadingSettings) or _own_scheme(experiment):
        return experiment
    if "power.control" in given or experiment.power.control != "none":
        return experiment
    return experiment.changed(**{"power.control": implied[0]})


def default_rule(experiment: Experiment) -> Experiment:
    """Return the settings with the rule that votes serve, where a scheme for votes was asked for and no rule."""
    votes = scheme_class(experiment.uplink.name).offers is Vote and not _own_scheme(experiment)
    if not votes or experiment.own.aggregator or "rule" in experiment.aggregate.model_fields_set:
        return experiment
    return experiment.changed(**{"aggregate.rule": "sign-vote"})


def check_phase(experiment: Experiment) -> None:
    """Refuse schemes that need gains of a common phase where the channel gives none.

    Raises:
        ConfigError: Naming those that do not.
    """
    make_channel(experiment.channel, experiment.power)  # refuses what cannot be
    if experiment.own.channel or experiment.own.uplink:
        return
    name, control = experiment.uplink.name, experiment.power.control
    faded = isinstance(experiment.channel, BlockFadingSettings)
    named = scheme_class(name)
    if faded and named.power_control is not None and control != named.power_control[0]:
        needed, same = named.power_control
        raise ConfigError(
            f"uplink = {name!r} is {same!r} with power.control = {needed!r}, but power.control = {control!r} was given; use "
            f"that one, or uplink = {same!r}"
        )
    if named.needs_places and (not faded or control in COHERENT):
        given = f"channel.kind = {experiment.channel.kind!r}" if not faded else f"power.control = {control!r}"
        raise ConfigError(
            f"uplink = {name!r} counts by how loud each access point hears a zone, but {given} was given; use channel.kind = "
            "'fading' with power.control = 'none' or 'statistical'"
        )
    if not faded or control in COHERENT or not named.facts.needs.startswith("in phase"):
        return
    raise ConfigError(
        f"uplink = {name!r} needs signals that arrive in phase, but power.control = {control!r} leaves phases random; use "
        "power.control = 'inversion', or uplink = 'blind'"
    )


def check_radio(uplink: Scheme, overrides: dict[str, Any]) -> None:
    """Refuse settings of a channel that an uplink of the user's own does not use.

    Raises:
        ConfigError: Naming the setting.
    """
    for path in given_paths(_full_names(overrides)):
        if path.split(".")[0] in OF_THE_RADIO and not uplink.uses_radio:
            raise ConfigError(f"{path} was given but has no effect: the uplink {uplink.name!r} does not use the radio")


def check_overrides(experiment: Experiment, overrides: dict[str, Any]) -> None:
    """Refuse keywords without effect on the experiment."""
    check_given(experiment, given_paths(_full_names(overrides)))


def check_given(experiment: Experiment, given: Collection[str]) -> None:
    """Refuse settings that the user gave and that have no effect beside the others.

    What is without effect inside a group cannot be written at all. One that comes from a preset may be without effect
    beside another group: nobody asked for it.

    Args:
        experiment: All settings.
        given: Paths of those that the user gave.

    Raises:
        ConfigError: Naming each.
    """
    why = _without_effect(experiment)
    told = [
        f"{path} was given but has no effect: {reason}"
        for path in given
        for reason in [r for place, r in why if path == place or path.startswith(f"{place}.")][:1]
    ]
    if told:
        raise ConfigError("; ".join(told))


def _without_effect(experiment: Experiment) -> list[tuple[str, str]]:
    """Return the groups and settings that act on nothing beside the others, and why."""
    own, name, channel, power = experiment.own, experiment.uplink.name, experiment.channel, experiment.power
    faded = isinstance(channel, BlockFadingSettings)
    radio = _own_scheme(experiment) or scheme_class(name).uses_radio
    silent = f"uplink = {name!r} does not use the radio"
    controls = [f"power.{setting}" for setting in ("control", "threshold", "peak_db")]
    recalled = name != "ideal" or _own_scheme(experiment)
    norm = own.model or getattr(experiment.model, "norm", None) == "batch"
    rows: list[tuple[bool, str | list[str], str]] = [
        (bool(own.uplink), ["uplink", "server.include_base_station"], f"the uplink is your own, {own.uplink}"),
        (bool(own.decoder), "uplink.name", f"the decoder is your own, {own.decoder}"),
        (bool(own.channel), ["channel", "power"], f"the channel is your own, {own.channel}"),
        (bool(own.model), ["model", "local.together"], f"the model is your own, {own.model}"),
        (bool(own.dataset), "data.name", f"the dataset is your own, {own.dataset}"),
        (bool(own.aggregator), "aggregate.rule", f"the rule is your own, {own.aggregator}"),
        (not radio, ["channel", "power"], silent),
        (not faded, controls, f"channel.kind = {channel.kind!r} does not fade; use channel.kind = 'fading'"),
        (
            channel.snr_reference != "transmit",
            "power.cap",
            f"it needs channel.snr_reference = 'transmit', not {channel.snr_reference!r}",
        ),
        (
            power.control not in COHERENT,
            "channel.errors.csi_correlation",
            f"power.control = {power.control!r} does not ask what devices know",
        ),
        (not recalled and experiment.corruption.kind != "silent", "feedback", "uplink = 'ideal' leaves nothing out"),
        (not recalled, "aggregate.readout", "uplink = 'ideal' decodes no counts"),
        (not norm, "buffers", "the model has no batch normalisation"),
        (
            experiment.server.base == "first-device",
            "partition.base_station_samples",
            "with server.base = 'first-device' the base station has no samples",
        ),
        (experiment.engine == "serial", "workers", "engine = 'serial' has no workers"),
        (experiment.engine != "ray", "ray_address", f"it needs engine = 'ray', not {experiment.engine!r}"),
    ]
    return [
        (place, reason)
        for useless, places, reason in rows
        if useless
        for place in ([places] if isinstance(places, str) else places)
    ]


def _full_names(overrides: dict[str, Any]) -> dict[str, Any]:
    return {full_name(name): value for name, value in overrides.items()}


def name_parts(experiment: Experiment, own: dict[str, Any]) -> Experiment:
    """Return the settings with the names of the user's own parts.

    Raises:
        ConfigError: If the settings come from a run with parts that are missing here.
    """
    names: dict[str, str] = {}
    if own:
        from aircomp.federation.own import own_name

        names = {name: own_name(part) for name, part in own.items()}
    if missing := {k: v for k, v in experiment.own.names.items() if k not in names}:
        parts = ", ".join(f"{k} = {v}" for k, v in missing.items())
        raise ConfigError(
            f"these settings are of a run from Python with parts of its own ({parts}); "
            "run it with aircomp.simulate and the same parts"
        )
    return experiment.changed(own=names) if names else experiment


def memory_needs(experiment: Experiment, num_params: int) -> dict[str, int]:
    """Return bytes by what they are for, for `aircomp.common.memory.check_memory`."""
    active = _mean_active(experiment.participation, experiment.devices.total)
    needs = {
        "the model and its gradient (model.width, model.blocks)": 2 * num_params * FLOAT,
        "the updates of active devices (participation, model.width)": active * num_params * FLOAT,
    }
    if experiment.engine == "processes" and experiment.workers > 1:
        needs["worker processes (workers)"] = experiment.workers * WORKER
    if experiment.feedback.kind != "off":
        taken_part = _taken_part(experiment.devices.total, active, experiment.rounds)
        needs["error memories (devices.total, model.width)"] = min(taken_part * num_params * FLOAT, MEMORIES_IN_RAM)
    length, uses = experiment.fragment_length, getattr(experiment.uplink, "codeword_length", 0)
    codewords = getattr(getattr(experiment.uplink, "quantize", None), "num_codewords", 0)
    if uses:
        slots = num_slots(num_params, length)
        needs["fragments (uplink.quantize.fragment_length)"] = (active + 1) * slots * length * FLOAT
        needs["received slots (uplink.codeword_length)"] = slots * uses * FLOAT
        needs["counts (uplink.quantize.num_codewords, uplink.quantize.fragment_length)"] = (
            slots * codewords * 2 * INTEGER
        )
        needs["codebooks (uplink.quantize.num_codewords, uplink.codeword_length)"] = codewords * (length + uses) * FLOAT
    return needs


def _mean_active(participation: ParticipationSettings, total: int) -> int:
    match participation:
        case Uniform():
            return (participation.low + participation.high) // 2
        case Fixed():
            return participation.number
        case Bernoulli():
            return int(participation.probability * total)
        case _:
            return 0  # not known without reading it


def _taken_part(total: int, active: int, rounds: int) -> int:
    """Return how many devices have taken part at least once after some rounds, on average."""
    if active >= total:
        return total if rounds else 0
    return int(-total * math.expm1(min(rounds, 10**9) * math.log1p(-active / total)))
