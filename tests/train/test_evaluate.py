import pytest
import torch

from aircomp.artefact import read_json
from aircomp.cli import main
from aircomp.train.evaluate import Plan, evaluate
from aircomp.train.fragments import FragmentRound, save_round


@pytest.fixture
def saved_rounds(tmp_path, rng):
    """Two rounds of Zipf-like choices, as few keys as a directory may hold."""
    popularity = 1 / torch.arange(1, 129).float()
    for index, num_active in enumerate((8, 11)):
        indices = torch.multinomial(popularity, num_active * 300, replacement=True, generator=rng).view(num_active, 300)
        quant = torch.randn(128, 20, generator=rng)
        save_round(tmp_path / "rounds", index, FragmentRound(indices, popularity / popularity.sum(), quant))
    return tmp_path / "rounds"


def test_more_noise_means_more_errors_and_the_genie_makes_none(saved_rounds):
    plan = Plan(["gamp", "amp-da", "genie"], [0.0, 10.0, 25.0], "slot")
    rows = {(r["decoder"], r["snr_db"]): r for r in evaluate(saved_rounds, plan)}
    for decoder in ("gamp", "amp-da"):
        accuracies = [rows[decoder, snr]["accuracy"] for snr in (0.0, 10.0, 25.0)]
        assert accuracies == sorted(accuracies)
        assert accuracies[-1] > 0.95
    assert rows["genie", 0.0]["accuracy"] == 1.0
    assert rows["genie", 0.0]["update_nmse_hard"] == 0.0
    assert rows["gamp", 10.0]["accuracy"] > rows["amp-da", 10.0]["accuracy"]


def test_noise_is_the_same_for_every_decoder_and_every_call(saved_rounds):
    both = evaluate(saved_rounds, Plan(["gamp", "omp"], [5.0]))
    alone = evaluate(saved_rounds, Plan(["omp"], [0.0, 5.0]))
    assert both[1]["accuracy"] == alone[1]["accuracy"]


def test_a_sample_of_slots_is_seeded(saved_rounds):
    first, again, other = (
        evaluate(saved_rounds, Plan(["gamp"], [5.0], num_slots=50, seed=seed))[0]["accuracy"] for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other


def test_the_command_writes_a_row_for_each_decoder_and_snr(saved_rounds, tmp_path, capsys):
    out = tmp_path / "result"
    main(["evaluate", "--fragments", str(saved_rounds), "--snr-db", "3", "10", "--slots", "50", "--out", str(out)])
    rows = read_json(out / "result.json")["rows"]
    assert [(r["decoder"], r["snr_db"]) for r in rows] == [
        ("amp-da", 3.0), ("amp-da", 10.0), ("gamp", 3.0), ("gamp", 10.0)
    ]  # fmt: skip
    names = {"accuracy", "count_nmse", "update_nmse_soft", "update_nmse_hard", "num_active_mae", "pupe", "seconds"}
    assert names <= rows[0].keys()
    with pytest.raises(SystemExit, match="2"):
        main(["evaluate", "--fragments", str(saved_rounds), "--out", str(out)])
    assert "--overwrite" in capsys.readouterr().err
