"""From a preset, keywords and a user's own parts to the settings of a run; what cannot work is refused here."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from aircomp.aggregation import aggregator_names
from aircomp.channel import make_channel
from aircomp.channel.power import COHERENT
from aircomp.common.checks import check_device
from aircomp.common.settings import check_given, given_paths
from aircomp.decode.tuma import NAME as TUMA
from aircomp.errors import ConfigError, unknown_name
from aircomp.fl.experiment import Buffers, Experiment, load_experiment, present_name
from aircomp.fl.own import check_parts, part_name
from aircomp.fl.participation import check_participation
from aircomp.uplinks.base import Uplink
from aircomp.uplinks.orthogonal import KINDS as TDMA
from aircomp.uplinks.receivers import PHASELESS
from aircomp.uplinks.vote import KINDS as VOTE

SHORT_NAMES = {
    "channel": "channel.kind",
    "snr_db": "channel.snr_db",
    "snr_reference": "channel.snr_reference",
    "aggregator": "aggregate.rule",
    "layer": "uplink.layer",
}
"""Keywords of `simulate` that stand for a setting further down."""
PLACES = {
    "model": "model.name",
    "dataset": "data.name",
    "uplink": "uplink.name",
    "decoder": "uplink.name",
    "aggregator": "aggregate.rule",
}
"""Settings that name a built-in part; a part of the user's own puts its name there."""


def configure(
    preset: str | Path | Experiment, overrides: dict[str, Any], own: dict[str, Any] | None = None
) -> Experiment:
    """Return the preset with overrides in place; every mistake is reported with its path.

    Args:
        preset: As for `simulate`.
        overrides: Settings by name.
        own: The user's own parts by keyword of `simulate`; each gives its name to the settings in place of a built-in's.
    """
    check_parts(own or {})
    experiment = preset if isinstance(preset, Experiment) else load_experiment(preset)
    experiment = name_parts(experiment.changed(**_full_names(overrides)), own or {})
    given = given_paths(_full_names(overrides))
    experiment = counted_by(controlled_by(heard_by(experiment, given), given))
    if not experiment.own.aggregator and experiment.aggregate.rule not in aggregator_names():
        raise unknown_name("aggregation rule", experiment.aggregate.rule, aggregator_names())
    if experiment.own.channel and experiment.uplink.name in ("ideal", "perfect"):
        raise ConfigError(
            f"a channel was given, but uplink = {experiment.uplink.name!r} has none; choose a digital one, say gamp"
        )
    check_participation(experiment.participation, experiment.devices.total)
    if experiment.buffers == "recomputed" and experiment.server.base == "first-device":
        raise ConfigError(
            "buffers = 'recomputed' takes images of the base station, but with server.base = 'first-device' it has none; "
            "use buffers = 'average' or 'estimated'"
        )
    check_device("device", experiment.device)
    return experiment


def check_buffers(policy: Buffers, uplink: Uplink) -> None:
    """Refuse `buffers = 'estimated'` where the uplink makes no estimate.

    Raises:
        ConfigError: If the uplink is told the number of devices.
    """
    if policy == "estimated" and not getattr(uplink, "estimates_num_active", True):
        raise ConfigError(
            f"buffers = 'estimated' divides by the estimated number of devices, but uplink = {uplink.name!r} estimates "
            "nothing; use buffers = 'average', or a digital uplink"
        )


def heard_by(experiment: Experiment, given: Collection[str]) -> Experiment:
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
    if experiment.channel.kind != "fading" or chosen:
        return experiment
    return experiment.changed(uplink="widened" if experiment.power.control in COHERENT else "blind")


BRINGS = {"fed-ota": ("beamforming", "baa"), "ca-dsgd": ("inversion", "a-dsgd")}
"""Schemes over fading that are another one with a power control of their own: which control, and which scheme."""


def controlled_by(experiment: Experiment, given: Collection[str]) -> Experiment:
    """Return the settings with the power control that a scheme is made of, where the user gave none.

    Args:
        experiment: The settings.
        given: Paths of those that the user gave.
    """
    brings = experiment.uplink.name in BRINGS and experiment.channel.kind == "fading"
    if not brings or "power.control" in given or experiment.power.control != "none":
        return experiment
    return experiment.changed(**{"power.control": BRINGS[experiment.uplink.name][0]})


