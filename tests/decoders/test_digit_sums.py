import math

import pytest
import torch

from aircomp.decoders.digit_sums import estimate_sums, sum_prior


def plainly(y, noise_var, prior):
    """Return the mean and the most probable value of one sum, by Bayes' rule."""
    weights = [p * math.exp(-((y - t) ** 2) / (2 * noise_var)) for t, p in enumerate(prior)]
    return sum(t * w for t, w in enumerate(weights)) / sum(weights), weights.index(max(weights))


@pytest.mark.parametrize("chunk", [1, 50, 1 << 22])
def test_sums_are_estimated_by_bayes_rule_however_many_at_a_time(monkeypatch, chunk):
    monkeypatch.setattr("aircomp.decoders.digit_sums.CHUNK", chunk)
    prior = sum_prior(torch.tensor([0.5, 0.2, 0.3]), 4)
    heard = 2 + 2 * torch.randn(30, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = torch.tensor([plainly(y, 0.7, prior.tolist()) for y in heard.tolist()], dtype=torch.float64)
    torch.testing.assert_close(estimate_sums(heard, 0.7, prior, "mean"), expected[:, 0])
    assert torch.equal(estimate_sums(heard, 0.7, prior, "map"), expected[:, 1])
