import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aircomp.decoders.amp.prior import poisson_posterior, reach_for
from aircomp.decoders.net.count_table import count_moments, log_odds_spike
from plain.gamp import table_posterior

WIDE = 150  # counts either side of the mode: all that matter for any variance, rate and observation below


def draw(rng, dtype=torch.float32, shape=(200, 100)):
    """Observations from −20 to 60, variances from 1e-8 to 1e4, rates from 1e-6 to 40."""
    uniform = torch.rand(3, *shape, generator=rng, dtype=torch.float64)
    return (
        (-20 + 80 * uniform[0]).to(dtype),
        (10 ** (-8 + 12 * uniform[1])).to(dtype),
        (10 ** (-6 + 7.6 * uniform[2])).to(dtype),
    )


def assert_near(actual, expected, tolerance):
    error = (actual.double() - expected).abs() / (1 + expected.abs())
    assert torch.isfinite(actual).all()
    assert error.max() < tolerance


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-9)])
def test_poisson_posterior_equals_the_table(rng, dtype, tolerance):
    R, V, rate = draw(rng, dtype)
    mean, var = poisson_posterior(R, V, rate, reach=WIDE)
    expected_mean, expected_var, _ = table_posterior(R, V, rate, max_count=300)
    assert_near(mean, expected_mean, tolerance)
    # the variance is a difference of squares of up to 20 counts where V > 100 and the anchor is not the mode
    assert_near(var, expected_var, 3 * tolerance)


@pytest.mark.seconds
@pytest.mark.parametrize("agreement", [1e-3, 0.02, 0.2])
def test_the_posterior_of_agreeing_devices_equals_the_table(rng, agreement):
    uniform = torch.rand(3, 500, 100, generator=rng)
    R, V, rate = -5 + 20 * uniform[0], 10 ** (-6 + 7 * uniform[1]), 10 ** (-6 + 6.3 * uniform[2])
    rate = 10 * rate / rate.sum(1, keepdim=True)
    expected_mean, expected_var, _ = table_posterior(R, V, rate, max_count=300, agreement=agreement)
    mean, var = poisson_posterior(R, V, rate, reach=WIDE, agreement=agreement)
    assert_near(mean, expected_mean, 1e-5)
    assert_near(var, expected_var, 3e-5)  # a difference of squares, as above
    near, near_var = poisson_posterior(R, V, rate, reach=reach_for(1, max_count=100), agreement=agreement)
    common = (V < 1) & (R < 8)  # up to eight deviations: the lesser of two maxima may be half out of reach
    assert_near(near[common], expected_mean[common], 0.02)
    assert_near(near_var[common], expected_var[common], 0.05)


def test_little_agreement_is_none(rng):
    R, V, rate = draw(rng, torch.float64)
    mean, var = poisson_posterior(R, V, rate, reach=20)
    again, var_again = poisson_posterior(R, V, rate, reach=20, agreement=1e-13)
    typical = (V < 1) & (R < 10)  # beyond, the mode is farther from R than a reach of 20
    torch.testing.assert_close(again[typical], mean[typical], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(var_again[typical], var[typical], rtol=1e-4, atol=1e-4)


@given(variance=st.floats(1e-6, 5.0), rate=st.floats(1e-4, 8.0), observation=st.floats(-5.0, 15.0))
@settings(deadline=None, max_examples=50)
def test_the_reach_leaves_out_nothing_that_matters(variance, rate, observation):
    R, V, rates = (torch.full((1, 1), value) for value in (observation, variance, rate))
    near = poisson_posterior(R, V, rates, reach=reach_for(variance, max_count=100))
    wide = poisson_posterior(R, V, rates, reach=WIDE)
    # what is left out weighs at most exp(−16) of the mode, times the distance (its square for the variance)
    torch.testing.assert_close(near, wide, rtol=1e-5, atol=1e-4)


def test_the_reach_is_small_for_small_variances_and_never_more_than_the_largest_count():
    assert [reach_for(v, max_count=9) for v in (1e-6, 0.05, 0.18, 0.4, 1e6)] == [1, 1, 2, 4, 9]


def test_the_mean_moves_with_the_observation_as_tweedie_says(rng):
    """For any prior, d mean / dR = var / V: holds only if mean and variance belong to the same posterior."""
    R = (-1 + 8 * torch.rand(20, 30, generator=rng, dtype=torch.float64)).requires_grad_()
    V = 0.05 + torch.rand(20, 30, generator=rng, dtype=torch.float64)
    rate = 0.01 + 2 * torch.rand(1, 30, generator=rng, dtype=torch.float64)
    mean, var = poisson_posterior(R, V, rate, reach=30)
    (slope,) = torch.autograd.grad(mean.sum(), R)
    torch.testing.assert_close(slope, var / V, rtol=1e-9, atol=1e-12)


def test_gradients_are_right(rng):
    R = (-1 + 6 * torch.rand(2, 5, generator=rng, dtype=torch.float64)).requires_grad_()
    V = (0.1 + torch.rand(2, 5, generator=rng, dtype=torch.float64)).requires_grad_()
    rate = (0.05 + 2 * torch.rand(1, 5, generator=rng, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(lambda *a: poisson_posterior(*a, reach=40), (R, V, rate))


def test_a_rate_of_zero_gives_no_count():
    mean, var = poisson_posterior(torch.tensor([[3.0]]), torch.tensor([[0.1]]), torch.tensor([[0.0]]), reach=4)
    assert mean.item() < 1e-15
    assert 0 <= var.item() < 1e-15


def test_without_noise_the_count_is_what_was_observed():
    R = torch.arange(41.0)[None]
    mean, var = poisson_posterior(R, torch.full_like(R, 1e-8), torch.full_like(R, 0.3), reach=2)
    torch.testing.assert_close(mean, R, rtol=0, atol=1e-6)
    assert (var < 1e-6).all()


def test_the_papers_prior_counts_the_zero_twice():
    rate, alpha = torch.tensor([[0.2, 1.0, 3.0]]), torch.tensor([[0.3, 0.5, 0.9]])
    nothing, wide = torch.zeros_like(rate), torch.full_like(rate, 1e9)  # the posterior is then the prior
    prior = count_moments(nothing, wide, rate.log(), log_odds_spike(rate, alpha), torch.tensor(1.0), largest=60)
    torch.testing.assert_close(prior.mean, alpha * rate, rtol=1e-5, atol=0)
    torch.testing.assert_close(prior.activity, alpha * (1 - torch.exp(-rate)), rtol=1e-5, atol=0)
    torch.testing.assert_close(log_odds_spike(rate, torch.ones_like(rate)), torch.zeros_like(rate), rtol=0, atol=1e-6)
