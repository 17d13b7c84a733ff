import tomllib
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

from aircomp.channel.awgn import Awgn
from aircomp.cli.common import given_settings, with_full_names
from aircomp.common.settings import Except, all_needs, check_given, setting_paths
from aircomp.errors import ConfigError
from aircomp.fl.configure import check_overrides, configure, full_name
from aircomp.fl.experiment import Experiment, load_experiment, preset_names, read_toml
from aircomp.fl.simulate import simulate
from aircomp.train.blind import BlindTrainingSettings
from aircomp.train.code import CodeSettings
from aircomp.train.paper import PaperTrainingSettings
from aircomp.train.recipe import PretrainSettings


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


def test_a_change_within_a_group_keeps_the_default_that_the_group_has_there():
    paper = PaperTrainingSettings().changed(**{"codebook.learned": False})
    assert (paper.codebook.start, paper.codebook.learned) == ("gaussian", False)  # of the class itself: two-bases
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

TREES = (Experiment, PretrainSettings, CodeSettings, BlindTrainingSettings)
TABLE = [(tree, path, needs) for tree in TREES for path, needs in all_needs(tree)]
COMPANIONS = {  # what else must be set for a value to be valid
    ("participation.kind", "trace"): {"participation.trace": "trace.txt"},
}


def field_at(tree, path):
    *groups, name = path.split(".")
    for group in groups:
        tree = tree.model_fields[group].annotation
    return tree.model_fields[name]


def other_value(tree, path, values):
    """Return a value of the setting that is none of these."""
    kind = field_at(tree, path).annotation
    if Path in get_args(kind):
        return "runs/layer"
    known = get_args(kind) or {bool: (True, False), int: range(99), str: ("ideal", "mine")}[kind]
    return next(value for value in known if value not in values)


def with_values(tree, values):
    changes = dict(values)
    for pair in values.items():
        changes |= COMPANIONS.get(pair, {})
    return tree().changed(**changes)


def leaves(tree, path):
    return [p for p in setting_paths(tree) if p == path or p.startswith(f"{path}.")]


@pytest.mark.parametrize(
    ("tree", "path", "needs"), TABLE, ids=[f"{t.__name__}-{p}-{[*n.settings]}" for t, p, n in TABLE]
)
def test_a_setting_without_effect_is_refused_or_warned_of(tree, path, needs, caplog):
    useless, useful = {}, {}
    for name, values in needs.settings.items():
        excluded = isinstance(values, Except)
        listed = values.values if excluded else values
        useless[name] = listed[0] if excluded else other_value(tree, name, listed)
        useful[name] = other_value(tree, name, listed) if excluded else listed[0]
    settings = with_values(tree, useless)
    assert leaves(tree, path)
    for leaf in leaves(tree, path):
        caplog.clear()
        try:
            check_given(settings, [leaf])
            told = caplog.text
            assert not needs.refused
        except ConfigError as error:
            told = str(error)
        assert f"{leaf} was given but has no effect: it needs " in told
        check_given(settings, [])  # what a preset sets may lose its meaning
    for name, value in useful.items():
        assert needs.met(with_values(tree, useless | {name: value}))


@pytest.mark.parametrize("tree", TREES)
def test_every_setting_that_says_what_it_is_for_is_in_the_table(tree):
    table = {path for t, path, _ in TABLE if t is tree}
    for path in setting_paths(tree):
        *group, _ = path.split(".")
        kind = ".".join([*group, "kind"])
        told = (field_at(tree, path).description or "").partition(":")[0].split(", ")
        if kind in setting_paths(tree) and path != kind and set(told) <= set(get_args(field_at(tree, kind).annotation)):
            assert path in table


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


def test_keywords_count_as_given_also_in_groups(caplog):
    overrides = {"partition": {"alpha": 2.0}}
    check_overrides(configure("digits", overrides), overrides)
    assert "partition.alpha was given but has no effect" in caplog.text
    with pytest.raises(ConfigError, match="it needs no channel of your own, which is aircomp"):
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
    monkeypatch.setattr("aircomp.cli.simulate.simulate", lambda experiment, **_: ran.append(experiment))
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