def counted_by(experiment: Experiment) -> Experiment:
    """Return the settings with the rule that votes serve, where an uplink for votes was asked for and no rule."""
    votes = experiment.uplink.name in VOTE and not experiment.own.uplink and not experiment.own.aggregator
    if not votes or "rule" in experiment.aggregate.model_fields_set:
        return experiment
    return experiment.changed(**{"aggregate.rule": "sign-vote"})


def check_phase(experiment: Experiment) -> None:
    """Refuse uplinks that need gains of a common phase where the channel gives none.

    Raises:
        ConfigError: Naming those that do not.
    """
    make_channel(experiment.channel, experiment.power)  # refuses what cannot be
    faded = experiment.channel.kind == "fading" and not experiment.own.channel and not experiment.own.uplink
    control, same = BRINGS.get(experiment.uplink.name, (experiment.power.control, ""))
    if faded and experiment.power.control != control:
        raise ConfigError(
            f"uplink = {experiment.uplink.name!r} is {same!r} with power.control = {control!r}, but power.control = "
            f"{experiment.power.control!r} was given; use that one, or uplink = {same!r}"
        )
    if experiment.uplink.name == TUMA and not experiment.own.channel and not experiment.own.uplink:
        _check_places(experiment)
    phaseless = (
        *PHASELESS,
        TUMA,
        "receiver-csi",
        "md-aircomp-plus",
        *TDMA,
        "fsk-mv",
        "reed",
        "blind-analog",
        "capacity",
        "ideal",
        "perfect",
    )
    if not faded or experiment.power.control in COHERENT or experiment.uplink.name in phaseless:
        return
    raise ConfigError(
        f"uplink = {experiment.uplink.name!r} needs signals that arrive in phase, but power.control = "
        f"{experiment.power.control!r} leaves phases random; use power.control = 'inversion', or uplink = 'blind'"
    )


def _check_places(experiment: Experiment) -> None:
    """Refuse zones where places do not tell how loud devices arrive."""
    kind, control = experiment.channel.kind, experiment.power.control
    if kind == "fading" and control not in COHERENT:
        return
    given = f"channel.kind = {kind!r}" if kind != "fading" else f"power.control = {control!r}"
    raise ConfigError(
        f"uplink = {TUMA!r} counts by how loud each access point hears a zone, but {given} was given; use channel.kind = "
        "'fading' with power.control = 'none' or 'statistical'"
    )


def check_radio(uplink: Uplink, overrides: dict[str, Any]) -> None:
    """Refuse settings of a channel that an uplink of the user's own does not use.

    Raises:
        ConfigError: Naming the setting.
    """
    for path in given_paths(_full_names(overrides)):
        if path.split(".")[0] in ("channel", "power") and not uplink.uses_radio:
            raise ConfigError(f"{path} was given but has no effect: the uplink {uplink.name!r} does not use the radio")


def check_overrides(experiment: Experiment, overrides: dict[str, Any]) -> None:
    """Refuse, or warn of, keywords without effect on the experiment (see `settings.check_given`)."""
    check_given(experiment, given_paths(_full_names(overrides)))


def full_name(name: str) -> str:
    """Return the path of a setting that has a short or an older name; others are themselves."""
    return present_name(SHORT_NAMES.get(name, name))


def _full_names(overrides: dict[str, Any]) -> dict[str, Any]:
    return {full_name(name): value for name, value in overrides.items()}


def name_parts(experiment: Experiment, own: dict[str, Any]) -> Experiment:
    """Return the settings with the names of the user's own parts.

    Raises:
        ConfigError: If the settings come from a run with parts that are missing here.
    """
    names = {name: part_name(part) for name, part in own.items()}
    if missing := {k: v for k, v in experiment.own.names.items() if k not in names}:
        parts = ", ".join(f"{k} = {v}" for k, v in missing.items())
        raise ConfigError(
            f"these settings are of a run from Python with parts of its own ({parts}); "
            "run it with aircomp.simulate and the same parts"
        )
    changed = {"own": names} | {PLACES[k]: v for k, v in names.items() if k in PLACES}
    return experiment.changed(**changed) if names else experiment
