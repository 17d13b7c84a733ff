import logging
import math
import sys

import pytest
import torch

from aircomp.common.rng import generator
from aircomp.decoders.settings import GampNetSettings
from aircomp.train.batches import make_batch
from aircomp.train.recipe import PretrainSettings
from benchmarks import growth
from benchmarks import net as bench_net_module
from benchmarks.__main__ import train
from benchmarks.decode import bench_decode, bench_scaling, zipf_round
from benchmarks.growth import slope, taken_bytes
from benchmarks.memory import SCHEMES, bench_memory
from benchmarks.net import Example, Sizes, agrees, bench_net, bench_net_scaling
from benchmarks.schemes import RoundSize, bench_schemes
from benchmarks.together import CONTENDERS, bench_together
from benchmarks.train import _models, _stepper, bench_train, loss_difference, synthetic_round

pytestmark = pytest.mark.seconds


@pytest.fixture(scope="module")
def decode_rows():
    """Return what the benchmark of decoding measures for a few slots."""
    rows = [*bench_decode(16, 1), bench_net(16, 1)]
    return rows + bench_scaling(16, 1) + bench_net_scaling(16, 1)


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


def test_a_training_step_is_measured_beside_plain():
    rows = bench_train((4, 8), 1)
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


def test_a_benchmark_prints_its_table(capsys):
    train(slots=(4,), repeats=1)
    printed = capsys.readouterr().out
    assert "times plain" in printed
    assert "training step, paper's shape, one thread" in printed


def test_a_step_is_timed_for_every_number_of_devices_together():
    rows = bench_together(repeats=1, devices=2, steps=1)
    assert len(rows) == len(CONTENDERS)
    assert rows[0]["times_alone"] == 1
    assert min(row["milliseconds"] for row in rows) > 0


def test_slopes_are_those_of_powers():
    assert slope([1, 2, 4], [3, 12, 48]) == pytest.approx(2)


def test_growth_is_measured_along_every_axis(monkeypatch):
    monkeypatch.setattr(growth, "AXES", {"slots": (4, 8), "codewords": (64, 128)})
    rows = growth.bench_growth(1, ("gamp", "encode"))
    assert [(r["contender"], r["axis"]) for r in rows] == [
        (name, axis) for name in ("gamp", "encode") for axis in ("slots", "codewords")
    ]


@pytest.mark.parametrize("name", ["superpose, fading", "trimmed mean", "round of analog"])
def test_growth_of_the_other_parts_of_a_round_is_measured(monkeypatch, name):
    monkeypatch.setattr(growth, "AXES", {"slots": (4, 8), "antennas": (1, 2), "parameters": (400, 800)})
    rows = growth.bench_growth(1, (name,))
    assert [r["axis"] for r in rows] == [axis for axis in growth.EXPECTED[name] if axis in growth.AXES]


def test_growth_is_drawn_with_the_expected_slopes(tmp_path):
    numbers = {"slope": 1.04, "expected": 1, "memory_slope": 0.5, "memory_expected": 1, "from_to": "4 to 8"}
    row = {"contender": "gamp", "axis": "slots", "milliseconds": "1 2.1", "mib": "3 4", **numbers}
    growth.draw_growth([row], tmp_path / "time.svg")
    growth.draw_growth([row], tmp_path / "memory.svg", memory=True)
    assert "gamp over slots 1.04 of 1" in (tmp_path / "time.svg").read_text()
    assert "gamp over slots 0.50 of 1" in (tmp_path / "memory.svg").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak of a part of a process")
def test_the_memory_of_a_run_is_what_it_allocates():
    megabytes = taken_bytes(lambda: torch.ones(8 * 2**20, dtype=torch.uint8).add(1)) / 2**20
    assert 15 < megabytes < 20  # two tensors of eight; the system counts pages in batches


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_memory_of_a_round_is_that_of_its_messages_and_of_one_part(scheme):
    one, five = bench_memory(scheme, (1.0, 5.0))  # one part of `LARGEST_PART` parameters and a bit, and six parts
    extra = [row["peak_mib"] - row["before_mib"] for row in (one, five)]
    # ten devices send 3.2 numbers for each parameter; beside these a part has copies of them, each as long
    assert extra[0] < 12 * one["messages_mib"]
    # docs/howto/ray.md plans with four copies of every message, the message itself among them
    assert extra[1] - extra[0] < 3 * (five["messages_mib"] - one["messages_mib"])


def test_schemes_are_timed_beside_amp_da():
    zoned, vote = bench_schemes(("tuma", "obda"), RoundSize(slots=64, devices=3, antennas=4, access_points=2))
    assert (zoned["uplink"], zoned["antennas"], zoned["access_points"]) == ("tuma", 4, 2)
    assert (vote["uplink"], vote["antennas"], vote["access_points"]) == ("obda", 1, 1)  # in phase, so over white noise
    assert vote["seconds"] < zoned["seconds"]
    assert vote["times_amp_da"] < 1
    assert 0.1 < vote["peak_gib"] < 2
