from pathlib import Path

import pytest
import torch

from aircomp.cli import main
from aircomp.common.artefact import read_json
from aircomp.errors import ArtefactError, ConfigError
from aircomp.measure.information import capacity_bits
from aircomp.train.evaluate import Plan, evaluate
from aircomp.train.fragments import FragmentRound, load_round, round_path, save_round

pytestmark = pytest.mark.seconds


@pytest.fixture
def saved_rounds(tmp_path, rng):
    """Two rounds of Zipf-like choices, as few keys as a directory may hold."""
    popularity = 1 / torch.arange(1, 129).float()
    for index, num_active in enumerate((8, 11)):
        indices = torch.multinomial(popularity, num_active * 300, replacement=True, generator=rng).view(num_active, 300)
        quant = torch.randn(128, 20, generator=rng)
        save_round(tmp_path / "rounds", index, FragmentRound(indices, popularity / popularity.sum(), quant))
    return tmp_path / "rounds"


@pytest.fixture
def small_rounds(tmp_path, rng):
    """Two rounds of three devices, quick to sample from."""
    popularity = 1 / torch.arange(1, 17).float()
    for index in range(2):
        indices = torch.multinomial(popularity, 3 * 40, replacement=True, generator=rng).view(3, 40)
        save_round(tmp_path / "small", index, FragmentRound(indices, popularity, torch.randn(16, 4, generator=rng)))
    return tmp_path / "small"


def test_more_noise_means_more_errors_and_the_genie_makes_none(saved_rounds):
    plan = Plan(["gamp", "amp-da", "genie"], [0.0, 10.0, 25.0], "slot")
    rows = {(r["decoder"], r["snr_db"]): r for r in evaluate(saved_rounds, plan)}
    for decoder in ("gamp", "amp-da"):
        accuracies = [rows[decoder, snr]["count_accuracy"] for snr in (0.0, 10.0, 25.0)]
        assert accuracies == sorted(accuracies)
        assert accuracies[-1] > 0.95
    assert rows["genie", 0.0]["count_accuracy"] == 1.0
    assert rows["genie", 0.0]["update_nmse_hard"] == 0.0
    assert rows["gamp", 10.0]["count_accuracy"] > rows["amp-da", 10.0]["count_accuracy"]


def test_noise_is_the_same_for_every_decoder_and_every_call(saved_rounds):
    both = evaluate(saved_rounds, Plan(["gamp", "omp"], [5.0]))
    alone = evaluate(saved_rounds, Plan(["omp"], [0.0, 5.0]))
    assert both[1]["count_accuracy"] == alone[1]["count_accuracy"]


def test_beside_a_layer_every_codebook_has_its_length(saved_rounds):
    plan = Plan(["amp-da", "gamp-net"], [5.0], layer=Path("128x32"), num_slots=50)
    bits = [row["capacity_bits"] for row in evaluate(saved_rounds, plan)]
    assert bits == [capacity_bits(5.0, 32)] * 2
    with pytest.raises(ConfigError, match="leave out codeword_length"):
        evaluate(saved_rounds, Plan(["gamp-net"], [5.0], codeword_length=32, layer=Path("128x32")))


def test_the_first_devices_of_a_round_may_send_alone(saved_rounds, tmp_path):
    found = evaluate(saved_rounds, Plan(["gamp"], [10.0], num_active=3))[0]
    for index in range(2):
        few = load_round(round_path(saved_rounds, index))
        save_round(tmp_path / "few", index, FragmentRound(few.indices[:3], few.popularity, few.quant_codebook))
    expected = evaluate(tmp_path / "few", Plan(["gamp"], [10.0]))[0]
    timed = ("seconds", "slots_per_second")
    assert {k: v for k, v in found.items() if k not in timed} == {k: v for k, v in expected.items() if k not in timed}
    with pytest.raises(ConfigError, match=r"round_00000.safetensors has 8 devices, not 9; lower num_active"):
        evaluate(saved_rounds, Plan(["gamp"], [10.0], num_active=9))


