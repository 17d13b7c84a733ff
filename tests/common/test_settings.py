import tomllib
from importlib import import_module

import pytest

from aircomp.channel.awgn import Awgn
from aircomp.cli.flags import given_settings, with_full_names
from aircomp.errors import ConfigError
from aircomp.federation.configure import check_given, configure
from aircomp.federation.experiment import Experiment, full_name, load_experiment, preset_names, read_toml
from aircomp.federation.simulate import simulate
from aircomp.train.recipe import PaperTrainingSettings


def test_unknown_settings_are_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"no setting 'devices.totl': did you mean total"):
        Experiment.parse({"devices": {"totl": 3}})


def test_a_number_in_place_of_a_group_names_a_setting_of_the_group():
    with pytest.raises(
        ConfigError, match=r"^devices = 10: it is a group of settings; give one of them, say devices.total$"
    ):
        Experiment(devices=10)


def test_all_mistakes_are_reported_at_once_with_their_paths():
    with pytest.raises(ConfigError, match=r"rounds = -1.*devices.total = 0"):
        Experiment.parse({"rounds": -1, "devices": {"total": 0}})


def test_changed_validates_again_and_leaves_the_original_alone():
    before = Experiment()
    after = before.changed(**{"channel.snr_db": 3.0, "rounds": 2})
    assert (before.rounds, after.rounds, after.channel.snr_db) == (60, 2, 3.0)
    with pytest.raises(ConfigError, match="rounds = -5: expected 0 to 1,000,000,000"):
        before.changed(rounds=-5)


def test_a_change_within_a_group_keeps_the_default_that_the_group_has_there():
    paper = PaperTrainingSettings().changed(**{"codebook.common": 0.1})
    assert (paper.codebook.start, paper.codebook.common) == ("gaussian", 0.1)  # of the class itself: two-bases
    assert paper.changed(**{"codebook.form": "single"}).codebook.start == "gaussian"


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


# ── settings that have no effect ─────────────────────────────────────────────────────────────────────────────────────

FADES = {"channel.kind": "fading"}
USELESS = [
    ({"uplink": "ideal"}, "channel.snr_db", "uplink = 'ideal' does not use the radio"),
    ({"uplink": "perfect", **FADES}, "power.control", "uplink = 'perfect' does not use the radio"),
    ({"uplink": "gamp"}, "power.control", "channel.kind = 'awgn' does not fade; use channel.kind = 'fading'"),
    ({"uplink": "gamp"}, "power.cap", "it needs channel.snr_reference = 'transmit', not 'round'"),
    ({"uplink": "blind", **FADES}, "channel.errors.csi_correlation", "power.control = 'none' does not ask"),
    ({"uplink": "ideal"}, "feedback.kind", "uplink = 'ideal' leaves nothing out"),
    ({"uplink": "ideal"}, "aggregate.readout", "uplink = 'ideal' decodes no counts"),
    ({}, "buffers", "the model has no batch normalisation"),
    ({"server.base": "first-device"}, "partition.base_station_samples", "the base station has no samples"),
    ({"engine": "serial"}, "workers", "engine = 'serial' has no workers"),
    ({}, "ray_address", "it needs engine = 'ray', not 'processes'"),
    ({"own": {"uplink": "mine"}}, "uplink.quantize.order", "the uplink is your own, mine"),
    ({"own": {"uplink": "mine"}}, "server.include_base_station", "the uplink is your own, mine"),
    ({"own": {"decoder": "mine"}}, "uplink.name", "the decoder is your own, mine"),
    ({"own": {"channel": "mine"}, "uplink": "gamp"}, "channel.snr_db", "the channel is your own, mine"),
    ({"own": {"model": "mine"}}, "model.width", "the model is your own, mine"),
    ({"own": {"model": "mine"}}, "local.together", "the model is your own, mine"),
    ({"own": {"dataset": "mine"}}, "data.name", "the dataset is your own, mine"),
    ({"own": {"aggregator": "mine"}}, "aggregate.rule", "the rule is your own, mine"),
]
USEFUL = [
    ({"uplink": "gamp"}, "channel.snr_db"),
    ({"uplink": "blind", **FADES}, "power.control"),
    ({"uplink": "gamp", "channel.snr_reference": "transmit"}, "power.cap"),
    ({"uplink": "widened", **FADES, "power.control": "inversion"}, "channel.errors.csi_correlation"),
    ({"uplink": "ideal", "corruption.kind": "silent"}, "feedback.kind"),
    ({"uplink": "gamp"}, "aggregate.readout"),
    ({"model.name": "resnet"}, "buffers"),
    ({"own": {"model": "mine"}}, "buffers"),
    ({}, "partition.base_station_samples"),
    ({}, "workers"),
    ({"engine": "ray"}, "ray_address"),
    ({"own": {"decoder": "mine"}, "uplink": "ideal"}, "channel.snr_db"),
]


@pytest.mark.parametrize(("values", "path", "reason"), USELESS, ids=[f"{p}-{v}" for v, p, _ in USELESS])
def test_a_setting_without_effect_beside_another_group_is_refused(values, path, reason):
    experiment = Experiment().changed(**values)
    with pytest.raises(ConfigError) as error:
        check_given(experiment, [path])
    assert str(error.value).startswith(f"{path} was given but has no effect: ")
    assert reason in str(error.value)
    check_given(experiment, [])  # what a preset sets may lose its meaning


