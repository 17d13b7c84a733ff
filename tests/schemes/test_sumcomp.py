"""SumComp: sums of Gaussian integers, their error, and what a known dither leaves."""

import math

import pytest
import torch

from aircomp.channel.awgn import Awgn
from aircomp.decoders.digit_sums import estimate_points, estimate_sums, plane_prior, sum_prior
from aircomp.link import Link, communicate
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import SumCompSettings
from aircomp.schemes.sumcomp import SumComp
from aircomp.testing import check_uplink


def exchange(snr_db, *, params=8000, devices=10, own=None, **options):
    given = torch.randn(devices + 1, params, generator=torch.Generator().manual_seed(0)) if own is None else own
    settings = SumCompSettings(name="sumcomp", **options)
    return communicate(Link(make_scheme(settings), Awgn(snr_db, "transmit")), given[0], given[1:], {}, 0)


@pytest.mark.parametrize("options", [{}, {"quadrature": 1, "in_phase": 16}, {"in_phase": 3, "quadrature": 5}])
def test_it_passes_as_every_scheme_does(options):
    check_uplink(lambda: make_scheme(SumCompSettings(name="sumcomp", **options)))


def test_sums_of_points_are_sums_of_numbers(rng):
    scheme = make_scheme(SumCompSettings(name="sumcomp", in_phase=5, quadrature=3))
    assert isinstance(scheme, SumComp)
    whole = torch.randint(15, (7, 200), generator=rng)
    total = scheme.parts(whole).sum(dim=1).double()
    assert torch.equal(scheme.weights @ total, whole.sum(dim=0).double())


def test_nearest_gaussian_integers_err_as_the_closed_form_says():
    """(1 + q²) · 2 Σ (2m − 1) Q((m − ½)/σ), for numbers far from the edges of a square of 64 by 64."""
    rng, sigma, side = torch.Generator().manual_seed(0), 0.6, 64
    points = torch.randint(20, 40, (40_000, 2), generator=rng).float()
    heard = points + sigma * torch.randn(40_000, 2, generator=rng)
    found = estimate_points(heard, sigma**2, torch.ones(side, side), "ml")
    weights = torch.tensor([1.0, side])
    expected = (1 + side**2) * sum((2 * m - 1) * math.erfc((m - 0.5) / sigma / math.sqrt(2)) for m in range(1, 8))
    # 40,000 squares, mostly of one in two cases: 1 % of standard deviation
    assert float(((found - points) @ weights).square().mean()) == pytest.approx(expected, rel=0.04)


def test_the_prior_of_points_is_that_of_all_pairs_and_of_a_line_that_of_digits(rng):
    prior = torch.rand(2, 3, generator=rng)
    one, total = prior / prior.sum(), plane_prior(prior, 2)
    expected = torch.zeros(3, 5, dtype=torch.float64)
    for a in range(6):
        for b in range(6):
            expected[a // 3 + b // 3, a % 3 + b % 3] += float(one.flatten()[a] * one.flatten()[b])
    torch.testing.assert_close(total, expected, rtol=1e-6, atol=1e-9)
    line = torch.tensor([0.2, 0.5, 0.3])
    heard = 8 * torch.rand(50, generator=rng)
    for estimate in ("mean", "map", "ml"):
        of_line = estimate_sums(heard, 0.5, sum_prior(line, 4), estimate)
        of_plane = estimate_points(heard[:, None], 0.5, plane_prior(line[None], 4), estimate)[:, 0]
        torch.testing.assert_close(of_plane, of_line, rtol=1e-4, atol=1e-4)


def test_the_pair_tells_more_than_its_axes_apart(rng):
    """Numbers near the middle of the square: whoever is high on one axis is low on the other."""
    prior = torch.tensor([[0.0, 0.0, 0.0, 0.5], [0.5, 0.0, 0.0, 0.0]])
    which = torch.randint(2, (6, 20_000), generator=rng)
    points = torch.stack([3 - 3 * which, which]).sum(dim=1).T.float()
    heard = points + torch.randn(20_000, 2, generator=rng)
    weights = torch.tensor([1.0, 4.0])
    pair = estimate_points(heard, 1.0, plane_prior(prior, 6), "mean")
    axes = torch.stack(
        [estimate_sums(heard[:, i], 1.0, sum_prior(prior.sum(dim=i), 6), "mean") for i in range(2)], dim=1
    )
    error = [float(((found - points) @ weights).square().mean()) for found in (pair, axes)]
    assert error[0] < 0.5 * error[1]


def test_the_mean_of_the_posterior_has_the_least_error():
    error = {}
    for estimate in ("mean", "map", "ml"):
        done = exchange(5.0, estimate=estimate)
        error[estimate] = float((done.update - done.sent.reconstruction.mean(0)).square().sum())
    assert error["mean"] < error["map"] < error["ml"]


def test_quantisation_with_a_known_dither_errs_as_a_uniform_number():
    given = torch.rand(3, 20_000, generator=torch.Generator().manual_seed(0)) * 2 - 1
    done = exchange(100.0, own=given, clip=3.0)
    step = 2 * 3.0 * float(given[0].square().mean().sqrt()) / 15
    errors = done.sent.reconstruction - given[1:]
    # 40,000 squares of uniform errors: half a percent
    assert float(errors.square().mean()) == pytest.approx(step**2 / 12, rel=0.03)
    assert abs(float(errors.mean())) < 4 * step / math.sqrt(12 * 40_000)
