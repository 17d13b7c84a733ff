import math
from dataclasses import replace

import pytest
import torch

from aircomp.common.rng import generator
from aircomp.decoders.estimate import round_estimate as estimate
from aircomp.decoders.estimate import round_fit
from aircomp.decoders.estimate.moments import RoundMoments
from aircomp.decoders.estimate.round_estimate import estimate_round, reestimate_round, smooth
from aircomp.encode.codebook import count, make_codebook
from aircomp.errors import ConfigError
from helpers.draws import zipf_round

CODEBOOK = make_codebook("two-bases", 128, 64, rng=generator(0, "codebook"))


def draw_round(num_slots, num_active, snr_db):
    """Draw a round of devices that copy one another, with one noise variance."""
    received, popularity, counts, noise_var = zipf_round(num_slots, num_active, snr_db, CODEBOOK, agreement=0.03)
    return received, popularity, counts, float(noise_var.mean())


@pytest.mark.parametrize("snr_db", [-5.0, 0.0, 5.0, 20.0])
@pytest.mark.parametrize("num_active", [1, 7, 13])
def test_the_number_of_devices_is_found_from_the_round(num_active, snr_db):
    received, popularity, _, _ = draw_round(2000, num_active, snr_db)
    found = estimate_round(RoundMoments.of(received), popularity, CODEBOOK)
    assert abs(found.num_active - num_active) < 0.5
    # four standard errors: one in 16,000 if they were Gaussian
    assert abs(found.num_active - num_active) < 4 * found.num_active_error
    torch.testing.assert_close(found.rate.sum().item(), found.num_active, rtol=1e-5, atol=0)


@pytest.mark.parametrize("num_slots", [150, 500])
def test_small_rounds_work_too(num_slots):
    for num_active in (5, 12):
        received, popularity, _, _ = draw_round(num_slots, num_active, 5.0)
        found = estimate_round(RoundMoments.of(received), popularity, CODEBOOK)
        assert abs(found.num_active - num_active) < 4 * found.num_active_error
        assert found.num_active_error < 0.1 * num_active


def test_the_noise_is_found_where_there_is_much():
    received, popularity, _, noise_var = draw_round(2000, 10, 0.0)
    found = estimate_round(RoundMoments.of(received), popularity, CODEBOOK)
    # 128,000 samples give the sum of signal and noise power to half a percent; telling them apart costs the rest
    assert found.noise_var == pytest.approx(noise_var, rel=0.06)


def test_the_rates_are_nearer_to_the_truth_than_the_popularity():
    received, popularity, counts, _ = draw_round(2000, 10, 5.0)
    truth = counts.float().mean(0)
    found = estimate_round(RoundMoments.of(received), popularity, CODEBOOK).rate
    assert (found - truth).abs().sum() < 0.6 * (10 * popularity - truth).abs().sum()
    assert (found > 0).all()


@pytest.mark.parametrize("num_active", [7.0, 10.0, 14.5])
def test_what_is_given_is_kept(num_active):
    received, popularity, counts, noise_var = draw_round(500, 10, 5.0)
    found = estimate_round(RoundMoments.of(received), popularity, CODEBOOK, num_active=num_active, noise_var=noise_var)
    assert (found.num_active, found.num_active_error, found.noise_var) == (num_active, 0.0, noise_var)
    torch.testing.assert_close(found.rate.sum().item(), num_active, rtol=1e-5, atol=0)
    if num_active == 10:
        truth = counts.float().mean(0)
        assert (found.rate - truth).abs().sum() < 0.8 * (10 * popularity - truth).abs().sum()


def test_the_order_of_the_slots_does_not_matter(rng):
    received, popularity, _, _ = draw_round(300, 9, 3.0)
    once = estimate_round(RoundMoments.of(received), popularity, CODEBOOK)
    again = estimate_round(RoundMoments.of(received[torch.randperm(300, generator=rng)]), popularity, CODEBOOK)
    # sums in another order, in double precision, through some ten steps of scoring
    assert again.num_active == pytest.approx(once.num_active, rel=1e-8)
    assert again.noise_var == pytest.approx(once.noise_var, rel=1e-8)


@pytest.mark.parametrize("num_slots", [0, 1, 2, 5])
def test_hardly_any_slots_give_finite_numbers(num_slots):
    received, popularity, _, _ = draw_round(num_slots, 6, 10.0)
    found = estimate_round(RoundMoments.of(received), popularity, CODEBOOK)
    assert all(math.isfinite(v) and v >= 0 for v in (found.num_active, found.num_active_error, found.noise_var))
    assert torch.isfinite(found.rate).all()


