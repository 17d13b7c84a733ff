import math

import pytest
import torch

from aircomp.decoders.digit_sums import estimate_points, estimate_sums, plane_prior, sum_prior


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


def test_linear_estimates_are_those_of_the_normal_equations(rng):
    """Of the second moments of sums and what is heard, by all pairs of devices' points; in-phase and quadrature correlate."""
    one, noise_var = torch.tensor([[0.4, 0.1], [0.2, 0.3]], dtype=torch.float64), 0.6
    points = torch.tensor([[x, y] for y in range(2) for x in range(2)], dtype=torch.float64)
    sums = (points[:, None] + points).flatten(0, 1)
    shares = (one.flatten()[:, None] * one.flatten()).flatten()
    mean = shares @ sums
    heard = torch.randn(50, 2, dtype=torch.float64, generator=rng) + 1
    cross = sum(p * torch.outer(s - mean, s - mean) for p, s in zip(shares, sums, strict=True))
    gain = cross @ torch.linalg.inv(cross + noise_var * torch.eye(2))
    expected = torch.stack([mean + gain @ (y - mean) for y in heard])
    torch.testing.assert_close(estimate_points(heard, noise_var, plane_prior(one, 2), "lmmse"), expected)
    line, values = sum_prior(torch.tensor([0.3, 0.7], dtype=torch.float64), 4), torch.arange(5, dtype=torch.float64)
    mean, variance = 2.8, float(line @ values.square()) - 2.8**2
    found = estimate_sums(heard[:, 0].contiguous(), noise_var, line, "lmmse")
    torch.testing.assert_close(found, mean + (heard[:, 0] - mean) * variance / (variance + noise_var))
