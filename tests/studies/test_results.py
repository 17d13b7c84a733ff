"""Results of the paper and ours: their jobs have valid settings and the paper's system, their rows become tables."""

import json
from dataclasses import replace

import pytest

from aircomp.cli import main
from aircomp.data.files import locate
from aircomp.decoders.settings import AmpDaNetSettings
from aircomp.device.local import num_steps
from aircomp.errors import AirCompError
from aircomp.federation.configure import configure
from aircomp.studies import results as module
from aircomp.studies.expected import deviations, expected
from aircomp.studies.jobs import Job, in_order, run_jobs
from aircomp.studies.kinds import ON_CPU, ON_DEVICE, run_job
from aircomp.studies.results import jobs_of, reproduce, rows_of, update_expected
from aircomp.studies.rounds import _with_ours_named, training_settings
from aircomp.studies.scales import SCALES
from aircomp.studies.shown import figures_of, tables_of
from aircomp.studies.study import RESULTS
from aircomp.studies.summary import over_seeds, working_range
from aircomp.train.recipe import PaperTrainingSettings


@pytest.mark.parametrize(
    ("scale", "name"),
    [
        pytest.param(scale, name, id=f"{name}-{scale.name}")
        for scale in SCALES.values()
        for name in RESULTS.at(scale.name)
    ],
)
def test_every_job_of_every_result_has_valid_settings_and_rows_to_show(scale, name, tmp_path):
    asked = module.asked_of(name, scale, range(1))
    checked = set()
    for each in asked:
        for about, job in each.jobs:
            for one in in_order([job]):
                assert one.kind in ON_DEVICE | ON_CPU
                if "files" in one.params and one.key not in checked:
                    configure(one.params["preset"], one.params["settings"])
                if one.kind == "pretrain":
                    assert isinstance(training_settings(one), PaperTrainingSettings)
                checked.add(one.key)
            told = dict.fromkeys(each.measurement.keep, "average") | {"round": 1, "test_accuracy": 0.5}
            row = (
                told
                | dict.fromkeys(MEASURED, 0.5)
                | {"buffers": "average", "decoder": "amp-da", "codebook": "gaussian"}
            )
            row |= {"way": "some", "readout": "auto", "scale": 1.0} | about
            if "snr_db" not in about and "snr_db" in each.measurement.by:
                row["snr_db"] = 5.0
            payload = {"rows": [row], "correlation": [[1.0]], "singular_values": [1.0], "curve": [[1, 0.5]]}
            job.keep(tmp_path, payload, 1.0)
    rows = rows_of(asked, tmp_path)
    result = RESULTS.load(name)
    assert all(any(f"{field}_std" in row for row in rows) for each in asked for field in each.measurement.fields)
    assert tables_of(result, rows)
    figures_of(result, rows)
    module.extras_of(result, rows, [(about, job.done(tmp_path)) for each in asked for about, job in each.jobs])


MEASURED = {field for result in RESULTS.all().values() for each in result.measure for field in each.fields}


@pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))
def test_every_result_of_the_paper_runs_its_network_as_published(scale):
    """Integers, no side information, its order, the SNR of every slot; ours are called ours."""
    for name in PAPERS:
        for row, job in jobs_of(name, scale, [0]) if name in RESULTS.at(scale.name) else ():
            ours = [value for value in row.values() if str(value).startswith("ours: ")]
            if job.kind in ("simulate", "treatments"):
                run = configure(job.params["preset"], job.params["settings"])
                assert run.uplink.name in ("perfect", "amp-da", "amp-da-net") or ours
                if run.uplink.name != "perfect" and ours != ["ours: best"]:
                    told = getattr(run.uplink, "side_information", "none")
                    assert (run.aggregate.readout, told) == ("integers", "none")
                    assert (run.channel.snr_reference, run.uplink.quantize.order) == ("slot", "popularity")
            if job.kind == "evaluate":
                assert job.params["decoders"] == ["amp-da", "amp-da-net", "gamp-net", "gamp"]
                assert (job.params["side_information"], job.params["snr_reference"]) == ("none", "slot")
            for need in in_order([job]):
                if need.kind == "pretrain" and not ours:
                    recipe = training_settings(need)
                    assert recipe.net == AmpDaNetSettings(form="paper")
                    assert recipe.codebook.start == ("bernoulli" if "Bernoulli" in row.get("setup", "") else "gaussian")


PAPERS = (
    *("fed_accuracy", "k_error", "decoding_accuracy", "codebook_ablation", "variants", "generalisation"),
    *("aggregation_rules", "codebook_geometry", "batch_norm", "from_scratch"),
)