def test_silence_means_no_devices():
    found = estimate_round(RoundMoments.of(torch.zeros(20, 64)), torch.full((128,), 1 / 128), CODEBOOK)
    assert (found.num_active, found.noise_var) == (0.0, 0.0)
    assert not found.rate.any()


def test_noise_alone_is_less_than_half_a_device(rng):
    popularity = torch.arange(1.0, 129.0) ** -1.0
    found = estimate_round(
        RoundMoments.of(0.4 * torch.randn(1000, 64, generator=rng)), popularity / popularity.sum(), CODEBOOK
    )
    assert found.num_active < 0.5
    assert found.noise_var == pytest.approx(0.16, rel=0.05)


def test_a_popularity_of_zeros_but_one_works():
    received, popularity, _, _ = draw_round(500, 8, 10.0)
    certain = torch.zeros_like(popularity)
    certain[0] = 1.0
    found = estimate_round(RoundMoments.of(received), certain, CODEBOOK)
    assert math.isfinite(found.num_active)
    assert (found.rate > 0).all()


def test_an_impossible_number_of_devices_is_refused():
    received, popularity, _, _ = draw_round(10, 3, 10.0)
    for number in (-1.0, math.nan, math.inf, 1e6):
        with pytest.raises(ConfigError, match=r"num_active is .*; expected 0 to 100000 devices"):
            estimate_round(RoundMoments.of(received), popularity, CODEBOOK, num_active=number)


@pytest.mark.parametrize("noise_var", [None, 0.1])
@pytest.mark.parametrize("num_slots", [200, 3 * estimate.FITTED.cov_slots])
def test_the_gradient_is_that_of_the_loss(num_slots, noise_var, rng):
    received, popularity, _, _ = draw_round(num_slots, 9, 3.0)
    prior = smooth(popularity.double(), num_slots)
    problem = estimate._problem(
        RoundMoments.of(received), CODEBOOK, prior, estimate._around_popularity(prior), None, noise_var
    )
    start = round_fit._start(problem, 9.0)
    log_model = torch.cat([start.rate, start.noise_var[None], start.spread[None]]).log()
    log_model = (log_model + 0.2 * torch.randn(130, generator=rng, dtype=torch.float64)).requires_grad_()
    *_, noise, spread = model = log_model.exp()
    score = round_fit._score(replace(start, rate=model[:128], noise_var=noise, spread=spread), problem)
    (expected,) = torch.autograd.grad(score.loss, log_model)
    if noise_var is not None:
        assert score.gradient[128] == 0
        expected[128] = 0
    torch.testing.assert_close(score.gradient, expected, rtol=1e-8, atol=1e-8)


def test_smoothing_gives_every_codeword_a_chance_and_takes_off_the_base_stations_own():
    tally = torch.ones(128)
    tally[0] = 73.0
    seeds = smooth(tally / 200, 200)  # every codeword is a fragment of the base station's own
    assert seeds[0] > tally[0] / 200
    drawn = torch.zeros(128)
    drawn[:2] = torch.tensor([0.75, 0.25])
    unseen = smooth(drawn, 10_000)
    assert (unseen > 0).all()
    assert unseen[0] / unseen[1] == pytest.approx(3, rel=0.01)
    for smoothed in (seeds, unseen, smooth(torch.full((128,), 1 / 128), 1)):
        assert smoothed.sum().item() == pytest.approx(1, rel=1e-5)


def test_decoded_slots_bring_the_number_of_devices_nearer():
    # devices choose with far more entropy than the base station, as in federated digits
    rng = generator(3, "flat choices")
    popularity = torch.arange(1.0, 129.0) ** -1.2
    indices = torch.multinomial(popularity.pow(0.4).expand(10, -1), 2000, replacement=True, generator=rng)
    counts = count(indices, 128)
    received = counts.float() @ CODEBOOK + 0.3 * torch.randn(2000, 64, generator=rng)
    before = estimate_round(RoundMoments.of(received), popularity / popularity.sum(), CODEBOOK)
    after = reestimate_round(RoundMoments.of(received), counts.float().mean(0), CODEBOOK, before)
    assert abs(before.num_active - 10) < 1.5  # the tilt leaves that much; without it the error is 4
    assert abs(after.num_active - 10) < 0.1 + 0.2 * abs(before.num_active - 10)
    assert after.rate.sum().item() == pytest.approx(after.num_active, rel=1e-5)