@pytest.mark.parametrize(("values", "path"), USEFUL, ids=[f"{p}-{v}" for v, p in USEFUL])
def test_a_setting_with_an_effect_is_taken(values, path):
    check_given(Experiment().changed(**values), [path])


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("simulate", ["--uplink", "ideal", "--snr-db", "5"], "channel.snr_db was given but has no effect"),
        ("simulate", ["--uplink", "perfect", "--channel.snr-reference=slot"], "channel.snr_reference was given"),
        ("simulate", ["--uplink", "gamp", "--layer", "x"], "uplink.layer was given but has no effect"),
        (
            "simulate",
            ["--uplink", "obda", "--aggregate.rule", "mean"],
            "'mean' was given, but this uplink offers a vote",
        ),
        ("simulate", ["--uplink", "fsk-mv", "--aggregator=mean"], "'mean' was given, but this uplink offers a vote"),
        (
            "simulate",
            ["--uplink", "obda", "--aggregator=trimmed-mean"],
            "serves the rule 'sign-vote' alone; use that, or another",
        ),
        (
            "simulate",
            ["--uplink", "analog", "--aggregator=trimmed-mean"],
            "serves the rule 'mean' alone; use that, or another",
        ),
        ("collect", ["--uplink", "gamp"], "uplink = 'gamp': a collection has perfect aggregation"),
        ("collect", ["--snr-db", "5"], "channel.snr_db was given"),
    ],
)
def test_the_command_line_refuses_what_would_silently_be_another_run(command, arguments, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        import_module(f"aircomp.cli.{command}").run(["digits", *arguments, "--out", str(tmp_path / "run")])
    assert not (tmp_path / "run").exists()


def test_the_command_line_finds_what_was_given_in_every_spelling():
    words = ["--snr-db", "-5", "--partition.alpha=2", "--server.no_include-base-station", "--out", "x", "--layer", "y"]
    expected = ["channel.snr_db", "partition.alpha", "server.include_base_station", "uplink.layer"]
    assert given_settings(Experiment, with_full_names(words, full_name)) == expected


def test_keywords_count_as_given_also_in_groups():
    with pytest.raises(
        ConfigError, match=r"partition\.alpha with partition\.kind = 'shards'; it belongs to 'dirichlet'"
    ):
        configure("digits", {"partition": {"alpha": 2.0}})
    with pytest.raises(
        ConfigError, match=r"channel\.snr_db was given but has no effect: the channel is your own, aircomp"
    ):
        simulate("digits", uplink="gamp", snr_db=3.0, channel=Awgn(3.0))


WRITTEN = 'uplink = "obda"\n[aggregate]\nrule = "mean"\n'


@pytest.mark.parametrize(
    "given",
    [
        lambda folder: ("digits", {"uplink": "obda", "aggregator": "mean"}),
        lambda folder: ("digits", {"uplink": "obda", "aggregate": {"rule": "mean"}}),
        lambda folder: (Experiment.parse(tomllib.loads(WRITTEN)), {"rounds": 1}),
        lambda folder: (load_experiment("digits").changed(**{"aggregate.rule": "mean"}), {"uplink": "obda"}),
        lambda folder: (written(folder / "own.toml"), {}),
    ],
)
def test_a_rule_that_was_written_is_refused_where_the_scheme_serves_another(given, tmp_path):
    preset, overrides = given(tmp_path)
    with pytest.raises(ConfigError, match=r"'mean' was given, but this uplink offers a vote, .* 'sign-vote' alone"):
        simulate(preset, **overrides)


def written(path):
    path.write_text(WRITTEN, encoding="utf-8")
    return path


def test_a_rule_that_nobody_wrote_is_that_of_the_scheme():
    for settings in (load_experiment("digits"), Experiment().changed(rounds=2), Experiment()):
        assert configure(settings, {"uplink": "obda"}).aggregate.rule == "sign-vote"
        assert configure(settings.changed(uplink="obda"), {"rounds": 1}).aggregate.rule == "sign-vote"
        assert configure(settings, {"uplink": "gamp"}).aggregate.rule == "mean"
    kept = Experiment().changed(**{"aggregate.rule": "trimmed-mean"}).changed(rounds=2)
    assert (kept.model_fields_set, kept.aggregate.model_fields_set) == ({"rounds", "aggregate"}, {"rule"})


def test_the_command_line_sets_what_was_given_and_nothing_else(monkeypatch, tmp_path):
    ran = []
    monkeypatch.setattr("aircomp.federation.simulate.simulate", lambda experiment, **_: ran.append(experiment))
    monkeypatch.setattr("aircomp.cli.simulate.report", lambda *_: None)
    words = ["--uplink", "obda", "--snr-db", "20", "--server.no-include-base-station", "--out", str(tmp_path / "run")]
    import_module("aircomp.cli.simulate").run(["digits", *words])
    wanted = {"uplink": "obda", "channel.snr_db": 20.0, "server.include_base_station": False}
    expected = load_experiment("digits").changed(**wanted)
    assert ran[0].model_dump(exclude_unset=True) == expected.model_dump(exclude_unset=True)
    assert configure(ran[0], {}).aggregate.rule == "sign-vote"


def test_a_setting_inside_a_setting_is_unknown():
    with pytest.raises(ConfigError, match=r"no setting 'rounds\.x'"):
        Experiment().changed(**{"rounds.x": 3})
