import math

import pytest
import torch

from aircomp.decoders.amp.slab import slab_moments, start_activity


@pytest.mark.parametrize("scale", [1e-5, 1e-2, 1.0, 1e3])
def test_moments_equal_the_table_of_exponentials(scale):
    largest = 20
    R = torch.cat([torch.linspace(-60, 80, 281), torch.tensor([-1e6, 1e6, 0.5, 1.5])]).double()[None, None]
    psi = torch.full((1, 1, 1), 1 / scale, dtype=torch.float64)
    evidence, mean, variance = (moment[0, 0] for moment in slab_moments(R, psi, largest))
    m = torch.arange(1.0, largest + 1, dtype=torch.float64)
    table = -(((R[0, 0, :, None] - m) ** 2) / (2 * scale))
    weights = torch.softmax(table, 1)
    torch.testing.assert_close(mean, weights @ m, rtol=1e-9, atol=1e-9)
    spread = (weights * (m - mean[:, None]) ** 2).sum(1)
    torch.testing.assert_close(variance, spread, rtol=1e-7, atol=1e-12)
    wanted = torch.logsumexp(table, 1) - math.log(largest) + R[0, 0].square() / (2 * scale)
    torch.testing.assert_close(evidence, wanted, rtol=1e-9, atol=1e-9)


def test_every_codeword_may_have_a_precision_of_its_own(rng):
    R, psi = 6 * torch.rand(3, 5, 7, generator=rng), 0.1 + 10 * torch.rand(3, 5, 7, generator=rng)
    together = slab_moments(R.double(), psi.double(), 16)
    for j in range(7):
        alone = slab_moments(R[..., j : j + 1].double(), psi[..., j : j + 1].double(), 16)
        for some, one in zip(together, alone, strict=True):
            torch.testing.assert_close(some[..., j : j + 1], one, rtol=0, atol=1e-13)


def test_a_wide_batch_does_not_change_a_narrow_one(rng):
    R = 6 * torch.rand(2, 5, 7, generator=rng)
    psi = torch.tensor([20.0, 0.01])[:, None, None].expand(2, 5, 1)
    for both, alone in zip(slab_moments(R, psi, 16), slab_moments(R[:1], psi[:1], 16), strict=True):
        assert torch.equal(both[:1], alone)


def test_moments_of_absurd_observations_are_finite_in_float32():
    R = torch.tensor([[[-1e30, -100.0, 0.0, 7.3, 100.0, 1e30]]])
    for precision in (1e-12, 1.0, 1e6):
        for moment in slab_moments(R, torch.full((1, 1, 1), precision), 16):
            assert torch.isfinite(moment).all()


def test_activity_starts_at_the_phase_transition():
    # for half as many uses as codewords, ℓ1 recovery of signed vectors breaks down at 0.386 nonzeros a use
    assert start_activity(128, 64) == pytest.approx(0.5 * 0.386, abs=1e-3)
    assert 0 < start_activity(16, 16) < 1
    assert 0 < start_activity(4, 64) < 1
