import pytest
import torch

from aircomp.measure import metrics
from aircomp.train.loss import activity_error, combine, count_error, quantization_error, sparsity, update_error
from aircomp.train.recipe import LossSettings

COUNTS = torch.tensor([[2.0, 0.0, 1.0], [0.0, 3.0, 0.0]])
MEAN = torch.tensor([[1.0, 0.5, 1.0], [0.0, 2.0, -1.0]])


def test_count_error_sums_over_codewords_and_averages_over_slots():
    assert count_error(MEAN, COUNTS).item() == pytest.approx(((1 + 0.25) + (1 + 1)) / 2)


def test_sparsity_is_relative_to_what_was_sent():
    assert sparsity(MEAN, COUNTS).item() == pytest.approx((2.5 / 3 + 3 / 3) / 2)
    assert sparsity(COUNTS, COUNTS).item() == 1


def test_sparsity_of_a_silent_slot_is_finite():
    assert sparsity(MEAN, torch.zeros(2, 3)).item() == pytest.approx((2.5 + 3) / 2)


def test_activity_error_is_squared():
    assert activity_error(torch.tensor(8.5), 10).item() == pytest.approx(2.25)


def test_quantization_error_compares_the_mean_update_with_the_unquantised_one():
    quant_codebook = torch.tensor([[3.0, 0.0], [0.0, 3.0], [3.0, 3.0]])
    # rows of MEAN @ Q / 3: (2, 1.5) and (-1, 1)
    mean_fragments = torch.tensor([[2.0, 1.0], [-1.0, 3.0]])
    expected = (0.25 + 4) / (4 + 1 + 1 + 9)
    assert quantization_error(MEAN, quant_codebook, 3, mean_fragments).item() == pytest.approx(expected)


def test_quantization_error_vanishes_for_exact_counts_of_exact_codewords():
    quant_codebook = torch.tensor([[3.0, 0.0], [0.0, 3.0], [3.0, 3.0]])
    exact = COUNTS @ quant_codebook / 3
    assert quantization_error(COUNTS, quant_codebook, 3, exact).item() == 0
    assert quantization_error(0 * COUNTS, quant_codebook, 3, 0 * exact).item() == 0


def test_terms_are_weighted_as_in_the_paper():
    values = {k: torch.tensor(float(v)) for k, v in zip("abcdef", (1, 10, 100, 1000, 10000, 7), strict=True)}
    terms = combine(LossSettings(), *values.values())
    assert terms.total.item() == pytest.approx(1 + 0.01 * 10 + 0.001 * 100 + 0.01 * 1000)
    with_quantization = combine(LossSettings(quantization=0.1), *values.values())
    assert with_quantization.total.item() == pytest.approx(terms.total.item() + 0.1 * 10000)
    with_update = combine(LossSettings(update=2.0), *values.values())
    assert with_update.total.item() == pytest.approx(terms.total.item() + 2 * 7)
    assert (terms.counts.item(), terms.quantization.item(), terms.update.item()) == (1, 10000, 7)


def test_the_error_of_the_update_is_the_metric_of_the_same_name():
    rng = torch.Generator().manual_seed(0)
    counts, mean = torch.randint(0, 3, (20, 8), generator=rng).float(), torch.rand(20, 8, generator=rng)
    quant_codebook = torch.randn(8, 5, generator=rng)
    found = update_error(mean, counts, quant_codebook).item()
    assert found == pytest.approx(metrics.update_nmse(counts.long(), mean, quant_codebook), rel=1e-5)
