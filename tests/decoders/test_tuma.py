"""Multisource AMP over access points: equal to its plain version and to the one of a single site, right without noise."""

import math

import pytest
import torch

from aircomp.channel.places import Layout
from aircomp.decoders.fading.blind import Blind
from aircomp.decoders.fading.multisource import Schedule, multisource_amp
from aircomp.decoders.fading.receiver import Reception
from aircomp.decoders.settings import BlindSettings, TumaSettings
from aircomp.decoders.tuma import ONE_ZONE, Tuma, Zones, ZoneTable
from aircomp.encode.codebook import count
from aircomp.errors import ShapeError
from aircomp.schemes.digital.tuma import known_zones, zone_of
from aircomp.testing import check_receiver
from helpers.draws import accuracy, draw_indices, seeded
from helpers.radio import normal
from plain.multisource_amp import multisource_amp as plain

DEVICES, ANTENNAS, USES = 10, 4, 32
INDEPENDENT = {"agreement": 0.0}
"""Devices of these rounds choose independently."""


def popularity_of(codewords):
    shares = torch.arange(1.0, codewords + 1).reciprocal()
    return shares / shares.sum()


def heard(layout, *, zones, codewords=64, snr_db=40.0, slots=40, seed=0):
    """Send a round to four access points; return codebook, what was received, and the counts."""
    rng = seeded(seed)
    codebook = torch.nn.functional.normalize(normal(zones * codewords, USES, rng=rng), dim=1)
    angle, distance = 2 * math.pi * torch.rand(DEVICES, generator=rng), torch.rand(DEVICES, generator=rng).sqrt()
    positions = distance[:, None] * torch.stack([angle.cos(), angle.sin()], 1)
    power = layout.arriving(positions.double()).float().repeat_interleave(ANTENNAS, dim=1)
    gains = power.sqrt().T[:, :, None] * normal(power.shape[1], DEVICES, slots, rng=rng)
    indices = draw_indices(popularity_of(codewords), slots, DEVICES, rng=rng)
    words = indices + codewords * zone_of(positions, zones)[:, None]
    received = torch.einsum("aks,ksu->asu", gains, codebook[words])
    noise = math.sqrt(DEVICES / USES / 10 ** (snr_db / 10)) * normal(*received.shape, rng=rng)
    return codebook, received + noise, count(indices, codewords)


def test_it_is_the_plain_version():
    layout = Layout(4, 2.0)
    codebook, received, _ = heard(layout, zones=2, codewords=8, snr_db=5.0, slots=2)
    table = ZoneTable.of(known_zones(layout, 2, 3), 4)
    rate = (DEVICES / 2 * popularity_of(8)).repeat(2)
    prior = table.log_prior(rate[None], 0.0)
    Y, options = received.transpose(0, 1).unflatten(1, (4, ANTENNAS)), {"iterations": 4, "damping": 0.3}
    found = multisource_amp(Y, codebook, prior, table.counts, table.power, Schedule.plain(**options))
    expected = plain(Y, codebook, prior[0], table.counts, table.power, **options)
    torch.testing.assert_close(found.mean.flatten(1).double(), expected, atol=2e-3, rtol=2e-3)


def test_rows_of_the_table_have_the_prior_of_their_count():
    table = ZoneTable.of(known_zones(Layout(4, 2.0), 2, 3), 4)
    rate = torch.rand(1, 16, generator=seeded(0))
    prior, m = table.log_prior(rate, 0.0), table.counts[:, None]
    poisson = m * rate.unflatten(1, (2, -1))[0, :, None].log() - torch.lgamma(m + 1)
    torch.testing.assert_close(prior[0], poisson + table.log_share[:, :, None])


@pytest.mark.parametrize("told", [None, 10.0])
def test_one_place_and_one_zone_count_as_blind_does(told):
    codebook, received, counts = heard(Layout(), zones=1, snr_db=5.0)
    seen = Reception(received, popularity_of(64), num_active=told)
    blind = Blind(codebook, BlindSettings(**INDEPENDENT)).receive(seen)[0]
    zoned = Tuma(codebook, ONE_ZONE, TumaSettings(**INDEPENDENT)).receive(seen)[0]
    assert accuracy(blind.counts, counts) < 1
    if told:
        assert torch.equal(zoned.counts, blind.counts)
        torch.testing.assert_close(zoned.mean, blind.mean, atol=1e-3, rtol=1e-3)
    else:  # the two searches for the noise begin at different values
        assert zoned.num_active_hat == pytest.approx(blind.num_active_hat, abs=0.3)
        assert abs(accuracy(zoned.counts, counts) - accuracy(blind.counts, counts)) < 0.03


@pytest.mark.parametrize(("equalised", "right"), [(True, 0.95), (False, 0.92)])
def test_counts_are_nearly_right_without_noise(equalised, right):
    layout = Layout(4, 3.76, equalised)
    codebook, received, counts = heard(layout, zones=4)
    receiver = Tuma(codebook, known_zones(layout, 4, 16), TumaSettings(**INDEPENDENT))
    found = receiver.receive(Reception(received, popularity_of(64), num_active=10.0))[0]
    # faded sums of one and of two devices overlap on sixteen antennas, also without noise; 400 choices: .01
    assert accuracy(found.counts, counts) > right


def test_knowing_places_helps_where_path_losses_differ():
    layout = Layout(4, 3.76, equalised=True)
    options = {"snr_db": 5.0, "slots": 60}
    codebook, received, counts = heard(layout, zones=1, **options)
    blind = Blind(codebook, BlindSettings(**INDEPENDENT)).receive(
        Reception(received, popularity_of(64), num_active=10.0)
    )[0]
    codebook, received, same = heard(layout, zones=4, **options)
    zoned = Tuma(codebook, known_zones(layout, 4, 16), TumaSettings(**INDEPENDENT)).receive(
        Reception(received, popularity_of(64), num_active=10.0)
    )[0]
    assert accuracy(zoned.counts, same) > accuracy(blind.counts, counts) + 0.03


def test_an_error_of_power_spreads_places_and_keeps_their_mean():
    zones = known_zones(Layout(4, 3.76, equalised=True), 4, 8)
    missed = zones.with_error(0.5)
    assert missed.powers.shape == (4, 24, 4)
    assert missed.mean_power == pytest.approx(zones.mean_power, rel=1e-4)
    assert zones.mean_power == pytest.approx(1, abs=0.1)  # the centre of a cluster is a mean of decibels
    assert zones.with_error(0.0) is zones


def test_places_that_are_heard_alike_are_one():
    zones = known_zones(Layout(4, 0.0), 4, 16)
    assert zones.powers.shape == (4, 1, 4)
    assert not zones.spread
    torch.testing.assert_close(zones.shares, torch.full((4,), 0.25), atol=0.12, rtol=0)


def test_zones_and_access_points_that_do_not_fit_are_refused():
    codebook = torch.eye(8, dtype=torch.complex64)
    three = Zones(torch.ones(3) / 3, torch.ones(3, 1, 1), torch.ones(3, 1))
    with pytest.raises(ShapeError, match="codebook has 8 rows for 3 zones"):
        Tuma(codebook, three)
    two_sites = Zones(torch.ones(1), torch.ones(1, 1, 2), torch.ones(1, 1))
    with pytest.raises(ShapeError, match="received has 3 antennas for 2 access points"):
        Tuma(codebook, two_sites).receive(Reception(torch.zeros(3, 5, 8, dtype=torch.complex64), torch.ones(8) / 8))


@pytest.mark.seconds
def test_it_is_a_receiver():
    check_receiver(Tuma)
