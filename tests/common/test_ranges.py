"""Every number among the settings has a range, and is refused outside it."""

import importlib
import math
import pkgutil
from typing import get_args

import pytest
import torch

import aircomp
from aircomp.channel.base import make_channel
from aircomp.channel.fading import Fading
from aircomp.channel.settings import HIGHEST_SNR_DB, LOWEST_SNR_DB, ChannelSettings, PowerSettings
from aircomp.common.rng import generator
from aircomp.common.settings import Settings, SettingsError, Tagged, bounds, range_of
from aircomp.link import Link, communicate
from aircomp.schemes.base import SchemeContext
from aircomp.schemes.digital.receivers import receiver_names
from aircomp.schemes.outputs import Vote
from aircomp.schemes.registry import make_scheme, scheme_class
from aircomp.schemes.settings import scheme_names

ROOMS = (
    "channel",
    "data",
    "decoders",
    "device",
    "encode",
    "federation",
    "layer",
    "quantize",
    "schemes",
    "server",
    "train",
)
COMPANIONS = {
    "Trace": {"trace": "trace.txt"},
    "Uniform.high": {"low": 0},
    "Uniform.low": {"high": 1_000_000},
    "AnalogCodeSettings.devices": {"form": "free"},
    "NomographicSettings.devices": {"fewest": 1},
    "NomographicSettings.fewest": {"devices": 1024},
    "validation_fraction": {"test_fraction": 1e-300},
    "test_fraction": {"validation_fraction": 1e-300},
}
"""What else must be set for an end to be valid, of a class, a field of it, or every field of a name."""


def setting_classes():
    for room in ROOMS:
        package = importlib.import_module(f"aircomp.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"aircomp.{room}."):
            importlib.import_module(module.name)
    found, waiting = {}, [Settings]
    while waiting:
        waiting += [kind for kind in waiting.pop().__subclasses__() if kind.__module__.startswith("aircomp.")]
        found |= {f"{kind.__module__}.{kind.__qualname__}": kind for kind in waiting}
    return [found[name] for name in sorted(found)]


def kinds_of(annotation):
    parts = get_args(annotation)
    return {annotation} if not parts else set().union(*map(kinds_of, parts))


NUMBERS = [
    pytest.param(kind, name, id=f"{kind.__name__}.{name}")
    for kind in setting_classes()
    for name, field in kind.model_fields.items()
    if {int, float} & kinds_of(field.annotation)
]


def made(kind, name, value):
    """Make the group, or any of those that share the field, with one number set."""
    values = {}
    for key in (kind.__name__, f"{kind.__name__}.{name}", name):
        values |= COMPANIONS.get(key, {})
    for end, other, limit in (("_low", "_high", "le"), ("_high", "_low", "ge")):
        partner = name.removesuffix(end) + other
        if name.endswith(end) and partner in kind.model_fields:
            values[partner] = bounds(kind.model_fields[partner])[limit]
    if issubclass(kind, Tagged) and kind.group() is not kind:
        tags = [tag for tag, model in kind.alternatives().items() if issubclass(model, kind)]
        if tags:
            kind, values = kind.group(), {kind.TAG: tags[0], **values}
    return kind(**values | {name: value})


@pytest.mark.parametrize(("kind", "name"), NUMBERS)
def test_every_number_is_taken_to_the_ends_of_its_range_and_refused_beyond(kind, name):
    field = kind.model_fields[name]
    limits, whole = bounds(field), float not in kinds_of(field.annotation)
    assert limits.keys() & {"ge", "gt"}, f"{kind.__name__}.{name} has no least value"
    assert limits.keys() & {"le", "lt"}, f"{kind.__name__}.{name} has no greatest value"
    for limit, end in limits.items():
        out = math.inf if limit in ("le", "lt") else -math.inf
        step = next((m.multiple_of for m in field.metadata if hasattr(m, "multiple_of")), 1)
        next_to = (lambda x, to, step=step: x + int(math.copysign(step, to))) if whole else math.nextafter
        last, beyond = (end, next_to(end, out)) if limit in ("le", "ge") else (next_to(end, -out), end)
        assert getattr(made(kind, name, last), name) == last
        with pytest.raises(SettingsError) as error:
            made(kind, name, beyond)
        assert str(error.value) == f"{name} = {beyond!r}: expected {range_of(field)}"


@pytest.mark.parametrize("snr_db", [-101, 400, 3000, 1e30])
def test_an_snr_that_float32_cannot_hold_is_refused_with_its_path_and_range(snr_db):
    with pytest.raises(aircomp.errors.ConfigError, match=r"channel\.snr_db = .*: expected -100 to 200"):
        aircomp.federation.experiment.Experiment().changed(**{"channel.snr_db": snr_db})


def test_a_number_or_a_word_is_refused_in_one_sentence():
    with pytest.raises(aircomp.errors.ConfigError) as error:
        aircomp.federation.experiment.Experiment().changed(**{"uplink.name": "gamp", "uplink.repeat": "often"})
    assert str(error.value) == "uplink.repeat = 'often': expected 'auto' or 1 to 1,000,000"


def test_so_many_zones_that_their_codebook_takes_minutes_are_refused():
    settings = scheme_class("tuma").settings_class(name="tuma", decoder={"zones": 64})
    with pytest.raises(aircomp.errors.ConfigError, match="64 zones of 128 codewords are 8192, and all zones together"):
        make_scheme(settings)


@pytest.mark.parametrize("snr_db", [LOWEST_SNR_DB, HIGHEST_SNR_DB])
@pytest.mark.parametrize("name", scheme_names())
def test_every_scheme_bears_the_ends_of_the_snr(name, snr_db):
    kind = scheme_class(name)
    implied = kind.power_control[0] if kind.power_control else "none" if kind.needs_places else "inversion"
    faded = kind.power_control is not None or kind.needs_places or name in receiver_names()
    air = ChannelSettings(kind="fading" if faded else "awgn", snr_db=snr_db)
    channel = make_channel(air, PowerSettings(control=implied if faded else "none"))
    scheme = make_scheme(name, SchemeContext(block_uses=channel.block_uses if isinstance(channel, Fading) else 0))
    base, *updates = torch.randn(4, 600, generator=generator(0, "updates"))
    link = Link(scheme, channel, "sign-vote" if kind.offers is Vote else "mean")
    found = communicate(link, base, torch.stack(updates), {}, 0)
    assert torch.isfinite(found.update).all()
