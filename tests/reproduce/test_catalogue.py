from dataclasses import replace

import pytest

from aircomp.cli import main
from aircomp.data.images import locate
from aircomp.decode.amp_da_net import AmpDaNetSettings
from aircomp.device.local import num_steps
from aircomp.errors import AirCompError
from aircomp.fl.configure import configure
from aircomp.reproduce.catalogue import RESULTS, result_of, results_at
from aircomp.reproduce.jobs import in_order, run_jobs
from aircomp.reproduce.scales import SCALES
from aircomp.reproduce.summary import over_seeds, working_range
from aircomp.reproduce.work import KINDS, run_job, training_settings
from aircomp.train.paper import PaperTrainingSettings


@pytest.mark.parametrize(
    ("scale", "result"),
    [
        pytest.param(scale, result, id=f"{result.name}-{scale.name}")
        for scale in SCALES.values()
        for result in results_at(scale.name)
    ],
)
def test_every_job_of_every_result_has_valid_settings(scale, result):
    for job in in_order(job for _, job in result.jobs(scale, range(2))):
        assert job.kind in KINDS
        if job.kind in ("simulate", "treatments", "central", "collect"):
            configure(job.params["preset"], job.params["settings"])
        if job.kind == "pretrain":
            assert isinstance(training_settings(job), PaperTrainingSettings)


@pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))
def test_every_result_of_the_paper_runs_its_network_as_published(scale):
    """Integers, no side information, its order, the SNR of every slot; ours are called ours."""
    for name in PAPERS:
        for row, job in RESULTS[name].jobs(scale, [0]) if RESULTS[name] in results_at(scale.name) else ():
            ours = [value for value in row.values() if str(value).startswith("ours: ")]
            if job.kind in ("simulate", "treatments"):
                run = configure(job.params["preset"], job.params["settings"])
                assert run.uplink.name in ("perfect", "amp-da", "amp-da-net") or ours
                if run.uplink.name != "perfect" and ours != ["ours: best"]:
                    assert (run.aggregate.readout, run.uplink.side_information) == ("integers", "none")
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


@pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))
@pytest.mark.parametrize("name", ["fed_accuracy", "variants", "k_error", "decoding_accuracy"])
def test_every_figure_over_snr_has_the_snrs_of_the_paper(scale, name):
    jobs = RESULTS[name].jobs(scale, [0])
    found = {snr_db for row, job in jobs for snr_db in job.params.get("snr_db", [row.get("snr_db")])}
    assert found - {None} == {0.0, 3.0, 5.0, 10.0, 15.0, 20.0}


def test_the_desktop_has_the_papers_local_training():
    for scale in ("desktop", "paper"):
        (_, job), *_ = RESULTS["fed_accuracy"].jobs(SCALES[scale], [0])
        local = configure(job.params["preset"], job.params["settings"]).local
        assert (local.epochs, local.data_fraction, local.batch_size, local.learning_rate) == (3, 0.8, 20, 0.01)
        assert (local.steps, num_steps(50_000 // 41, local)) == (0, 147)


def test_our_decoders_are_called_ours():
    row = {"codebook": "layer", "snr_db": 0.0, "count_accuracy": 0.5, "num_active_mae": 0.1}
    found = [({}, {"rows": [row | {"decoder": name} for name in ("amp-da-net", "gamp-net")]})]
    names = [
        (r["decoder"], r["codebook"]) for r in result_of("k_error", "digits").present(SCALES["digits"], found).rows
    ]
    assert names == [("amp-da-net", "layer"), ("ours: gamp-net", "layer, ours")]


def test_results_share_their_jobs():
    scale = SCALES["digits"]
    keys = {r.name: {job.key for job in in_order(j for _, j in r.jobs(scale, [0]))} for r in results_at("digits")}
    assert keys["k_error"] == keys["decoding_accuracy"]
    assert len(keys["codebook_geometry"] & keys["codebook_ablation"]) >= 5


def test_decoding_accuracy_is_drawn_below_its_limit_also_where_older_results_have_none():
    row = {"decoder": "amp-da", "codebook": "two-bases", "count_accuracy": 0.5, "num_active_mae": 0.1}
    bits = {"entropy_bits": 33.0, "signal_bits": 22.0, "capacity_bits": 32.0, "count_accuracy_limit": 0.9}
    for found, titles in ((bits, ["Count accuracy", "Information of a slot"]), ({}, ["Count accuracy"])):
        rows = [row | found | {"snr_db": snr_db} for snr_db in (0.0, 5.0)]
        outcome = result_of("decoding_accuracy", "digits").present(SCALES["digits"], [({}, {"rows": rows})])
        assert [figure.title for figure in outcome.figures] == titles
        assert ("limit, two-bases" in outcome.figures[0].svg) == bool(found)
        assert outcome.rows[0]["count_accuracy_limit"] == found.get("count_accuracy_limit")


def test_a_result_of_another_scale_names_it():
    with pytest.raises(AirCompError, match="batch_norm is not for --scale digits; use --scale desktop"):
        result_of("batch_norm", "digits")


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
    assert result_of(number, "digits") is RESULTS[name]


def test_an_unknown_result_is_named():
    with pytest.raises(AirCompError, match=r"fed_acuracy.*fed_accuracy"):
        result_of("fed_acuracy", "digits")


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
        snr_db=(5.0,),
        slots=200,
    )
    wanted = [job for name in ("fed_accuracy", "k_error", "quantisation") for _, job in RESULTS[name].jobs(scale, [0])]
    wanted += [job for name in ("variants", "codebook_geometry") for _, job in RESULTS[name].jobs(scale, [0])[:1]]
    run_jobs(wanted, tmp_path, run_job)
    kinds = {"simulate", "collect", "pretrain", "evaluate", "geometry", "quantize"}
    assert {job.kind for job in in_order(wanted)} == kinds
    for job in wanted:
        assert job.payload(tmp_path)["rows"]
