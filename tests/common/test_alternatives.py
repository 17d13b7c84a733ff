"""Groups of settings that have alternatives, closed and open ones."""

import copy
import tomllib
from collections.abc import Mapping
from typing import ClassVar, Literal

import pytest
import tomli_w
from pydantic import Field

from aircomp.common.settings import Settings, SettingsError, Tagged, check_paths, setting_paths
from aircomp.errors import ConfigError


class Errors(Settings):
    phase: float = 0.0


class Air(Tagged):
    kind: str = "quiet"
    snr_db: float = 10.0


class Quiet(Air):
    kind: Literal["quiet"] = "quiet"


class Fading(Air):
    kind: Literal["fading"] = "fading"
    antennas: int = Field(default=1, ge=1)
    errors: Errors = Errors()


class Jammed(Air):
    kind: Literal["noise", "tone"]
    length: float = 1.0
    antennas: int = 2


# an open set: classes that a decorator puts into a table, as a user's own module may
REGISTRY: dict[str, type["SchemeSettings"]] = {}


class SchemeSettings(Tagged):
    TAG: ClassVar[str] = "name"

    name: str = "plain"
    codewords: int = 8

    @classmethod
    def alternatives(cls) -> Mapping[str, type[Tagged]]:
        return REGISTRY


def scheme(*names):
    def register(settings):
        return REGISTRY.update(dict.fromkeys(names, settings)) or settings

    return register


@scheme("plain", "bare")
class PlainSettings(SchemeSettings):
    pass


@scheme("analog")
class AnalogSettings(SchemeSettings):
    gain: float = 1.0


class Run(Settings):
    rounds: int = Field(default=3, ge=0)
    air: Air = Quiet()
    scheme: SchemeSettings = PlainSettings()


def refused(call) -> str:
    with pytest.raises(SettingsError) as error:
        call()
    return str(error.value)


def test_the_tag_decides_which_alternative_a_group_is():
    run = Run.parse({"air": {"kind": "fading", "antennas": 4}, "scheme": {"name": "analog", "gain": 2}})
    assert (run.air, run.scheme) == (Fading(antennas=4), AnalogSettings(gain=2.0))
    assert type(Run.parse({"air": {"snr_db": 3}}).air) is Quiet  # the group's default
    assert Air(kind="fading", antennas=4) == Fading(antennas=4)
    assert type(Air()) is Quiet
    assert Air(kind="tone").kind == "tone"
    assert SchemeSettings(name="bare").name == "bare"


@pytest.mark.parametrize(
    "run",
    [
        Run(),
        Run(air=Fading()),
        Run(air=Fading(antennas=4, errors=Errors(phase=3.0))),
        Run(air=Jammed(kind="tone"), scheme=AnalogSettings()),
        Run(scheme=PlainSettings(name="bare")),
    ],
)
@pytest.mark.parametrize("only_set", [True, False])
def test_settings_survive_a_file_whole(run, only_set):
    again = Run.parse(tomllib.loads(tomli_w.dumps(run.model_dump(mode="json", exclude_unset=only_set))))
    assert again == run
    assert copy.deepcopy(run) == run
    if only_set:
        assert again.model_fields_set == run.model_fields_set


def test_a_tag_that_nobody_gave_is_not_set_where_it_is_the_default():
    run = Run().changed(**{"air.snr_db": 3.0})
    assert run.model_dump(exclude_unset=True) == {"air": {"snr_db": 3.0}}


def test_a_new_alternative_keeps_what_it_shares_and_drops_the_rest():
    fading = Run().changed(**{"air.antennas": 4, "air.kind": "fading", "air.snr_db": 5.0, "air.errors.phase": 9.0})
    assert fading.air == Fading(antennas=4, snr_db=5.0, errors=Errors(phase=9.0))
    assert fading.changed(**{"air.kind": "noise"}).air == Jammed(kind="noise", antennas=4, snr_db=5.0)
    quiet = fading.changed(**{"air.kind": "quiet"})
    assert quiet.air == Quiet(snr_db=5.0)
    assert quiet.changed(**{"air.kind": "fading"}).air == Fading(snr_db=5.0)


