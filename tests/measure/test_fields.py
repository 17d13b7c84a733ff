"""One name, one meaning: every field is defined once, and files of older versions are read under today's names.

`tests/older` holds seven rounds of digits over `gamp`, and a job of six rounds, as they were written before
`test_accuracy_last5` and `count_accuracy` had their names.
"""

import json
import shutil
import statistics
from importlib import resources
from pathlib import Path

import pytest

from aircomp.common.artefact import config_hash, read_json, write_json
from aircomp.data.images import load
from aircomp.fl.experiment import load_experiment, read_toml
from aircomp.fl.journal import read_metrics
from aircomp.fl.simulate import simulate
from aircomp.layer import CommunicationLayer
from aircomp.measure.fields import FIELDS, OLDER_NAMES, columns_of, with_current_names
from aircomp.report.gather import sections_of
from aircomp.report.runs import read_runs
from aircomp.reproduce.jobs import Job

OLDER = Path(__file__).parent / "older"
ACCURACIES = [json.loads(line)["test_accuracy"] for line in (OLDER / "metrics.jsonl").read_text().splitlines()]


def test_an_older_run_is_reported_under_todays_names():
    (run,) = read_runs([OLDER])
    (row,) = run.rows
    assert "test_accuracy" not in row
    assert row["test_accuracy_last5"] == pytest.approx(statistics.fmean(ACCURACIES[-5:]))
    assert row["count_accuracy"] == read_json(OLDER / "result.json")["rows"][0]["accuracy"]
    assert [record["test_accuracy"] for record in run.metrics] == ACCURACIES
    (section,) = sections_of([OLDER])
    headings = section.tables[0].columns.values()
    assert {"test accuracy, last five", "count accuracy"} <= set(headings)
    assert "Count accuracy by round" in [figure.title for figure in section.figures]


def test_the_metrics_of_an_older_run_are_resumed_under_todays_names():
    records = read_metrics(OLDER / "metrics.jsonl", len(ACCURACIES))
    assert [record["test_accuracy"] for record in records] == ACCURACIES
    assert not any("accuracy" in record for record in records)
    assert statistics.fmean(r["count_accuracy"] for r in records) > 0.9


def test_a_run_that_an_older_version_began_ends_with_the_same_numbers(tmp_path):
    settings = {
        "devices.total": 4,
        "participation.low": 2,
        "participation.high": 3,
        "local.epochs": 1,
        "model.width": 4,
    }
    short = load_experiment("digits").changed(uplink="perfect", engine="serial", rounds=1, **settings)
    digits = load("digits")
    simulate(short, dataset=digits, out=tmp_path)
    older = (tmp_path / "metrics.jsonl").read_text().replace('"count_accuracy"', '"accuracy"')
    (tmp_path / "metrics.jsonl").write_text(older)
    resumed = simulate(short.changed(rounds=2), dataset=digits, out=tmp_path, resume=True)
    whole = simulate(short.changed(rounds=2), dataset=digits)
    assert resumed.row | {"seconds": 0} == whole.row | {"seconds": 0}


def test_the_checkpoint_of_an_older_run_fits_its_settings():
    identity = read_toml(OLDER / "config.toml").identity
    written = "3b97e4f61038559e"  # in the checkpoint that lay beside tests/older/config.toml
    assert config_hash(identity) == written, "add a new setting to LATER in src/aircomp/fl/experiment.py"


def test_the_job_of_an_older_version_is_read_under_todays_names(tmp_path):
    job = Job("simulate", {"preset": "digits", "settings": {"rounds": 6, "uplink": "perfect", "seed": 0}})
    shutil.copy(OLDER / "simulate-688f243bb5a54b07.json", job.path(tmp_path))  # of the preset's first version
    (row,) = job.done(tmp_path)["rows"]
    curve = [accuracy for _, accuracy in job.done(tmp_path)["curve"]]
    assert row["test_accuracy_last5"] == pytest.approx(statistics.fmean(curve[-5:]))
    assert (row["count_accuracy"], "test_accuracy" in row, "accuracy" in row) == (1.0, False, False)


def test_the_card_of_an_older_layer_is_read_under_todays_names(tmp_path):
    shutil.copytree(str(resources.files("aircomp") / "weights" / "128x64"), tmp_path / "layer")
    described = read_json(tmp_path / "layer" / "layer.json")
    today = described["training"]["test"]
    older = [{name.replace("count_accuracy", "accuracy"): v for name, v in row.items()} for row in today]
    assert all("accuracy" in row for row in older)
    described["training"]["test"] = older
    write_json(tmp_path / "layer" / "layer.json", described)
    assert CommunicationLayer.load(tmp_path / "layer").training["test"] == today


def test_what_has_todays_names_stays_as_it_is():
    row = {"test_accuracy": 0.5, "test_accuracy_last5": 0.4, "count_accuracy": 0.9, "own_field": 1}
    assert with_current_names(row, summary=True) == row
    tested_once = {"test_accuracy": 0.5, "epochs": 6}
    assert with_current_names(tested_once, summary=True) == tested_once
    record = {"round": 3, "test_accuracy": 0.5}
    assert with_current_names(record, summary=False) == record


def test_spreads_and_values_of_seeds_are_renamed_with_their_field():
    row = {"test_accuracy": 0.5, "test_accuracy_std": 0.1, "test_accuracy_values": [0.4, 0.6], "accuracy_band": 0.02}
    row["stability"] = 0.01
    found = with_current_names(row, summary=True)
    names = {"test_accuracy_last5", "test_accuracy_last5_std", "test_accuracy_last5_values", "count_accuracy_band"}
    assert found.keys() == names | {"stability"}


def test_headings_tell_fields_apart():
    labels = [field.label for field in FIELDS.values()]
    assert len(set(labels)) == len(labels)
    assert not OLDER_NAMES.keys() & FIELDS.keys(), "an old name has no second life"
    assert columns_of(["snr_db", "own_field"]) == {"snr_db": "SNR (dB)", "own_field": "own field"}
