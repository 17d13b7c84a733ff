import pytest

from aircomp.errors import ConfigError
from aircomp.fl.experiment import Experiment, load_experiment, preset_names, read_toml


def test_unknown_settings_are_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"no setting 'devices.totl': did you mean total"):
        Experiment.parse({"devices": {"totl": 3}})


def test_all_mistakes_are_reported_at_once_with_their_paths():
    with pytest.raises(ConfigError, match=r"rounds = -1.*devices.total = 0"):
        Experiment.parse({"rounds": -1, "devices": {"total": 0}})


def test_changed_validates_again_and_leaves_the_original_alone():
    before = Experiment()
    after = before.changed(**{"channel.snr_db": 3.0, "rounds": 2})
    assert (before.rounds, after.rounds, after.channel.snr_db) == (60, 2, 3.0)
    with pytest.raises(ConfigError, match="greater than or equal to 0"):
        before.changed(rounds=-5)


def test_settings_cannot_be_changed_in_place():
    with pytest.raises(ValueError, match="frozen"):
        Experiment().rounds = 3


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_valid(name):
    assert load_experiment(name).rounds > 0


def test_a_user_preset_is_read_and_its_mistakes_name_the_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("rounds = 3\n[devices]\ntotal = 50\n")
    assert load_experiment(path).devices.total == 50
    path.write_text("rounds = 'x'\n")
    with pytest.raises(ConfigError, match=r"mine\.toml: rounds = 'x'"):
        read_toml(path)
    path.write_text("rounds = \n")
    with pytest.raises(OSError, match="not readable TOML"):
        read_toml(path)


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'digits'"):
        load_experiment("digit")


def test_identity_ignores_where_and_how_long_a_run_goes():
    base = Experiment()
    assert base.identity == base.changed(rounds=3, workers=2, engine="serial").identity
    assert base.identity != base.changed(seed=1).identity
