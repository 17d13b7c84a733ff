"""Schemes beside each other: equal uses and energy, honest verdicts, interrupted runs that go on."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import aircomp
from aircomp.cli import main
from aircomp.errors import ArtefactError, ConfigError
from aircomp.studies.arena import Plan, jobs_of, unequal
from aircomp.studies.arena_page import command_of
from aircomp.studies.entrants import ROBUST, entrant_names, find_entrant, find_entrants
from aircomp.studies.ranking import CONFIDENCE, MEASURES, compared, ranked_by, winners
from aircomp.studies.study import challenge_names, find_challenge
from aircomp.studies.verdicts import interval

USES = {"analog": 640.0, "mine": 705.0, "perfect": 0.0, "baa": 576.0, "other": 705.0}
OWN = """
from aircomp.schemes.ideal import Ideal


class Mine(Ideal):
    name = "mine"
"""


@pytest.fixture(scope="session")
def done(small, tmp_path_factory):
    """Return a comparison of four schemes at two SNRs, and its directory."""
    out = tmp_path_factory.mktemp("arena")
    return aircomp.arena([small], seeds=2, out=out), out


def row_of(done, scheme, value):
    return next(row for row in done.rows if (row["scheme"], row["value"]) == (scheme, value))


def test_all_schemes_have_the_same_uses_and_mean_energy(done):
    comparison, _ = done
    on_air = [row for row in comparison.rows if row["scheme"] != "own-update"]
    assert {row["channel_uses"] for row in on_air} == {19_520.0}
    for row in on_air:
        assert row["energy_per_device"] == pytest.approx(305, rel=0.01)


def test_the_error_of_analog_falls_with_noise_and_that_of_perfect_stays(done):
    comparison, _ = done
    assert row_of(comparison, "baa", 0.0)["raw_nmse"] > 20 * row_of(comparison, "baa", 20.0)["raw_nmse"]
    assert row_of(comparison, "perfect", 0.0)["raw_nmse"] == row_of(comparison, "perfect", 20.0)["raw_nmse"]
    assert row_of(comparison, "perfect", 0.0)["update_nmse"] < 1e-12
    assert [row["winner"] for row in comparison.winners] == ["baa", "baa"]  # bounds do not take part
    assert comparison.winners[0]["our_best"] == "digital"
    assert comparison.winners[0]["our_verdict"] in ("loses", "tie")


def test_a_winner_names_what_varies_with_its_unit_and_the_page_what_is_judged(done):
    comparison, out = done
    assert {row["axis"] for row in comparison.winners} == {"SNR (dB)"}
    page = (out / "report.html").read_text()
    assert "Judged by: NMSE, raw; lower is better. Margins are in dB." in page
    assert "interval over 2 paired seeds" in page


def test_rows_carry_the_name_of_their_axis(done):
    comparison, out = done
    written = json.loads((out / "result.json").read_text())["rows"]
    for rows in (comparison.rows, comparison.winners, written):
        assert {row["snr_db"] for row in rows} == {0.0, 20.0}
        assert all(row["snr_db"] == row["value"] for row in rows)


def test_the_reference_without_radio_is_the_same_at_every_snr_and_does_not_win(done):
    comparison, _ = done
    low, high = (row_of(comparison, "own-update", value) for value in (0.0, 20.0))
    assert low["raw_nmse"] == high["raw_nmse"] < 1
    assert low["raw_nmse"] == pytest.approx(1 - low["raw_gain"])  # the best scale leaves an error at right angles
    assert "own-update" not in {row["winner"] for row in comparison.winners}


def test_what_is_done_is_not_done_again_and_what_is_missing_is(done, small):
    comparison, out = done
    kept = {path: path.stat().st_mtime_ns for path in (out / "work").glob("arena-round-*.json")}
    broken = next(iter(kept))
    broken.unlink()
    again = aircomp.arena([small], seeds=2, out=out)
    assert again.rows == comparison.rows
    assert not again.failed
    changed = [path for path, time in kept.items() if path.stat().st_mtime_ns != time]
    assert changed == [broken]


def test_the_page_says_who_wins_what_was_told_and_how_to_measure_it(done):
    page = (done[1] / "report.html").read_text()
    for words in ("Who wins", "the mean energy of what devices want to send", "--scheme baa", "data-points", "tie"):
        assert words in page
    assert '<a href="#command-2-5">baa</a>' in page
    rows = json.loads((done[1] / "result.json").read_text())["rows"]
    assert len(rows) == 10


def test_a_scheme_of_ones_own_and_a_file_take_part(small, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(OWN)
    (tmp_path / "shrunk.toml").write_text('[uplink]\nname = "analog"\nestimate = "lmmse"\n')
    main(["arena", "--challenge", small, "--scheme", "mine:Mine", "shrunk.toml", "--seeds", "1", "--workers", "1"])
    rows = json.loads((tmp_path / "runs" / "arena" / "result.json").read_text())["rows"]
    assert {row["scheme"] for row in rows} == {"mine", "shrunk"}
    assert next(row for row in rows if row["scheme"] == "mine")["raw_nmse"] == pytest.approx(0, abs=1e-9)
    assert "not judged: one seed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"challenges": ["awgm"]}, "there is no challenge 'awgm': did you mean 'awgn'"),
        ({"schemes": ["analogue"]}, "there is no scheme 'analogue': did you mean 'analog'"),
        ({"schemes": ["nowhere:Scheme"]}, "No module named 'nowhere'; expected MODULE:CLASS"),
        ({"challenges": "awgn"}, "expected a list of names"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(given, sentence, small):
    with pytest.raises(ConfigError, match=sentence):
        aircomp.arena(**({"challenges": [small]} | given))


def test_a_missing_file_is_named_with_the_presets_that_there_are(small):
    with pytest.raises(
        ArtefactError, match=r"missing.toml does not exist; give a preset \(amplifier, .*\) or a TOML file"
    ):
        aircomp.arena(["missing.toml"])
    with pytest.raises(ArtefactError, match=r"missing.toml does not exist; check the path"):
        aircomp.arena([small], ["analog", "missing.toml"])


def test_a_scheme_that_cannot_serve_is_shown_as_such(small):
    plan = Plan((small,), ("blind", "analog"), settings={"power.control": "none", "channel.kind": "fading"})
    wanted, refused = jobs_of(plan)
    assert {about["scheme"] for about, _ in wanted} == {"blind"}
    assert {row["scheme"] for row in refused} == {"analog"}
    assert "needs signals that arrive in phase" in refused[0]["reason"]


def test_settings_of_ones_own_replace_those_of_a_challenge_but_not_what_varies():
    wanted, _ = jobs_of(Plan(("phase", "awgn"), ("analog",), seeds=(0,), settings={"channel.snr_db": -3.0}))
    found = {
        name: [job.params["settings"]["channel.snr_db"] for row, job in wanted if row["challenge"] == name]
        for name in ("phase", "awgn")
    }
    assert set(found["phase"]) == {-3.0}
    assert found["awgn"] == list(find_challenge("awgn").values)


def test_a_command_says_all_that_a_comparison_was_given():
    plan = Plan(("small.toml",), ("digital", "analog"), "training", (0, 1), {"channel.snr_db": -3.0})
    whole = "aircomp arena --challenge small.toml --scheme digital analog --task training --seeds 2 --snr-db=-3"
    assert command_of(plan, "small.toml") == whole
    assert command_of(plan, "small.toml", "analog") == whole.replace("digital ", "")
    python = command_of(Plan(("awgn",), settings={"rounds": 4}), "awgn", "baa")
    assert python == "aircomp.arena(['awgn'], ['baa'], task='round', seeds=3, **{'rounds': 4})"


@pytest.mark.parametrize("name", challenge_names())
def test_every_challenge_can_be_asked_of_all_its_schemes(name):
    challenge = find_challenge(name)
    assert all(len(values) == len(challenge.values) for values in challenge.vary.values())
    plan = Plan((name,), seeds=(0,))
    wanted, refused = jobs_of(plan)
    assert len(wanted) == len(challenge.schemes) * len(challenge.values)
    assert not refused


def test_the_rounds_of_a_challenge_are_of_its_preset_and_those_of_most_come_with_the_package():
    wanted, _ = jobs_of(Plan(("budget-vgg", "budget"), ("analog",), seeds=(0,)))
    collected = {row["challenge"]: job.needs[0].params for row, job in wanted}
    assert collected["budget-vgg"]["preset"] == "cifar10-collect"
    assert collected["budget-vgg"]["settings"]["model.name"] == "vgg"
    assert collected["budget"]["preset"] == "digits"
    usual = Plan().chosen()
    assert "budget" in usual
    assert "budget-vgg" not in usual
    other = find_challenge("awgn").changed(preset="mnist", frozen="")
    assert other.fingerprint != find_challenge("awgn").fingerprint


def test_every_entrant_can_be_found_and_has_a_robust_rule():
    for name in entrant_names():
        assert find_entrant(name).offers in ROBUST


def test_a_margin_inside_its_interval_is_a_tie():
    def row(scheme, values):
        about = {"challenge": "c", "value": 1.0, "scheme": scheme, "ours": scheme == "a"}
        return about | {"raw_nmse": sum(values) / len(values), "raw_nmse_values": values}

    clear = compared(row("a", [0.1, 0.11, 0.1]), row("b", [0.2, 0.22, 0.2]), MEASURES["round"])
    assert clear["verdict"] == "wins"
    assert clear["margin"] == pytest.approx(3.01, abs=0.01)
    unclear = compared(row("a", [0.1, 0.3, 0.1]), row("b", [0.2, 0.2, 0.2]), MEASURES["round"])
    assert unclear["verdict"] == "tie"
    assert winners([row("a", [0.1, 0.1]), row("b", [0.2, 0.2])], MEASURES["round"])[0]["our_verdict"] == "wins"
    rivals = [row("scattered", [0.01, 0.3, 0.1]), row("surely better", [0.09, 0.09, 0.09])]
    (lost,) = winners([row("a", [0.1, 0.1, 0.1001]), *rivals], MEASURES["round"])
    assert lost["winner"] == "scattered"
    assert (lost["best_rival"], lost["our_verdict"]) == ("scattered", "loses")  # to the other, which does not scatter
    low, high = interval([1.0, 2.0, 3.0], (1 + CONFIDENCE) / 2)
    assert (low, high) == pytest.approx((2 - 4.303 / 3**0.5, 2 + 4.303 / 3**0.5), abs=1e-3)


def test_a_winner_has_a_positive_margin_where_one_seed_goes_wrong():
    values = {"steady": [0.1] * 20, "better": [0.05] * 19 + [1.2], "gaps": [None, 0.09, *[None] * 18]}
    rows = [
        {"challenge": "c", "value": 1.0, "scheme": name, "raw_nmse": 0.1, "raw_nmse_values": each}
        for name, each in values.items()
    ]
    rows[1]["raw_nmse"] = 0.1075  # the arithmetic mean, in which one seed outweighs the others
    (won,) = winners(rows[:2], MEASURES["round"])
    assert (won["winner"], won["verdict"]) == ("better", "wins")
    assert won["margin"] == pytest.approx(0.95 * 3.0103 - 0.05 * 10.7918, abs=1e-3)
    assert [row["scheme"] for row in ranked_by(MEASURES["round"], rows)] == ["better", "gaps", "steady"]


def test_who_takes_more_air_than_the_others_is_named():
    rows = [{"challenge": "c", "value": 1.0, "scheme": name, "channel_uses": uses} for name, uses in USES.items()]
    reason = "it has 705 channel uses a round, the others 640"
    assert [(row["scheme"], row["reason"]) for row in unequal(rows)] == [("mine", reason), ("other", reason)]


def test_who_takes_more_air_than_the_others_does_not_win(small, tmp_path):
    (tmp_path / "loud.toml").write_text('[uplink]\nname = "baa"\ncodeword_length = 128\n')
    found = aircomp.arena([small], ["baa", str(tmp_path / "loud.toml")], seeds=1, out=tmp_path)
    assert [row["scheme"] for row in found.failed] == ["loud", "loud"]
    assert row_of(found, "loud", 0.0)["raw_nmse"] < row_of(found, "baa", 0.0)["raw_nmse"]
    assert [row["winner"] for row in found.winners] == ["baa", "baa"]
    assert not any("runner_up" in row for row in found.winners)


def test_points_of_accuracy_are_better_when_higher():
    assert MEASURES["training"].margin(0.9, 0.8) == pytest.approx(10)
    assert MEASURES["round"].margin(0.1, 1.0) == pytest.approx(10)


@pytest.mark.slow
def test_training_with_corrupted_devices_takes_the_most_robust_rule_of_each(tmp_path):
    found = aircomp.arena(["byzantine"], ["tdma-vq", "baa"], task="training", seeds=1, out=tmp_path, rounds=4)
    assert not found.failed
    assert len(found.rows) == 6
    assert len(found.curves) == 6 * 4
    assert {row["side_information"] for row in found.rows if row["scheme"] == "tdma-vq"} != {"none"}
    page = (tmp_path / "report.html").read_text()
    assert page.count("rounds of 19,520 uses, energy 305 a device</text>") == 3


def test_a_sweep_returns_a_row_for_every_combination_and_goes_on_where_it_was(tmp_path):
    few = {"rounds": 1, "devices.total": 4, "participation.low": 2, "participation.high": 3}
    asked = {"uplink": ["gamp", "analog"], "snr_db": [0.0, 20.0]}
    rows = aircomp.sweep("digits", asked, out=tmp_path, **few)
    assert [(row["uplink"], row["snr_db"]) for row in rows] == [
        ("gamp", 0.0),
        ("gamp", 20.0),
        ("analog", 0.0),
        ("analog", 20.0),
    ]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("simulate-*.json")}
    assert aircomp.sweep("digits", asked, out=tmp_path, **few) == rows
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("simulate-*.json")} == before
    with pytest.raises(ConfigError, match="expected a list of values"):
        aircomp.sweep("digits", {"snr_db": []})


@pytest.mark.usefixtures("as_in_production")
@pytest.mark.parametrize("over", [np.ones((2, 2)), [1], "uplink", 0])
def test_a_sweep_over_no_mapping_is_refused(over):
    with pytest.raises(ConfigError, match=r"over is .*; expected a mapping of settings to lists of values"):
        aircomp.sweep("digits", over)


def test_a_baseline_without_radio_runs_once_in_a_sweep_and_its_row_is_repeated(tmp_path):
    few = {"rounds": 1, "devices.total": 4, "participation.low": 2, "participation.high": 3}
    asked = {"uplink": ["ideal", "analog"], "snr_db": [0.0, 20.0], "local.epochs": [1, 2]}
    rows = aircomp.sweep("digits", asked, out=tmp_path, **few)
    assert [(row["uplink"], row["snr_db"], row["local.epochs"]) for row in rows] == [
        (uplink, snr_db, epochs) for uplink in ("ideal", "analog") for snr_db in (0.0, 20.0) for epochs in (1, 2)
    ]
    assert len(list(tmp_path.glob("simulate-*.json"))) == 2 + 4
    place = {"snr_db": None}
    assert [row | place for row in rows[:2]] == [row | place for row in rows[2:4]]
    with pytest.raises(ConfigError, match=r"channel\.snr_db was given but has no effect"):
        aircomp.sweep("digits", {"uplink": ["ideal", "perfect"], "snr_db": [0.0, 20.0]}, **few)


def test_a_seed_among_the_settings_is_refused_and_seeds_differ(small):
    sentence = "was given, but seeds are counted from 0 on; leave it out and say how many with seeds"
    with pytest.raises(ConfigError, match=rf"seed = the list \[0, 7, 9\] {sentence}"):
        aircomp.sweep("digits", {"seed": [0, 7, 9]}, rounds=1)
    with pytest.raises(ConfigError, match=f"seed = 7 {sentence}"):
        aircomp.sweep("digits", seed=7, rounds=1)
    with pytest.raises(ConfigError, match=f"seed = 7 {sentence}"):
        aircomp.arena([small], ["baa"], seed=7)
    rows = aircomp.sweep("digits", {"snr_db": list(np.arange(1))}, seeds=2, rounds=1, uplink="gamp")
    assert rows[0]["test_accuracy"] != rows[1]["test_accuracy"]


# ── identity ──


def test_two_entrants_of_one_name_are_told_apart_or_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "same.py").write_text(OWN.replace('"mine"', '"analog"').replace("Mine", "Same"))
    for folder, length in (("a", 64), ("b", 32)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.toml").write_text(f'[uplink]\nname = "baa"\ncodeword_length = {length}\n')
    names = [each.name for each in find_entrants(["analog", "same:Same", "a/mine.toml", "b/mine.toml"])]
    assert names == ["analog", "same:Same", "a/mine", "b/mine"]
    for given in (["analog", "analog"], ["a/mine.toml", "a/mine.toml"], ["same:Same", "same:Same"]):
        with pytest.raises(ConfigError, match="was given twice"):
            find_entrants(given)


@pytest.mark.parametrize("name", ["", " ", "two\nlines", "\udcff", "\x1b[31m", None, 3])
def test_a_name_that_no_page_can_show_is_refused_before_any_job(name, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "named_scheme.py").write_text(OWN.replace('"mine"', repr(name)).replace("Mine", "Named"))
    monkeypatch.delitem(sys.modules, "named_scheme", raising=False)
    with pytest.raises(
        ConfigError, match=r"the name of --scheme named_scheme:Named is .*; expected a name of printable"
    ):
        aircomp.arena([small], ["named_scheme:Named"], seeds=1, out=tmp_path / "out")
    assert not list(tmp_path.glob("out/work/*.json"))


@pytest.mark.parametrize(("challenges", "schemes"), [(["\udcff.toml"], ["baa"]), (["SMALL"], ["\udcff.toml"])])
def test_a_file_whose_name_no_page_can_show_is_refused(challenges, schemes, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "\udcff.toml").write_text('[uplink]\nname = "baa"\n')
    with pytest.raises(ConfigError, match=r"name is the str .*; expected a name of printable characters"):
        aircomp.arena([small if each == "SMALL" else each for each in challenges], schemes, seeds=1)


def test_who_invented_a_scheme_is_read_from_its_class():
    ours = {
        name: find_entrant(name).ours for name in ("amp-da", "amp-da-net", "digital", "analog", "baa", "own-update")
    }
    assert ours == {name: name in ("digital", "analog") for name in ours}


def test_one_bad_scheme_is_named_and_the_others_go_on(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bad = OWN.replace("Mine", "Bad").replace('"mine"', '"bad"')
    (tmp_path / "bad_scheme.py").write_text(f"{bad}\n    def encode(self, *given, **named):\n        return 1 / 0\n")
    found = aircomp.arena([small], ["bad_scheme:Bad", "baa"], seeds=1)
    assert {row["reason"] for row in found.failed} == {
        "bad_scheme.Bad.encode raised ZeroDivisionError: division by zero"
    }
    assert [row["winner"] for row in found.winners] == ["baa", "baa"]


# ── wrong questions ──


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("values = [0.0, 20.0]", "values = []", "values"),
        ("values = [0.0, 20.0]", "values = [0.0, inf]", "expected finite numbers"),
        ("values = [0.0, 20.0]", 'values = [0.0, "x"]', "expected finite numbers"),
        ("values = [0.0, 20.0]", "values = [0.0, {a = 1}]", "expected finite numbers"),
        ("values = [0.0, 20.0]", "values = [0.0, 0.0]", "two points have the same value"),
        ('"channel.snr_db" = [0.0, 20.0]', '"channel.snr_db" = [0.0]', "has 1 values for 2 points; give one for each"),
        ('"channel.snr_db" = [0.0, 20.0]', '"channel.snr_db" = [0.0, 20.0, 30.0]', "has 3 values for 2 points"),
        ('"channel.snr_db" = [0.0, 20.0]', '"channel.snr" = [0.0, 20.0]', "there is no setting"),
        ('"channel.snr_db" = [0.0, 20.0]', '"channel.snr_db" = [0.0, "loud"]', "channel.snr_db = 'loud'"),
        ('"channel.snr_reference" = "transmit"', '"channel.colour" = "red"', "there is no setting"),
        ('"channel.snr_reference" = "transmit"', "seed = 3", "sets a seed"),
    ],
)
def test_a_wrong_question_is_an_error_before_any_job(small, tmp_path, old, new, sentence):
    text = Path(small).read_text()
    assert old in text
    # the values of the axis stand before those of the setting
    (tmp_path / "wrong.toml").write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError, match=sentence):
        aircomp.arena([str(tmp_path / "wrong.toml")], seeds=1, out=tmp_path / "out")
    assert not list(tmp_path.glob("out/work/*.json"))


def test_a_challenge_without_schemes_is_refused(small, tmp_path):
    lines = [line for line in Path(small).read_text().splitlines() if not line.startswith("schemes")]
    (tmp_path / "wrong.toml").write_text("schemes = []\n" + "\n".join(lines))
    with pytest.raises(ConfigError, match="schemes"):
        aircomp.arena([str(tmp_path / "wrong.toml")], seeds=1)