@pytest.mark.parametrize("name", ["fed_accuracy", "variants", "k_error", "decoding_accuracy"])
def test_every_figure_over_snr_has_the_snrs_of_the_paper(name):
    jobs = jobs_of(name, SCALES["digits"], [0])
    found = {snr_db for row, job in jobs for snr_db in job.params.get("snr_db", [row.get("snr_db")])}
    assert found - {None} == {0.0, 3.0, 5.0, 10.0, 15.0, 20.0}


def test_the_desktop_has_the_papers_local_training():
    for scale in ("desktop", "paper"):
        (_, job), *_ = jobs_of("fed_accuracy", SCALES[scale], [0])
        local = configure(job.params["preset"], job.params["settings"]).local
        assert (local.epochs, local.data_fraction, local.batch_size, local.learning_rate) == (3, 0.8, 20, 0.01)
        assert (local.steps, num_steps(50_000 // 41, local)) == (None, 147)


def test_our_decoders_are_called_ours():
    rows = [_with_ours_named({"decoder": name, "codebook": "layer"}) for name in ("amp-da-net", "gamp-net")]
    assert [tuple(row.values()) for row in rows] == [("amp-da-net", "layer"), ("ours: gamp-net", "layer, ours")]


def test_results_share_their_jobs():
    keys = {
        n: {j.key for j in in_order(job for _, job in jobs_of(n, SCALES["digits"], [0]))}
        for n in RESULTS.names()
        if n in RESULTS.at("digits")
    }
    assert keys["k_error"] == keys["decoding_accuracy"]
    assert len(keys["codebook_geometry"] & keys["codebook_ablation"]) >= 5


def test_table_one_stands_beside_the_papers_numbers():
    rows = [
        {"uplink": name, "snr_db": snr_db, "test_accuracy_last5": value, "test_accuracy_last5_std": 0.1, "seeds": 2}
        for name, snr_db, value in (("perfect", None, 0.9), ("amp-da", 0.0, 0.5), ("amp-da", 5.0, 0.7))
    ]
    table, *_ = tables_of(RESULTS.load("fed_accuracy"), rows)
    assert list(table.columns.values()) == ["uplink", "no noise", "0 dB", "5 dB"]
    assert [row["uplink"] for row in table.rows] == ["perfect", "perfect, the paper", "amp-da", "amp-da, the paper"]
    assert (table.rows[1]["none"], table.rows[3]["0"], table.rows[3]["5"]) == (0.804, 0.139, 0.525)


@pytest.mark.seconds
def test_a_finished_result_becomes_the_expected_one(tmp_path, monkeypatch):
    few = {"rounds": 2, "devices.total": 4, "participation.low": 2, "participation.high": 3, "local.epochs": 1}
    scale = replace(SCALES["digits"], name="tiny", collected=few)
    rows = reproduce(["quantisation"], scale, range(2), tmp_path / "run")["quantisation"]
    monkeypatch.setattr("aircomp.studies.expected.folder", lambda: tmp_path / "expected")
    path = update_expected("quantisation", scale, range(2), tmp_path / "run", tmp_path / "run" / "work")
    found = expected("tiny", "quantisation")
    assert path == tmp_path / "expected" / "tiny" / "quantisation.json"
    assert deviations(rows, found["rows"]) == []
    assert len(found["rows"]) == len(rows) == 4
    assert set(found["seconds_by_kind"]) == {"collect", "quantize"}
    page = (tmp_path / "run" / "report.html").read_text()
    assert "k-means++ (the paper)" in page
    assert " on tiny" in page


def test_a_package_without_its_source_refuses_before_it_computes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("aircomp.studies.expected.resources.files", lambda _: tmp_path / "site" / "aircomp")
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", "quantisation", "--update-expected", "--out", str(tmp_path / "out")])
    assert stopped.value.code == 2
    assert "has none beside it; use a clone and make env" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_damaged_job_is_one_sentence_and_exit_2(tmp_path, capsys):
    (_, job), *_ = jobs_of("quantisation", SCALES["digits"], range(1))
    job.keep(tmp_path / "out" / "work", {"rows": [{"device_nmse": 0.5}]}, 1.0)
    path = job.path(tmp_path / "out" / "work")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rows": []}))
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", "quantisation", "--seeds", "1", "--out", str(tmp_path / "out")])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert "its checksum does not fit" in said
    assert said.count("\n") == 1


def test_a_result_of_another_scale_names_it():
    with pytest.raises(AirCompError, match="batch_norm is not for --scale digits; use --scale desktop"):
        RESULTS.find("batch_norm", "digits")


def test_results_are_listed_with_their_numbers(capsys):
    main(["reproduce", "--list"])
    said = capsys.readouterr().out
    for word in ("table1, fig3", "codebook_ablation", "table2", "Sec. V-D, Fig. 9", "ours"):
        assert word in said


@pytest.mark.parametrize(
    ("number", "name"),
    [
        ("table1", "fed_accuracy"),
        ("table2", "codebook_ablation"),
        ("fig3", "fed_accuracy"),
        ("fig4", "k_error"),
        ("fig5", "decoding_accuracy"),
        ("fig6", "variants"),
        ("fig7", "generalisation"),
        ("fig8", "aggregation_rules"),
        ("fig9", "codebook_geometry"),
    ],
)
def test_a_result_has_the_number_of_the_paper(number, name):
    assert RESULTS.find(number, "digits") == name


def test_an_unknown_result_is_named():
    with pytest.raises(AirCompError, match=r"fed_acuracy.*fed_accuracy"):
        RESULTS.find("fed_acuracy", "digits")


def test_seeds_become_mean_and_spread():
    found = [({"a": 1}, {"rows": [{"x": 1.0, "b": 2}]}), ({"a": 1}, {"rows": [{"x": 3.0, "b": 2}]})]
    found += [({"a": 2}, {"rows": [{"x": 5.0, "b": 2}]})]
    rows = over_seeds(found, ("a", "b"), ("x",))
    spread = {"x_std": pytest.approx(2**0.5), "x_values": [1.0, 3.0]}
    assert rows[0] == {"a": 1, "b": 2, "seeds": 2, "x": 2.0} | spread
    assert rows[1] == {"a": 2, "b": 2, "seeds": 1, "x": 5.0, "x_std": None, "x_values": [5.0]}


def curve(uplink, *accuracies):
    points = zip((0.0, 5.0, 10.0), accuracies, strict=True)
    return [{"uplink": uplink, "snr_db": s, "test_accuracy_last5": a} for s, a in points]


def test_decibels_are_counted_between_the_lowest_snrs_that_work():
    rows = curve("old", 0.1, 0.5, 0.8) + curve("new", 0.7, 0.8, 0.8) + curve("never", 0.1, 0.1, 0.1)
    found = {(row["within"], row["uplink"]): row for row in working_range(rows, "old", perfect=0.8)}
    old, new = found["two points", "old"], found["two points", "new"]
    # the level is .78: between .5 at 5 dB and .8 at 10 dB that is 5 + 5·28/30, between .7 and .8 it is 5·8/10
    assert old["lowest_snr_db"] == pytest.approx(5 + 5 * 0.28 / 0.3)
    assert new["lowest_snr_db"] == pytest.approx(4.0)
    assert new["gain_db"] == pytest.approx(old["lowest_snr_db"] - 4.0)
    assert found["two points", "never"]["gain_db"] is None
    assert found["five points", "new"]["lowest_snr_db"] == pytest.approx(2.5)
    # one that works wherever it was measured may work far below: nothing is known of a gain over it
    assert [row["gain_db"] for row in working_range(rows + curve("easy", 0.8, 0.8, 0.8), "easy", perfect=0.8)] == [
        None
    ] * 8


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(locate("cifar10") is None, reason="CIFAR-10 is not here; run aircomp data fetch cifar10")
def test_the_papers_scale_starts_and_steps(tmp_path):
    """Every kind of job with the paper's settings, shortened: two devices a round, a tenth of their data, a few steps."""
    few = {"participation.kind": "fixed", "participation.number": 2, "local.data_fraction": 0.1}
    scale = replace(
        SCALES["paper"],
        federated={"rounds": 1} | few,
        collected={"rounds": 6} | few,
        measured={"rounds": 1} | few,
        pretrained={
            "epochs": 1,
            "data.min_rounds": 3,
            "data.train_samples": 640,
            "data.validation_samples": 64,
            "data.test_samples": 64,
        },
        slots=200,
    )
    names = ("fed_accuracy", "k_error", "quantisation", "variants", "codebook_geometry")
    wanted: list[Job] = [jobs_of(name, scale, [0])[0][1] for name in names]
    run_jobs(wanted, tmp_path, run_job)
    kinds = {"simulate", "collect", "pretrain", "evaluate", "geometry", "quantize"}
    assert {job.kind for job in in_order(wanted)} == kinds
    for job in wanted:
        assert job.payload(tmp_path)["rows"]
