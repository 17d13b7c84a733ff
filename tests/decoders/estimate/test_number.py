"""The number of devices where all codewords have a direction in common."""

import pytest
import torch

from aircomp.channel.awgn import transmit
from aircomp.decoders.estimate.moments import RoundMoments
from aircomp.decoders.estimate.number import count_devices, counting_direction, join_numbers, whole_devices
from aircomp.decoders.estimate.pilot import PilotEstimator
from aircomp.encode.codebook import count, make_codebook
from aircomp.encode.learned import with_common

SHARE = 0.01
CODEBOOK = with_common(make_codebook("two-bases", 128, 64, rng=torch.Generator().manual_seed(1)), SHARE)


def draw_received(num_active, num_slots, snr_db, seed, exponent=1.0):
    rng = torch.Generator().manual_seed(seed)
    shares = torch.arange(1.0, 129.0) ** -exponent
    counts = count(torch.multinomial(shares.expand(num_active, -1), num_slots, replacement=True, generator=rng), 128)
    return transmit(counts, CODEBOOK, snr_db=snr_db, reference="round", rng=rng), shares / shares.sum()


def test_the_direction_is_the_common_one_and_counts_every_codeword_once():
    direction = counting_direction(CODEBOOK)
    assert direction is not None
    torch.testing.assert_close(CODEBOOK.double() @ direction, torch.ones(128, dtype=torch.float64), atol=1e-5, rtol=0)
    assert float(direction.norm()) == pytest.approx(SHARE**-0.5, rel=1e-4)


@pytest.mark.parametrize("kind", ["two-bases", "gaussian", "bernoulli"])
def test_drawn_codebooks_have_none(kind):
    assert counting_direction(make_codebook(kind, 128, 64, rng=torch.Generator().manual_seed(1))) is None


def test_fewer_codewords_than_uses_are_left_to_moments():
    assert counting_direction(torch.eye(8, 16)) is None


@pytest.mark.parametrize("num_active", [1, 10, 64])
def test_the_error_is_what_it_is_said_to_be(num_active):
    direction = counting_direction(CODEBOOK)
    found = []
    for seed in range(200):
        received, _ = draw_received(num_active, 50, 0.0, seed)
        number, error = count_devices(RoundMoments.of(received), direction)
        found.append((number - num_active) / error)
    errors = torch.tensor(found)
    # 200 draws of a standard normal: the mean is within 3/√200, the deviation within 3/√400
    assert abs(float(errors.mean())) < 0.21
    assert float(errors.square().mean().sqrt()) == pytest.approx(1, abs=0.15)


def test_a_popularity_that_is_all_wrong_changes_little():
    received, popularity = draw_received(12, 4000, 3.0, 0)
    pilot = PilotEstimator(CODEBOOK, pilot_passes=0)
    right, wrong = (pilot.estimate(received, shares)[0] for shares in (popularity, popularity.flip(0)))
    assert abs(right.num_active - 12) < 3 * right.num_active_error < 0.4
    assert abs(wrong.num_active - 12) < 3 * wrong.num_active_error < 0.4


def test_few_slots_tell_the_number_by_moments_as_well():
    received, popularity = draw_received(12, 5, -5.0, 0)
    _, counted = count_devices(RoundMoments.of(received), counting_direction(CODEBOOK))
    shared, _ = PilotEstimator(CODEBOOK, pilot_passes=0).estimate(received, popularity)
    assert shared.num_active_error < 0.8 * counted
    assert abs(shared.num_active - 12) < 3 * shared.num_active_error


def test_decoded_slots_make_the_number_surer_at_high_snr():
    received, popularity = draw_received(12, 400, 15.0, 0)
    _, counted = count_devices(RoundMoments.of(received), counting_direction(CODEBOOK))
    shared, _ = PilotEstimator(CODEBOOK).estimate(received, popularity)
    assert shared.num_active_error < counted / 2
    assert abs(shared.num_active - 12) < 0.05


def test_silence_is_nobody():
    shared, _ = PilotEstimator(CODEBOOK).estimate(torch.zeros(5, 64), torch.ones(128) / 128)
    assert (shared.num_active, float(shared.rate.sum())) == (0.0, 0.0)


def test_numbers_are_joined_by_their_standard_errors():
    number, error = join_numbers((10.0, 0.3), (12.0, 0.6))
    assert (number, error) == pytest.approx((10.4, 0.3 * 0.6 / 0.45**0.5))
    assert join_numbers((10.0, 0.0), (12.0, 0.0)) == (10.0, 0.0)


def test_an_integer_is_surer_than_the_number_heard():
    heard = 10 + 0.3 * torch.randn(2000, generator=torch.Generator().manual_seed(0))
    whole = torch.tensor([whole_devices(float(x), 0.3) for x in heard])
    error = (whole[:, 0] - 10).abs()
    assert float(error.mean()) < 0.7 * float((heard - 10).abs().mean())
    # what is stated holds on average: 2,000 squares, the largest of them one
    assert float(whole[:, 1].square().mean()) == pytest.approx(float(error.square().mean()), abs=0.02)


@pytest.mark.parametrize(("number", "error"), [(9.6, 0.02), (9.6, 1.5), (9.6, 0.0), (0.4, 0.05)])
def test_a_number_that_integers_do_not_explain_stays(number, error):
    assert whole_devices(number, error) == (number, error)


def test_a_short_round_finds_the_whole_number():
    errors = []
    for seed in range(10):
        received, popularity = draw_received(10, 305, 5.0, seed)
        shared, _ = PilotEstimator(CODEBOOK).estimate(received, popularity)
        _, counted = count_devices(RoundMoments.of(received), counting_direction(CODEBOOK))
        errors.append(abs(shared.num_active - 10))
        assert float(shared.rate.sum()) == pytest.approx(shared.num_active, rel=1e-3)
    assert sum(errors) / 10 < 0.02 < counted / 4
