import math

import pytest
import torch

from aircomp.errors import ShapeError
from aircomp.measure import metrics

TRUTH = torch.tensor([[2, 1, 0], [0, 0, 3]])
DECODED = torch.tensor([[1, 1, 1], [0, 0, 3]])
SILENCE = torch.zeros_like(TRUTH)
QUANT_CODEBOOK = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])


def test_accuracy_averages_slots():
    # first slot: |2-1| + |0-1| = 2 of 3; second: exact
    assert metrics.count_accuracy(TRUTH, DECODED) == pytest.approx((1 / 3 + 1) / 2, rel=1e-12)


def test_accuracy_is_clipped_in_each_slot():
    far = torch.tensor([[90, 0, 0], [0, 0, 3]])  # the first slot would count -29 + 1/3
    assert metrics.count_accuracy(TRUTH, far) == 0.5


def test_accuracy_of_silence_is_all_or_nothing():
    truth = torch.tensor([[0, 0, 0], [0, 0, 0], [1, 0, 0]])
    decoded = torch.tensor([[0, 0, 0], [1, 0, 0], [1, 0, 0]])
    assert metrics.count_accuracy(truth, decoded) == pytest.approx(2 / 3, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int64, torch.float32])
def test_exact_counts_have_no_error_in_any_dtype(dtype):
    counts = TRUTH.to(dtype)
    assert metrics.count_accuracy(TRUTH, counts) == 1
    assert metrics.count_nmse(TRUTH, counts) == 0
    assert metrics.update_nmse(TRUTH, counts, QUANT_CODEBOOK) == 0
    assert metrics.pupe(TRUTH, counts) == 0
    assert metrics.pupe(counts, SILENCE) == 1


def test_count_nmse_is_of_all_slots_together():
    # errors 1 + 1, powers 4 + 1 + 9
    assert metrics.count_nmse(TRUTH, DECODED) == pytest.approx(2 / 14, rel=1e-12)
    assert metrics.count_nmse(TRUTH, TRUTH / 2) == pytest.approx(1 / 4, rel=1e-12)


def test_update_nmse_weighs_errors_by_what_codewords_stand_for():
    # error of the first slot (-1, 0, 1)·Q = (0, 1); sums (2, 2) and (3, 3)
    assert metrics.update_nmse(TRUTH, DECODED, QUANT_CODEBOOK) == pytest.approx(1 / (8 + 18), rel=1e-12)


def test_update_nmse_compares_sums_so_missing_devices_count():
    assert metrics.update_nmse(TRUTH, SILENCE, QUANT_CODEBOOK) == 1
    assert metrics.update_nmse(TRUTH, 2 * TRUTH, QUANT_CODEBOOK) == 1


def test_pupe_counts_messages_that_are_missing_but_not_false_ones():
    assert metrics.pupe(TRUTH, DECODED) == pytest.approx(1 / 6, rel=1e-12)
    assert metrics.pupe(TRUTH, TRUTH + 1) == 0


def test_collision_rate_counts_messages_that_share_their_codeword():
    assert metrics.collision_rate(TRUTH) == pytest.approx(5 / 6, rel=1e-12)
    assert metrics.collision_rate(torch.eye(3, dtype=torch.int64)) == 0
    assert metrics.collision_rate(torch.tensor([[7, 0]])) == 1


def test_quantization_nmse_is_of_all_devices_together():
    messages = torch.tensor([[3.0, 4.0], [1.0, 0.0]])
    sent = torch.tensor([[3.0, 2.0], [0.0, 0.0]])
    assert metrics.quantization_nmse(messages, sent) == pytest.approx(5 / 26, rel=1e-12)
    assert metrics.quantization_nmse(messages, messages) == 0


def test_when_nobody_transmits_rates_are_zero_and_errors_exact_or_infinite():
    assert metrics.pupe(SILENCE, DECODED) == 0
    assert metrics.collision_rate(SILENCE) == 0
    assert metrics.count_nmse(SILENCE, SILENCE) == 0
    assert metrics.count_nmse(SILENCE, DECODED) == math.inf
    assert metrics.update_nmse(SILENCE, SILENCE, QUANT_CODEBOOK) == 0
    assert metrics.update_nmse(SILENCE, DECODED, QUANT_CODEBOOK) == math.inf
    assert metrics.quantization_nmse(torch.zeros(2, 3), torch.zeros(2, 3)) == 0
    assert metrics.quantization_nmse(torch.zeros(2, 3), torch.ones(2, 3)) == math.inf


def test_slots_beyond_the_first_piece_count_too(monkeypatch):
    whole = metrics.update_nmse(TRUTH, DECODED, QUANT_CODEBOOK), metrics.count_accuracy(TRUTH, DECODED)
    monkeypatch.setattr(metrics, "SLOTS_AT_ONCE", 1)
    pieces = metrics.update_nmse(TRUTH, DECODED, QUANT_CODEBOOK), metrics.count_accuracy(TRUTH, DECODED)
    assert pieces == pytest.approx(whole, rel=1e-12)


@pytest.mark.usefixtures("as_in_production")
def test_tensors_that_do_not_fit_are_refused_by_name():
    with pytest.raises(ShapeError, match=r"counts has shape \(2, 2\); expected \(2, 3\)"):
        metrics.count_accuracy(TRUTH, DECODED[:, :2])
    with pytest.raises(ShapeError, match="mean has shape"):
        metrics.count_nmse(TRUTH, DECODED[:1])
    with pytest.raises(ShapeError, match=r"truth has shape .* at least one slot"):
        metrics.pupe(TRUTH[:0], DECODED[:0])
    with pytest.raises(ShapeError, match="quant_codebook has shape"):
        metrics.update_nmse(TRUTH, DECODED, QUANT_CODEBOOK[:2])
    with pytest.raises(ShapeError, match="reconstruction has shape"):
        metrics.quantization_nmse(torch.zeros(2, 3), torch.zeros(2, 4))


def test_the_mean_cosine_is_that_of_all_pairs():
    updates = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0]])
    assert metrics.mean_cosine(updates) == pytest.approx(1 / 3)
    assert metrics.mean_cosine(updates[:1]) == 0
