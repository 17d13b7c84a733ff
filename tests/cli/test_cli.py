import re
import subprocess
import sys
from pathlib import Path

import pytest

import aircomp
from aircomp.cli import COMMANDS
from aircomp.common.artefact import read_json
from aircomp.studies import kinds
from aircomp.studies.kinds import run_job
from helpers.commands import call
from helpers.settings import SMALL, flags

SMALL_RUN = [*flags(SMALL), "--rounds", "2", "--workers", "1"]


def test_version_and_help(capsys):
    assert call("--version") == 0
    assert aircomp.__version__ in capsys.readouterr().out
    assert call("--help") == 0
    help_text = capsys.readouterr().out
    assert all(command in help_text for command in COMMANDS)


@pytest.mark.parametrize(
    "command",
    [
        ["simulate", "digits"],
        ["collect", "digits"],
        ["cost"],
        ["demo"],
        ["data", "fetch"],
        ["report"],
        ["reproduce"],
        ["explain"],
        ["evaluate"],
        ["pretrain"],
        ["export"],
    ],
)
def test_every_command_helps_with_an_example(command, capsys):
    assert call(*command, "--help") == 0
    _, examples = re.split("Examples?:", capsys.readouterr().out, maxsplit=1)
    assert f"aircomp {command[0]}" in examples


@pytest.mark.seconds
def test_simulate_writes_a_run_directory_and_a_summary(tmp_path, capsys):
    out = tmp_path / "run"
    assert call("simulate", "digits", "--uplink", "gamp", "--snr-db", "20", *SMALL_RUN, "--out", out) == 0
    expected = {"config.toml", "metrics.jsonl", "result.json", "curves.png", "partition.png", "checkpoint"}
    assert expected <= {p.name for p in out.iterdir()}
    assert "test accuracy" in capsys.readouterr().out
    assert read_json(out / "result.json")["config"]["channel"]["snr_db"] == 20


@pytest.mark.seconds
def test_a_finished_run_is_resumed_from_its_own_directory(tmp_path, capsys):
    out = tmp_path / "run"
    call("simulate", "digits", *SMALL_RUN, "--rounds", "1", "--uplink", "ideal", "--out", out)
    assert call("simulate", "--resume", "--out", out, "--rounds", "2") == 0
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 2
    assert call("simulate", "digits", *SMALL_RUN, "--out", out) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_default_directories_are_new_each_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert call("simulate", "digits", *SMALL_RUN, "--rounds", "0") == 0
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["digits-amp-da-net", "digits-amp-da-net-2"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["simulte"], "did you mean 'simulate'"),
        (["simulate", "digts"], "did you mean 'digits'"),
        (["simulate"], "no preset was given"),
        (["simulate", "digits", "--devices.totl", "3"], "--devices.total"),
        (["simulate", "digits", "--devices.total", "0"], "total = 0"),
        (["simulate", "digits", "--uplink", "gmap"], "did you mean 'gamp'"),
        (["simulate", "digits", "--data.name", "cifar100"], "no dataset 'cifar100'"),
        (["simulate", "nowhere.toml"], "does not exist"),
        (["simulate", "--resume", "--out", "nowhere"], "no run to resume"),
        (["data", "fetch", "digit"], "no dataset 'digit'"),
        (["data", "lst"], "did you mean 'list'"),
        (["cost"], "--model"),
        (["cost", "--parameters", "-1"], "parameters is -1; expected an integer of at least 1"),
        (
            ["cost", "--parameters", "11e6"],
            "--parameters: '11e6' was given; expected None or a whole number in digits; see",
        ),
        (["cost", "--num-active", "1e3"], "--num-active: '1e3' was given; expected a whole number in digits; see"),
        (["cost", "--bandwidth-hz", "fast"], "--bandwidth-hz: 'fast' was given; expected a number; see"),
        (
            ["simulate", "digits", "--uplink.repeat", "x"],
            "'x' was given; expected auto or a whole number in digits; see",
        ),
        (["data", "fech"], "did you mean 'fetch'"),
        (["data"], "no subcommand was given"),
        (["list"], "no subcommand was given"),
        (["list", "scheme"], "did you mean 'schemes'"),
        (["central", "digits", "--device", "cuda"], "use --device cpu"),
    ],
)
def test_mistakes_exit_with_2_and_a_sentence(args, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call(*args) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert list(tmp_path.iterdir()) == []


def test_a_missing_dataset_says_where_it_looked(tmp_path, capsys):
    assert call("simulate", "cifar10", "--data-dir", tmp_path, "--out", tmp_path / "run") == 2
    assert "aircomp data fetch cifar10" in capsys.readouterr().err


def test_cost_tells_the_papers_numbers(tmp_path, capsys):
    assert call("cost", "--model", "resnet", "--uplink", "amp-da", "ideal", "--out", tmp_path) == 0
    rows = {row["uplink"]: row for row in read_json(tmp_path / "result.json")["rows"]}
    row = rows["amp-da"]
    assert (row["num_slots"], row["channel_uses"]) == (13_487, 863_168)
    assert row["air_seconds"] == pytest.approx(0.431584)
    assert rows["ideal"]["side_information"] == "every update, exactly"


def test_cost_tells_of_every_scheme_where_none_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("aircomp.schemes.cost.decoding_flops", lambda *_: 0.0)  # which takes seconds
    assert call("cost", "--parameters", "2000", "--out", tmp_path) == 0
    rows = read_json(tmp_path / "result.json")["rows"]
    assert [row["uplink"] for row in rows] == aircomp.uplink_names()
    assert all((row["channel_uses"] > 0) == (row["uplink"] != "ideal") for row in rows)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("channelcomp", "40 devices may send at once, but uplink = 'channelcomp' is for 16 at most"),
        ("receiver-csi", "40 devices need a pilot each, but uplink.decoder.pilots = 1 has room for 31"),
    ],
)
def test_cost_refuses_more_devices_than_a_scheme_serves(name, message, capsys):
    assert call("cost", "--parameters", "2000", "--num-active", "40", "--uplink", name) == 2
    assert message in capsys.readouterr().err


