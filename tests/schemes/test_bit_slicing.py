"""Bit-slicing: energies by significance, the error that was planned, MAP and posterior mean."""

import itertools
import math

import pytest
import torch

from aircomp.channel.awgn import Awgn
from aircomp.decoders.digit_sums import estimate_sums, sum_prior
from aircomp.decoders.lattice_sums import uncertainty
from aircomp.errors import ConfigError
from aircomp.link import Link, communicate
from aircomp.schemes.bit_slicing import UNITS, share_energy
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import BitSlicingSettings
from aircomp.testing import check_uplink

EVEN = torch.full((3, 4), 0.25, dtype=torch.float64)
WEIGHTS = torch.tensor([16.0, 4.0, 1.0], dtype=torch.float64)


def second_round(snr_db, *, params=8000, **options):
    """The same updates sent twice: in the second round the base station knows the noise."""
    given = torch.randn(11, params, generator=torch.Generator().manual_seed(0))
    link = Link(make_scheme(BitSlicingSettings(name="bit-slicing", **options)), Awgn(snr_db, "transmit"))
    memory = communicate(link, given[0], given[1:], {}, 0).memory
    return communicate(link, given[0], given[1:], memory, 1)


def error(done):
    truth = done.sent.reconstruction.mean(dim=0)
    return float((done.update - truth).square().sum() / truth.square().sum())


@pytest.mark.parametrize("options", [{}, {"estimate": "map"}, {"base": 2, "number": 3}])
def test_it_passes_as_every_scheme_does(options):
    check_uplink(lambda: make_scheme(BitSlicingSettings(name="bit-slicing", **options)))


def planned(noise_var, shares):
    """The error of a sum of three even slices of ten devices."""
    of_sum, variance = sum_prior(EVEN[0], 10), 1.25
    each = [
        uncertainty(noise_var * variance / float(share), of_sum, len(of_sum))[1] if share > 0 else 10 * variance
        for share in shares
    ]
    return float(WEIGHTS.square() @ torch.tensor(each, dtype=torch.float64))


@pytest.mark.parametrize("noise_var", [0.003, 0.1, 1.0])
def test_no_other_division_of_the_energy_has_less_error(noise_var):
    shares = share_energy(EVEN, WEIGHTS, noise_var, 10)
    assert float(shares.sum()) == pytest.approx(1)
    best = planned(noise_var, shares)
    for first, second in itertools.product(range(0, UNITS + 1, 6), repeat=2):
        if first + second <= UNITS:
            other = [first / UNITS, second / UNITS, 1 - (first + second) / UNITS]
            assert best <= planned(noise_var, other) * (1 + 1e-9)


def test_the_first_slice_gets_most_energy_and_in_much_noise_all_of_it():
    some, all_of_it = (share_energy(EVEN, WEIGHTS, noise_var, 10) for noise_var in (0.1, 3.0))
    assert some[0] > some[1] > some[2]
    assert all_of_it[0] > 0.9


def test_slices_of_a_round_have_the_error_that_was_planned(rng):
    """One slice behind noise: the mean squared error of posterior means is that of the quadrature."""
    of_sum, noise_var = sum_prior(EVEN[0], 10), 1.7
    sums = torch.multinomial(of_sum, 40_000, replacement=True, generator=rng).float()
    found = estimate_sums(sums + noise_var**0.5 * torch.randn(40_000, generator=rng), noise_var, of_sum, "mean")
    # 40,000 squares: .7 % of standard deviation
    assert float((found - sums).square().mean()) == pytest.approx(uncertainty(noise_var, of_sum, 31)[1], rel=0.03)


@pytest.mark.parametrize("snr_db", [8.0, 15.0])
def test_protection_by_significance_lowers_the_error(snr_db):
    assert error(second_round(snr_db)) < 0.8 * error(second_round(snr_db, protect=False))


def test_most_probable_sums_err_less_than_nearest_ones_and_posterior_means_least():
    found = {name: error(second_round(5.0, estimate=name)) for name in ("mean", "map", "ml")}
    assert found["mean"] < found["map"] < found["ml"]


def test_the_most_probable_sum_of_even_bits_errs_as_shifted_thresholds_say():
    """Two devices with a bit each: sums 0, 1, 2 with ¼, ½, ¼; thresholds move σ² ln 2 towards the ends."""
    rng, noise_var = torch.Generator().manual_seed(0), 0.1
    of_sum = sum_prior(torch.tensor([0.5, 0.5]), 2)
    sums = torch.multinomial(of_sum, 40_000, replacement=True, generator=rng).float()
    found = estimate_sums(sums + noise_var**0.5 * torch.randn(40_000, generator=rng), noise_var, of_sum, "map")
    shift, deviation = noise_var * math.log(2), math.sqrt(noise_var)

    def tail(distance):
        return 0.5 * math.erfc(distance / deviation / math.sqrt(2))

    expected = 0.5 * tail(0.5 - shift) + 0.5 * 2 * tail(0.5 + shift)
    # 40,000 draws of .1: 1.6 % of standard deviation
    assert float((found != sums).double().mean()) == pytest.approx(expected, rel=0.06)


def test_more_numbers_than_floats_tell_apart_or_than_a_round_has_room_for_are_refused():
    with pytest.raises(ConfigError, match=r"has 4294967296 numbers, more values than float32 tells apart"):
        make_scheme(BitSlicingSettings(name="bit-slicing", number=16))
    scheme = make_scheme(BitSlicingSettings(name="bit-slicing", number=8, base=2, codeword_length=2))
    with pytest.raises(ConfigError, match="has 8 numbers for a parameter, but the round room for 2"):
        scheme.broadcast(torch.ones(20), {}, rng=torch.Generator())
