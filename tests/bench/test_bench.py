import logging
import math

import pytest
import torch

from aircomp.bench import net as bench_net_module
from aircomp.bench.decode import zipf_round
from aircomp.bench.net import Example, Sizes, agrees, bench_net
from aircomp.bench.train import _models, _stepper, loss_difference, synthetic_round
from aircomp.common.artefact import read_json
from aircomp.common.rng import generator
from aircomp.decode.gamp_net import GampNetSettings
from aircomp.train.batches import make_batch
from aircomp.train.recipe import PretrainSettings
from helpers.commands import call

pytestmark = pytest.mark.seconds


@pytest.fixture(scope="module")
def decode_rows(tmp_path_factory):
    """Return what `aircomp bench decode` writes for a few slots."""
    out = tmp_path_factory.mktemp("decode")
    assert call("bench", "decode", "--slots", 16, "--repeats", 1, "--out", out) == 0
    return read_json(out / "result.json")["rows"]


def test_the_benched_cnns_correct_something():
    example = Example.of(Sizes(8, layers=2))
    features = [torch.ones(8, 128)] * 6
    assert all(cnn(features).abs().max() > 1e-3 for cnn in example.decoder.net.cnn)


def test_the_network_is_measured_beside_plain(decode_rows):
    row = next(r for r in decode_rows if r["contender"] == "gamp-net" and "times_plain" in r)
    assert row["slots"] == 16
    assert row["slots_per_second"] == pytest.approx(16 / row["seconds"])
    assert row["times_plain"] == pytest.approx(row["slots_per_second"] / row["plain_slots_per_second"])
    assert 0 < row["largest_difference"] <= 1e-4  # exactly zero would mean that one was compared with itself
    assert row["agrees"]


def test_a_plain_version_that_differs_is_flagged(monkeypatch, caplog):
    plain = bench_net_module.plain_unroll

    def shifted(*args):
        output = plain(*args)
        output.mean.add_(0.01)
        return output

    monkeypatch.setattr(bench_net_module, "plain_unroll", shifted)
    with caplog.at_level(logging.WARNING):
        row = bench_net(16, 1)
    assert not row["agrees"]
    assert "gamp-net differs from its plain version by 0.01" in caplog.text


def test_what_is_not_a_number_does_not_agree():
    assert agrees("x", 1e-4)
    assert not agrees("x", math.nan)


def test_scaling_varies_one_size_at_a_time(decode_rows):
    rows = [r for r in decode_rows if r["contender"] == "gamp-net" and "axis" in r]
    assert [(r["axis"], r["value"]) for r in rows] == [
        *(("slots", v) for v in (4, 8, 16)),
        *(("layers", v) for v in (5, 10, 20)),
        *(("codewords", v) for v in (64, 128, 256)),
        *(("filters", v) for v in (16, 32, 64)),
    ]
    for row in rows:
        slots = row["value"] if row["axis"] == "slots" else 16
        assert row["microseconds_per_slot"] == pytest.approx(1e6 * row["seconds"] / slots)


def test_the_other_kernels_are_measured_too(decode_rows):
    names = [r["contender"] for r in decode_rows if "times_plain" in r]
    compiled = [f"{name}, compiled kernels beside torch" for name in ("gamp", "gamp-net")]
    others = ["rounding", "quantise ten devices", "quantisation codebook", "gamp-net"]
    assert names == ["gamp", *compiled, *others]
    points = [(r["contender"], r["axis"], r["value"]) for r in decode_rows if "axis" in r]
    assert points[:6] == [(name, "slots", slots) for name in ("amp-da", "gamp") for slots in (4, 8, 16)]


def test_ten_devices_prefer_the_first_codewords():
    indices, popularity = zipf_round(2_000, 128, rng=generator(0, "test"))
    assert indices.shape == (10, 2_000)
    assert popularity.sum().item() == pytest.approx(1)
    share = (indices == 0).float().mean().item()
    assert share == pytest.approx(popularity[0].item(), abs=0.012)  # four standard errors of 20,000 draws


def test_a_training_step_is_measured_beside_plain(tmp_path, capsys):
    assert call("bench", "train", "--slots", 4, 8, "--repeats", 2, "--out", tmp_path) == 0
    assert "samples per second" in capsys.readouterr().out
    rows = read_json(tmp_path / "result.json")["rows"]
    assert [r["batch_slots"] for r in rows] == [4, 8]
    for row in rows:
        assert row["samples_per_second"] == pytest.approx(row["batch_slots"] / row["seconds"])
        assert row["times_plain"] == pytest.approx(row["samples_per_second"] / row["plain_samples_per_second"])
        assert 0 < row["loss_difference"] <= 1e-4
        assert row["agrees"]


def test_plain_layers_take_the_same_steps():
    # a learning rate at which one step changes the loss by far more than the tolerance
    settings = PretrainSettings(net=GampNetSettings(num_layers=2, filters=4), learning_rate=3e-3)
    batch = make_batch(synthetic_round(16), torch.arange(16), 10.0, "round")
    fast, plain = _models(settings)
    before = [p.detach().clone() for p in fast.parameters()]
    steps = [_stepper(model, batch, settings) for model in (fast, plain)]
    for step in steps:
        step()
    assert all(not torch.equal(p, old) for p, old in zip(fast.parameters(), before, strict=True))
    assert loss_difference(fast, plain, batch, settings) <= 1e-4


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["xyzzy"], "decode, simulate, train, flower"),
        (["trian"], "did you mean 'train'"),
        (["train", "--slots", "64", "0"], "--slots 64 0"),
        (["train", "--slots"], "expected"),
        (["decode", "--repeats", "0"], "--repeats 0"),
    ],
)
def test_mistakes_are_told_in_a_sentence(args, message, capsys):
    assert call("bench", *args) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", ["decode", "simulate", "train"])
def test_help_names_every_benchmark_and_shows_an_example(name, capsys):
    assert call("bench", "--help") == 0
    assert name in capsys.readouterr().out
    assert call("bench", name, "--help") == 0
    assert f"aircomp bench {name} --" in capsys.readouterr().out


def test_schemes_are_timed_beside_amp_da(tmp_path):
    out = tmp_path / "schemes"
    options = ("--slots", 64, "--devices", 3, "--antennas", 4, "--access-points", 2, "--out", out)
    assert call("bench", "schemes", "--uplink", "tuma", "obda", *options) == 0
    zoned, vote = read_json(out / "result.json")["rows"]
    assert (zoned["uplink"], zoned["antennas"], zoned["access_points"]) == ("tuma", 4, 2)
    assert (vote["uplink"], vote["antennas"], vote["access_points"]) == ("obda", 1, 1)  # in phase, so over white noise
    assert vote["seconds"] < zoned["seconds"]
    assert vote["times_amp_da"] < 1
    assert 0.1 < vote["peak_gib"] < 2


def test_a_scheme_that_does_not_exist_is_not_timed(capsys):
    assert call("bench", "schemes", "--uplink", "tumma") == 2
    assert "did you mean 'tuma'" in capsys.readouterr().err