def test_shares_that_decoding_left_open_are_lowered():
    # slots that tell nothing repeat what was expected, here an even spread over codewords of which devices use sixteen
    rng = generator(4, "few choices")
    counts = count(torch.randint(16, (10, 4000), generator=rng), 128)
    received = counts.float() @ CODEBOOK + torch.randn(4000, 64, generator=rng)
    before = estimate_round(RoundMoments.of(received), torch.full((128,), 1 / 128), CODEBOOK)
    repeated = counts.float().mean(0) + 0.02
    sure, unsure = (
        reestimate_round(RoundMoments.of(received), repeated, CODEBOOK, before, doubt=doubt) for doubt in (0.0, 1.0)
    )
    assert 10 < unsure.num_active < sure.num_active - 0.2
    assert unsure.rate[16:].sum() < 0.9 * sure.rate[16:].sum()


def test_reestimating_keeps_what_is_given():
    received, popularity, counts, noise_var = draw_round(500, 10, 5.0)
    before = estimate_round(RoundMoments.of(received), popularity, CODEBOOK, num_active=9.0, noise_var=noise_var)
    found = reestimate_round(
        RoundMoments.of(received), counts.float().mean(0), CODEBOOK, before, num_active=9.0, noise_var=noise_var
    )
    assert (found.num_active, found.num_active_error, found.noise_var) == (9.0, 0.0, noise_var)
    assert found.rate.sum().item() == pytest.approx(9.0, rel=1e-5)


def test_devices_are_found_where_the_mean_turns_against_the_popularity():
    """The round that ended a run: the mean told of minus two devices, and the fit made noise of all ten."""
    rng = generator(0, "turned")
    codebook = CODEBOOK.clone()
    codebook[1] = -codebook[0]
    popularity = torch.arange(1.0, 129.0) ** -1.2
    popularity[0], popularity[1] = 3.0, 0.1
    truth = popularity.clone()
    truth[0], truth[1] = 0.3, 3.0
    counts = count(torch.multinomial(truth.expand(10, -1), 300, replacement=True, generator=rng), 128)
    received = counts.float() @ codebook
    received += received.square().mean().div(3).sqrt() * torch.randn(received.shape, generator=rng)
    assert received.mean(0) @ (popularity @ codebook) < 0
    found = estimate_round(RoundMoments.of(received), popularity / popularity.sum(), codebook)
    assert abs(found.num_active - 10) < 4 * found.num_active_error


def test_slots_decoded_from_almost_no_devices_leave_every_codeword_a_share():
    """What then broke: a share lowered to zero, whose logarithm made every parameter NaN."""
    received, popularity, _, _ = draw_round(50, 5, 0.0)
    before = replace(
        estimate_round(RoundMoments.of(received), popularity, CODEBOOK), num_active=1e-7, rate=1e-7 * popularity
    )
    decoded = torch.zeros(128)
    decoded[0] = 0.5
    again = reestimate_round(RoundMoments.of(received), decoded, CODEBOOK, before, doubt=1.0)
    assert torch.isfinite(again.rate).all()
    assert (again.rate > 0).all()
    assert math.isfinite(again.num_active_error)
    assert again.num_active != pytest.approx(before.num_active, rel=0.01)  # the fit moved


def test_a_covariance_without_variance_in_some_direction_has_a_factor():
    rows = torch.randn(64, 3, generator=generator(0, "rows"), dtype=torch.float64)
    covariance = rows @ rows.mT
    assert torch.linalg.cholesky_ex(covariance)[1] > 0
    factor = round_fit._factor(covariance)
    torch.testing.assert_close(factor @ factor.mT, covariance, rtol=0, atol=1e-8)


@pytest.mark.parametrize("num_slots", [0, 1, 5, 2049])
def test_moments_of_a_round_are_those_of_its_definition(num_slots):
    received = 3 + torch.randn(num_slots, 4, generator=generator(0, "moments"))
    seen, y = RoundMoments.of(received), received.double()
    torch.testing.assert_close(seen.mean, y.mean(0) if num_slots else torch.zeros(4).double())
    torch.testing.assert_close(seen.cov, y.mT.cov() if num_slots > 1 else torch.zeros(4, 4).double())
    assert seen.power == pytest.approx(float(y.square().mean()) if num_slots else 0.0)