def test_a_sample_of_slots_is_seeded(saved_rounds):
    first, again, other = (
        evaluate(saved_rounds, Plan(["gamp"], [5.0], num_slots=50, seed=seed))[0]["count_accuracy"]
        for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other


def test_the_yardstick_is_the_posterior_of_the_same_slots_noise_and_codebook(small_rounds):
    steps = []
    plan = Plan(["gamp", "posterior", "amp-da"], [0.0], "slot", codeword_length=16, num_slots=30, yardstick=True)
    rows = evaluate(small_rounds, plan, on_step=lambda *step: steps.append(step))
    gamp, posterior, amp_da = rows
    assert posterior["posterior_count_accuracy"] == gamp["posterior_count_accuracy"]
    # the decoder of that name estimates the number of devices, the yardstick is told
    assert posterior["below_posterior"] == posterior["posterior_count_accuracy"] - posterior["count_accuracy"] >= 0
    assert amp_da["posterior_count_accuracy"] != posterior["count_accuracy"]  # another codebook, Bernoulli
    assert amp_da["below_posterior"] == amp_da["posterior_count_accuracy"] - amp_da["count_accuracy"] > 0.05
    assert 0 < posterior["chains_disagree"] < 0.2
    # two rounds: three decoders, and a posterior for each of two codebooks
    assert [(done, total) for _, done, total in steps] == [(done, 10) for done in range(1, 11)]
    assert sum(note.startswith("yardstick") for note, _, _ in steps) == 4


@pytest.mark.parametrize("reference", ["round", "slot", "transmit"])
def test_independent_devices_are_decoded_within_the_limits_of_information(saved_rounds, reference):
    low, high = evaluate(saved_rounds, Plan(["gamp"], [-5.0, 20.0], reference))
    assert low["count_accuracy"] < low["count_accuracy_limit"] < 0.8
    assert high["count_accuracy_limit"] == 1.0
    # eight and eleven devices of 6 bits each, less the order of the devices: log2 8! = 15 and log2 11! = 25
    assert 25 < low["entropy_bits"] == high["entropy_bits"] < 45
    assert low["signal_bits"] < low["capacity_bits"] < low["entropy_bits"] < high["signal_bits"]
    if reference != "transmit":
        assert high["capacity_bits"] == pytest.approx(32 * 6.658, abs=0.1)  # log2 of 101


def test_the_yardstick_is_printed_only_if_asked_for(small_rounds, tmp_path, capsys):
    command = ["evaluate", "--fragments", str(small_rounds), "--decoder", "gamp", "--snr-db", "0", "5", "--slots", "10"]
    main([*command, "--out", str(tmp_path / "without")])
    assert "posterior" not in capsys.readouterr().out
    main([*command, "--out", str(tmp_path / "with"), "--yardstick"])
    printed = capsys.readouterr().out
    assert all(heading in printed for heading in ("posterior", "chains", "capacity", "limit"))
    without, with_it = (read_json(tmp_path / name / "result.json")["rows"][0] for name in ("without", "with"))
    added = {"posterior_count_accuracy", "below_posterior", "chains_disagree"}
    assert with_it.keys() - without.keys() == added
    assert with_it["count_accuracy"] == without["count_accuracy"]


def test_the_command_writes_a_row_for_each_decoder_and_snr(saved_rounds, tmp_path, capsys):
    out = tmp_path / "result"
    main(["evaluate", "--fragments", str(saved_rounds), "--snr-db", "3", "10", "--slots", "50", "--out", str(out)])
    rows = read_json(out / "result.json")["rows"]
    assert [(r["decoder"], r["snr_db"]) for r in rows] == [
        ("amp-da", 3.0), ("amp-da", 10.0), ("gamp", 3.0), ("gamp", 10.0)
    ]  # fmt: skip
    names = {
        "count_accuracy",
        "count_nmse",
        "update_nmse_soft",
        "update_nmse_hard",
        "num_active_mae",
        "pupe",
        "seconds",
    }
    assert names <= rows[0].keys()
    with pytest.raises(SystemExit, match="2"):
        main(["evaluate", "--fragments", str(saved_rounds), "--out", str(out)])
    assert "--overwrite" in capsys.readouterr().err


@pytest.mark.process
def test_rounds_side_by_side_give_the_rows_of_one_after_the_other(saved_rounds):
    steps, plan = [], Plan(["gamp", "omp"], [5.0, 0.0], "slot")
    together = evaluate(saved_rounds, plan, num_workers=2, on_step=lambda *step: steps.append(step[1:]))
    assert steps == [(1, 2), (2, 2)]
    speeds = ("seconds", "slots_per_second")
    for row, alone in zip(together, evaluate(saved_rounds, plan), strict=True):
        assert {k: v for k, v in row.items() if k not in speeds} == {k: v for k, v in alone.items() if k not in speeds}


def test_no_worker_is_too_few(saved_rounds):
    with pytest.raises(ConfigError, match="workers is 0; expected an integer of at least 1"):
        evaluate(saved_rounds, Plan(["gamp"], [5.0]), num_workers=0)


@pytest.mark.process
def test_what_a_worker_refuses_is_said_here(saved_rounds):
    (next(saved_rounds.glob("*.safetensors"))).write_bytes(b"nothing")
    with pytest.raises(ArtefactError, match="safetensors"):
        evaluate(saved_rounds, Plan(["gamp"], [5.0]), num_workers=2)