def test_cost_tells_seconds_and_joules_of_a_round(tmp_path, capsys):
    radio = ["--bandwidth", "2e6", "--power", "20", "--noise-figure", "7"]
    assert call("cost", "--parameters", "20000", "--uplink", "amp-da", *radio, "--out", tmp_path) == 0
    (row,) = read_json(tmp_path / "result.json")["rows"]
    air = 64_000 / (2 * 2e6)  # a thousand slots of 64 real uses, two of them for a hertz and second
    assert row["air_seconds"] == pytest.approx(air)
    assert row["round_seconds"] == pytest.approx(air + row["downlink_bits"] / (2 * 2e6) + 2e-3)
    assert row["round_joules"] == pytest.approx(0.1 * air, rel=1e-3)  # 20 dBm are a tenth of a watt
    # noise of -174 dBm a hertz at 290 K; ten devices of 20 dBm are to be 10 dB above it
    assert row["path_loss_db"] == pytest.approx(20 + 10 - 10 - (-173.975 + 63.01 + 7), abs=0.01)
    assert call("cost", "--parameters", "2000", "--power", "nan") == 2
    assert "--power-dbm nan: expected a finite number" in capsys.readouterr().err


def test_cost_of_all_schemes_leaves_out_what_cannot_be_sent(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("aircomp.schemes.cost.decoding_flops", lambda *_: 0.0)  # which takes seconds
    assert call("cost", "--parameters", "2000", "--num-active", "40", "--out", tmp_path) == 0
    result = read_json(tmp_path / "result.json")
    names = ["channelcomp", "channelcomp-noise-aware", "receiver-csi", "lattice-ldpc", "nomographic"]
    assert list(result["config"]["left_out"]) == names
    assert [row["uplink"] for row in result["rows"]] == [name for name in aircomp.uplink_names() if name not in names]
    assert "left out: channelcomp: 40 devices may send at once" in capsys.readouterr().out
    assert call("cost", "--parameters", "2000", "--num-active", "0") == 2


@pytest.mark.parametrize("name", ["joint-net", "learned-analog", "blind-net"])
def test_cost_takes_a_layer_for_every_scheme_that_has_one(name, capsys):
    layer = Path(aircomp.__file__).parent / "weights" / name
    assert call("cost", "--parameters", "2000", "--uplink", name, "--layer", layer) == 0
    no_effect = "uplink.layer was given but has no effect: 'gamp' sends a codebook of kind 'two-bases'"
    unnamed = "a layer was given, but no --uplink that takes one; name the one that it is for, say gamp-net"
    for others, message in ((["--uplink", "gamp"], no_effect), (["--uplink", "analog"], unnamed), ([], unnamed)):
        assert call("cost", "--parameters", "2000", "--layer", layer, *others) == 2
        assert message in capsys.readouterr().err


def test_cost_counts_the_learned_decoders_convolutions(tmp_path):
    assert call("cost", "--parameters", "20", "--uplink", "gamp-net", "gamp", "--out", tmp_path) == 0
    rows = {row["uplink"]: row["base_station_gflop"] for row in read_json(tmp_path / "result.json")["rows"]}
    products = 4 * 2 * 128 * 64 / 1e9  # one slot, one of ten iterations or six layers
    assert rows["gamp"] == pytest.approx(10 * products)
    # three convolutions over one codeword: from 6 features to 16, to 16, to 1
    assert rows["gamp-net"] == pytest.approx(6 * (products + 2 * 128 * (6 * 16 + 16 * 16 + 16) / 1e9))


def test_cost_counts_the_work_of_schemes_that_have_no_formula(tmp_path):
    names = ["blind", "analog", "tuma", "tdma-vq", "perfect"]
    assert call("cost", "--parameters", "2000", "--uplink", *names, "--out", tmp_path) == 0
    rows = {row["uplink"]: row["base_station_gflop"] for row in read_json(tmp_path / "result.json")["rows"]}
    assert rows["perfect"] == rows["tdma-vq"] == 0.0  # told, or free of errors by assumption
    slots = 100
    filters = 8 * 128 * 32 * 8 * slots / 1e9  # eight iterations of a complex product with 128 codewords of 32 uses
    assert filters < rows["blind"] < 20 * filters
    assert 0 < rows["analog"] < filters < rows["tuma"]


@pytest.mark.seconds
def test_a_demo_is_a_page_and_replaces_only_what_it_made(tmp_path, capsys, monkeypatch):
    found = {}

    def run_once(job, work):
        if job.key not in found:
            found[job.key] = run_job(job, work)
        return found[job.key]

    monkeypatch.setattr(kinds, "run_job", run_once)  # what is done again to be replaced is trained once
    demo = ["demo", "--rounds", "1", "--snr-db", "5", "--seeds", "1", "--workers", "1", "--out", tmp_path]
    assert call(*demo) == 0
    assert {"result.json", "report.html", "accuracy.png"} <= {path.name for path in tmp_path.iterdir()}
    rows = read_json(tmp_path / "result.json")["rows"]
    assert [row["uplink"] for row in rows] == ["ideal", "perfect", "amp-da-net", "amp-da", "gamp-net"]
    page, said = (tmp_path / "report.html").read_text(), capsys.readouterr()
    assert "aircomp demo --rounds 1 --seed 0 --seeds 1 --snr-db 5" in page
    assert "9 of 9 done: " in said.out, "without a terminal, too, it says what it does"
    best = max(rows[2:], key=lambda row: row["count_accuracy"])
    finding = f"At 5 dB {best['uplink']} finds {best['count_accuracy']:.0%} of the counts"
    assert finding in page
    assert finding in said.out
    exact, baseline, *rest = read_json(tmp_path / "low-snr.json")["rows"]
    best = max([baseline, *rest], key=lambda row: row["test_accuracy_last5"])
    assert (exact["contender"], baseline["contender"], exact["seeds"]) == ("ideal", "amp-da", 1)
    assert f"{best['contender']} ends at {best['test_accuracy_last5']:.1%}" in page
    uses = [row["channel_uses_per_parameter"] for row in (baseline, *rest)]
    assert uses == pytest.approx([uses[0]] * len(uses), rel=0.01)
    assert call(*demo) == 2
    assert "--overwrite" in capsys.readouterr().err
    kept = tmp_path / "work" / "simulate-somebody-elses.json"
    kept.write_text("{}")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").iterdir()}
    assert call(*demo, "--overwrite") == 0
    assert {path.name for path in before if path.stat().st_mtime_ns == before[path]} == {kept.name}
    assert call("demo", "--rounds", "0") == 2


def test_data_list_finds_digits(capsys):
    assert call("data", "list") == 0
    assert "digits" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "short"),
    [
        ("schemes", ["schemes"]),
        ("layers", ["layers"]),
        ("data", ["data", "list"]),
        ("results", ["reproduce", "--list"]),
    ],
)
def test_list_prints_what_there_is_as_the_short_forms_do(kind, short, capsys):
    assert call("list", kind) == 0
    listed = capsys.readouterr().out
    assert call(*short) == 0
    assert listed == capsys.readouterr().out != ""


@pytest.mark.process
def test_help_does_not_wait_for_torch():
    code = "import sys, aircomp.cli; aircomp.cli._usage(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_run_of_no_rounds_says_so(tmp_path, capsys):
    assert call("simulate", "digits", "--rounds", "0", "--engine", "serial", "--out", tmp_path / "run") == 0
    assert capsys.readouterr().out == (
        f"no round was run, since rounds = 0; {tmp_path / 'run'} holds the model as it is before training\n"
    )
