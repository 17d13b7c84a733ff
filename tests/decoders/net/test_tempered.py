import pytest
import torch

from aircomp.common.rng import generator
from aircomp.decoders.amp.prior import poisson_posterior, reach_for
from aircomp.decoders.net.tempered import CountTable, posterior_around_modes, tempered_posterior
from plain.gamp import table_posterior


def draw(slots, codewords, variance, *, dtype=torch.float32, seed=0):
    rng = generator(seed, "posterior")
    x = torch.poisson(torch.full((slots, codewords), 0.5, dtype=dtype), generator=rng)
    R = x + variance**0.5 * torch.randn(slots, codewords, generator=rng, dtype=dtype)
    V = variance * (1 + 0.2 * torch.rand(slots, codewords, generator=rng, dtype=dtype))
    rate = 0.01 + torch.rand(1, codewords, generator=rng, dtype=dtype)
    return R, V, rate


@pytest.mark.parametrize("variance", [0.008, 0.1, 2.0])
@pytest.mark.parametrize("temperature", [0.2, 1.0, 3.0])
def test_it_equals_the_table_with_and_without_gradients(variance, temperature):
    R, V, rate = draw(20, 30, variance)
    table = CountTable.of(reach_for(1.2 * variance * temperature, 40), 30, R)
    plain = table_posterior(R, V, rate, max_count=60, temperature=temperature)
    tau = torch.tensor(temperature)
    for requires_grad in (False, True):
        found = tempered_posterior(R.requires_grad_(requires_grad), V, rate.log(), tau, table)
        for ours, theirs in zip(found, plain, strict=True):
            torch.testing.assert_close(ours.detach().double(), theirs, rtol=0, atol=5e-6)  # float32, sums of ten


@pytest.mark.parametrize("variance", [0.008, 0.5, 3.0])
@pytest.mark.parametrize("shared", [True, False])
def test_counting_from_one_or_around_the_mode_is_the_same(variance, shared):
    R, V, rate = draw(40, 30, variance, dtype=torch.float64)
    R, rate = R + 6 * (R > 2), rate if shared else rate.expand(40, -1)  # some codewords are sent by many
    table = CountTable.of(40, 60, R)
    with torch.no_grad():
        mixed, around = (
            f(R, V, rate.log(), torch.tensor(1.2), table) for f in (tempered_posterior, posterior_around_modes)
        )
    assert (around.mean > 5).any()
    for ours, theirs in zip(mixed, around, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_at_temperature_one_it_is_the_poisson_posterior():
    R, V, rate = draw(20, 30, 0.2)
    found = tempered_posterior(R, V, rate.log(), torch.tensor(1.0), CountTable.of(6, 30, R))
    mean, var = poisson_posterior(R, V, rate, reach=6)
    torch.testing.assert_close(found.mean, mean, rtol=0, atol=2e-6)
    torch.testing.assert_close(found.var, var, rtol=0, atol=5e-6)


@pytest.mark.parametrize("variance", [0.05, 0.5, 2.0])
def test_its_derivatives_are_right(variance):
    R, V, rate = draw(3, 4, variance, dtype=torch.float64)
    tau = torch.tensor(1.3, dtype=torch.float64)
    inputs = [t.requires_grad_() for t in (R, V, rate.log(), tau)]
    table = CountTable.of(30, 60, R)
    assert torch.autograd.gradcheck(lambda *given: tuple(tempered_posterior(*given, table)), inputs)


def test_a_low_temperature_finds_the_mode_and_a_high_one_spreads():
    R, V, rate = torch.tensor([[1.8]]), torch.tensor([[0.3]]), torch.tensor([[0.5]])
    table = CountTable.of(20, 40, R)
    cold, warm, hot = (tempered_posterior(R, V, rate.log(), torch.tensor(t), table) for t in (0.05, 1.0, 5.0))
    assert cold.mean.item() == pytest.approx(1.0, abs=0.01)
    assert cold.var.item() < warm.var.item() < hot.var.item()


def test_hopeless_observations_stay_finite():
    R = torch.tensor([[-1e4, -50.0, 0.0, 60.0, 1e4, 1e7]]).requires_grad_()
    V = torch.full_like(R, 0.008).requires_grad_()
    found = tempered_posterior(R, V, torch.full((1, 6), -8.0), torch.tensor(0.2), CountTable.of(4, 28, R))
    (found.mean.sum() + found.var.sum()).backward()
    assert all(torch.isfinite(t).all() for t in (*found, R.grad, V.grad))
    assert found.mean[0, 0] == 0
    assert found.mean[0, -1] <= 32  # the largest mode and the reach beyond it


def test_nothing_goes_in_nothing_comes_out():
    R = torch.zeros(0, 5)
    found = tempered_posterior(R, R, torch.zeros(1, 5), torch.tensor(1.0), CountTable.of(4, 28, R))
    assert found.mean.shape == (0, 5)
