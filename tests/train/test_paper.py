"""Training the paper's layer as published: samples, blocks, loss, recipe."""

import pytest
import torch

from aircomp.common import rng as rngs
from aircomp.errors import ConfigError
from aircomp.layer.communication import CommunicationLayer
from aircomp.train import loop
from aircomp.train.batches import choose_slots, make_batch
from aircomp.train.paper import Block, PaperModel, block_loss, pretrain_paper
from aircomp.train.recipe import PAPER_PRESETS as PRESETS
from aircomp.train.recipe import Halving, PaperTrainingSettings
from aircomp.train.rounds import TrainingRound, load_rounds
from helpers.records import read_lines

QUICK = PaperTrainingSettings.parse(
    {
        "epochs": 2,
        "codeword_length": 8,
        "learning_rate": 1e-3,
        "net": {"num_layers": 2, "filters": 4},
        "data": {
            "min_rounds": 3,
            "train_samples": 64,
            "validation_samples": 32,
            "test_samples": 20,
            "batch_slots": 16,
        },
    }
)


def rounds_of(number, num_slots=13_487, num_codewords=128):
    """Rounds of the paper's sizes; what the devices chose does not matter."""
    empty = torch.zeros(1, num_slots, dtype=torch.int16)
    popularity = torch.full((num_codewords,), 1 / num_codewords)
    return [TrainingRound(f"r{i}", empty, popularity, torch.zeros(num_codewords, 20), None) for i in range(number)]


@pytest.mark.parametrize("num_rounds", [80, 100, 120, 240, 800])
@pytest.mark.parametrize("total", [64_000, 8_000, 256_000])
def test_the_papers_numbers_of_samples_are_exact(num_rounds, total, rng):
    chosen = choose_slots(rounds_of(num_rounds), total, 64, rng=rng)
    assert sum(map(len, chosen)) == total
    assert {len(slots) % 64 for slots in chosen} == {0}
    assert max(map(len, chosen)) - min(map(len, chosen)) <= 64


def test_the_preset_is_the_papers_text():
    recipe = PRESETS.load("paper")
    assert (recipe.learning_rate, recipe.schedule) == (1e-4, Halving(halve_after=10, patience=20))
    assert (recipe.tolerance, recipe.epochs, recipe.clip_norm) == (1e-6, 500, None)
    weights = (recipe.loss.sparsity, recipe.loss.orthogonality, recipe.loss.activity, recipe.loss.quantization)
    assert weights == (0.01, 0.001, 0.01, 0)
    data = recipe.data
    assert (data.train_samples, data.validation_samples, data.test_samples) == (64_000, 8_000, 10_000)
    assert (data.batch_slots, data.block_batches, data.min_rounds, data.order) == (64, None, 100, "popularity")
    net = recipe.net
    assert (net.form, net.num_layers, net.filters, net.kernel, net.em) == ("paper", 10, 32, 3, "batch")
    assert (recipe.codebook.start, recipe.codebook.form) == ("gaussian", "product")
    assert sum(p.numel() for p in PaperModel(recipe, 128).net.parameters()) == 37_510


def test_the_authors_recipe_differs_where_theirs_does():
    paper_recipe, authors = PRESETS.load("paper"), PRESETS.load("authors")
    assert authors.net.form == "authors"
    assert (authors.loss.sparsity, authors.schedule) == (0.001, Halving(halve_after=20, patience=50))
    data = authors.data
    assert (data.train_samples, data.validation_samples, data.test_samples) == (256_000, 32_000, 20_000)
    assert authors.learning_rate == paper_recipe.learning_rate
    assert sum(p.numel() for p in PaperModel(authors, 128).net.parameters()) == 37_530


def test_an_epoch_takes_one_step_for_each_round(collection, tmp_path, monkeypatch):
    steps = []
    monkeypatch.setattr(loop, "descend", lambda *args: steps.append(args))
    pretrain_paper([collection], QUICK.changed(epochs=1), tmp_path / "layer")
    assert len(steps) == 4  # six rounds, of which one validates and one tests


def test_a_block_of_batches_is_the_mean_of_its_batches(collection):
    split = load_rounds([collection], QUICK.data, seed=0)
    model = PaperModel(QUICK, 16).double()
    batches = [make_batch(split.train[0], torch.arange(i, i + 16), 300.0, "slot") for i in (0, 16, 32)]
    batches = [
        type(b)(**{**vars(b), "counts": b.counts.double(), "popularity": b.popularity.double()}) for b in batches
    ]

    def gradient(blocks):
        model.zero_grad()
        for block in blocks:
            (block_loss(model, block, QUICK.loss, rng=rngs.generator(0, "noise")).total / len(blocks)).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    # at 300 dB there is no noise to draw, so both see the same signal
    torch.testing.assert_close(gradient([Block(batches)]), gradient([Block([b]) for b in batches]), rtol=0, atol=1e-9)


