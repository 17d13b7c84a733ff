"""Energies by what codewords stand for: mean one, within the peak, and the least expected cost."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aircomp.encode.energy import EXPONENT, codeword_energies, limited, scale_to_one


def words(seed=0, spread=3.0, number=64):
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.logspace(-spread, 0, number)
    popularity = torch.rand(number, generator=rng, dtype=torch.float64) + 0.01
    return torch.randn(number, 20, generator=rng) * lengths[:, None], popularity / popularity.sum()


@settings(deadline=None)  # a busy machine takes its time
@given(st.floats(-12, 12), st.floats(0, 4), st.integers(0, 5))
def test_the_mean_energy_is_one_and_none_is_above_the_peak(log_noise, log_peak, seed):
    codebook, popularity = words(seed)
    peak = 10**log_peak
    energies = codeword_energies(codebook, popularity, 10**log_noise, peak)
    assert float(popularity.double() @ energies) == pytest.approx(1, abs=1e-9)
    assert float(energies.max()) <= peak * (1 + 1e-9)
    assert float(energies.min()) > 0


def test_without_noise_all_energies_are_equal_and_in_noise_they_grow_with_the_length_squared():
    codebook, popularity = words()
    assert torch.allclose(codeword_energies(codebook, popularity, 0.0, 36.0), torch.ones(64).double(), atol=1e-3)
    loud = codeword_energies(codebook, popularity, 1e6, 1e6)
    lengths = codebook.double().square().sum(1)
    heard = loud > 0.01  # the quietest are lifted to where a noiseless receiver still hears them
    assert torch.allclose(loud[heard] / loud[-1], lengths[heard] / lengths[-1], rtol=0.01)


@pytest.mark.parametrize("noise_var", [0.02, 0.2, 1.0])
def test_no_other_energies_of_the_same_mean_cost_less(noise_var):
    """The closed form is the minimum of the expected cost with one added to the exponential's argument (docstring)."""
    codebook, popularity = words(spread=1.0)
    worth = codebook.double().square().sum(1)
    energies = codeword_energies(codebook, popularity, noise_var, 1e6)

    def cost(e):  # of which the energies are the stationary point: derivative of log(1 + w/θ) undone
        level = worth / torch.expm1(energies / (EXPONENT * noise_var))  # θ of every codeword
        theta = level.median()
        assert torch.allclose(level[energies > 0.02], theta, rtol=1e-3)
        x = e / (EXPONENT * noise_var)
        return float((popularity.double() * ((worth + theta) * torch.exp(-x) + theta * x)).sum())

    best = cost(energies)
    rng = torch.Generator().manual_seed(3)
    for _ in range(20):
        other = energies * torch.exp(0.1 * torch.randn(64, generator=rng, dtype=torch.float64))
        other = other / float(popularity.double() @ other)
        assert cost(other) > best


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e18])
def test_the_unit_of_updates_does_not_matter(scale):
    codebook, popularity = words()
    one = codeword_energies(codebook, popularity, 0.1, 36.0)
    assert torch.allclose(codeword_energies(codebook.double() * scale, popularity, 0.1, 36.0), one, rtol=1e-5)


def test_zero_and_equal_codewords_get_energies_too():
    codebook, popularity = words()
    codebook[3:10] = 0
    codebook[20:30] = codebook[20]
    energies = codeword_energies(codebook, popularity, 0.1, 36.0)
    assert energies.isfinite().all()
    assert (energies > 0).all()
    assert torch.equal(codeword_energies(torch.zeros(8, 20), torch.ones(8), 0.1, 36.0), torch.ones(8).double())


@settings(deadline=None)
@given(st.lists(st.floats(0, 100), min_size=1, max_size=20), st.floats(1, 50))
def test_the_scale_is_the_one_that_makes_the_mean_one(energies, peak):
    energies = torch.tensor(energies, dtype=torch.float64)
    energies[energies < 1e-6] = 0
    shares = torch.ones(len(energies), dtype=torch.float64)
    scale = scale_to_one(energies, shares, peak)
    mean = float(limited(energies, scale, peak).mean())
    most = peak * float((energies > 0).double().mean())
    assert mean == pytest.approx(min(1.0, most), rel=1e-6)