def test_a_whole_group_replaces_the_one_before():
    fading = Run(air=Fading(antennas=4, snr_db=5.0))
    assert fading.changed(air={"kind": "fading"}).air == Fading()
    assert fading.changed(**{"air": {"kind": "fading"}, "air.antennas": 2}).air == Fading(antennas=2)
    assert fading.changed(air=Quiet()).air == Quiet()


NO_ANTENNAS = "there is no setting air.antennas with air.kind = 'quiet'; it belongs to 'fading', 'noise' and 'tone'"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"air.antennas": 4}, NO_ANTENNAS),
        ({"air": {"antennas": 4}}, NO_ANTENNAS),
        (
            {"air.kind": "noise", "air.errors": {}},
            "no setting air.errors with air.kind = 'noise'; it belongs to 'fading'",
        ),
        ({"air.errors.phase": 1.0}, "no setting air.errors.phase with air.kind = 'quiet'; it belongs to 'fading'"),
        ({"air.antenas": 4}, "there is no setting 'air.antenas': did you mean antennas?"),
        ({"air.kind": "fadng"}, "air.kind = 'fadng': did you mean 'fading'?"),
        ({"air.kind": 3}, "air.kind = 3: expected one of quiet, fading, noise, tone"),
        ({"air": "fading"}, "air = 'fading': expected settings with a kind, say kind = 'quiet'"),
        ({"air.snr_db.x": 1}, "there is no setting 'air.snr_db.x'"),
        ({"scheme.name": "analg"}, "scheme.name = 'analg': did you mean 'analog'?"),
        ({"scheme.gain": 2.0}, "no setting scheme.gain with scheme.name = 'plain'; it belongs to 'analog'"),
        ({"scheme.name": "bare", "scheme.gain": 2.0}, "with scheme.name = 'bare'; it belongs to 'analog'"),
    ],
)
def test_what_the_chosen_alternative_lacks_is_refused_by_its_path(values, message):
    assert message in refused(lambda: Run().changed(**values))


def test_all_mistakes_are_told_at_once():
    values = {"rounds": -1, "air.kind": "fading", "air.antennas": 0, "scheme.nam": "x"}
    told = refused(lambda: Run().changed(**values))
    assert all(part in told for part in ("rounds = -1", "air.antennas = 0", "no setting 'scheme.nam'"))


def test_an_alternative_is_not_made_under_the_name_of_another():
    assert refused(lambda: AnalogSettings(name="plain")) == "name = 'plain': expected 'analog'"
    assert refused(lambda: Quiet(kind="fading")) == "kind = 'fading': expected 'quiet'"  # pyright: ignore[reportArgumentType]
    assert refused(lambda: Jammed()) == "kind = None: expected 'noise' or 'tone'"


def test_two_alternatives_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="Loud and Quiet both have kind = 'quiet'; rename one"):

        class Loud(Air):
            kind: Literal["quiet"] = "quiet"


def test_paths_are_those_of_all_alternatives_and_checked_for_the_chosen_ones():
    air = ["air.kind", "air.snr_db", "air.antennas", "air.errors.phase", "air.length"]
    assert setting_paths(Run) == ["rounds", *air, "scheme.name", "scheme.codewords", "scheme.gain"]
    check_paths(Run(air=Fading()), ["air.antennas", "air.errors.phase", "rounds"])
    assert refused(lambda: check_paths(Run(), ["rounds", "air.antennas"])) == NO_ANTENNAS
    assert "no setting 'rounds.x'" in refused(lambda: check_paths(Run(), ["rounds.x"]))


def test_a_scheme_of_a_users_module_is_chosen_like_any_other():
    @scheme("mine")
    class MineSettings(SchemeSettings):
        taps: int = 2

    try:
        assert Run().changed(**{"scheme.name": "mine", "scheme.taps": 3}).scheme == MineSettings(taps=3)
        assert "scheme.taps" in setting_paths(Run)
    finally:
        del REGISTRY["mine"]