def test_the_loss_has_the_papers_terms(collection):
    split = load_rounds([collection], QUICK.data, seed=0)
    model, saved = PaperModel(QUICK, 16), split.train[0]
    block = Block(
        [make_batch(saved, torch.arange(16), 10.0, "slot"), make_batch(saved, torch.arange(16, 32), 10.0, "slot")]
    )
    weights = QUICK.loss.changed(quantization=0.1)
    out = model(block, rng=rngs.generator(0, "noise"))
    terms = block_loss(model, block, weights, rng=rngs.generator(0, "noise"))
    counts = torch.cat([b.counts for b in block.batches])
    torch.testing.assert_close(terms.counts, (out.mean - counts).square().sum() / 32)
    torch.testing.assert_close(terms.sparsity, out.mean.abs().sum() / counts.sum())
    assert out.total.shape == (2,)  # one estimate for each batch
    torch.testing.assert_close(terms.activity, (out.total - saved.indices.shape[0]).square().mean())
    expected = terms.counts + 0.01 * terms.sparsity + 0.001 * terms.orthogonality + 0.01 * terms.activity
    torch.testing.assert_close(terms.total, expected + 0.1 * saved.distortion[:32].mean())


def test_distortion_is_what_quantisation_leaves_of_each_device(tmp_path, synthetic_round):
    from aircomp.train.fragments import save_round

    for index in range(3):
        save_round(tmp_path, index, synthetic_round(index))
    first = synthetic_round(0)
    sent = first.quant_codebook[first.indices]
    share = (first.fragments - sent).square().sum((1, 2)) / first.fragments.square().sum((1, 2))
    loaded = [r for part in vars(load_rounds([tmp_path], QUICK.data, seed=0)).values() for r in part]
    found = next(r for r in loaded if r.name.endswith("round_00000"))
    torch.testing.assert_close(found.distortion.mean(), share.mean())


@pytest.mark.seconds
def test_training_lowers_the_loss_and_leaves_a_layer_of_its_form(collection, tmp_path):
    out = tmp_path / "layer"
    layer = pretrain_paper([collection], QUICK.changed(epochs=6, learning_rate=0.03, **{"data.block_batches": 1}), out)
    losses = [record["validation_loss"] for record in read_lines(out / "metrics.jsonl")]
    assert losses[-1] < losses[0] - 0.5  # 9.41 to 8.75
    loaded = CommunicationLayer.load(out)
    assert loaded.form == layer.form == "paper"
    assert {row["snr_db"] for row in loaded.training["test"]} == {0, 3, 5, 10, 15, 20}
    assert loaded.num_active_range is not None


@pytest.mark.seconds
def test_a_resumed_training_ends_with_the_same_bits(collection, tmp_path):
    whole = pretrain_paper([collection], QUICK, tmp_path / "whole")
    pretrain_paper([collection], QUICK.changed(epochs=1), tmp_path / "parts")
    resumed = pretrain_paper([collection], QUICK, tmp_path / "parts", resume=True)
    assert torch.equal(whole.codebook, resumed.codebook)
    for name, value in whole.net.state_dict().items():
        assert torch.equal(value, resumed.net.state_dict()[name])


def test_too_few_rounds_are_refused(collection, tmp_path):
    with pytest.raises(
        ConfigError, match=r"6 rounds were given, but data.min_rounds = 100; collect more rounds, or lower"
    ):
        pretrain_paper([collection], QUICK.changed(**{"data.min_rounds": 100}), tmp_path / "layer")
    assert not (tmp_path / "layer" / "layer.json").exists()


def test_the_quantisation_term_needs_raw_fragments(tmp_path, synthetic_round):
    from aircomp.train.fragments import save_round

    for index in range(3):
        save_round(tmp_path / "fragments", index, synthetic_round(index, raw=False))
    with pytest.raises(ConfigError, match="needs raw fragments, which some rounds lack; collect with --raw"):
        pretrain_paper([tmp_path / "fragments"], QUICK.changed(**{"loss.quantization": 0.1}), tmp_path / "layer")
