from functools import partial

import pytest
import torch

from aircomp.common.rng import generator
from aircomp.decoders.amp.gamp import Gamp
from aircomp.decoders.amp.steps import AmpState, PreparedCodebook, iterate, output_block, pseudo_channel, start
from aircomp.decoders.estimate.pilot import PilotEstimator
from aircomp.decoders.settings import GampSettings
from aircomp.encode.codebook import make_codebook
from aircomp.errors import ConfigError, ShapeError
from aircomp.testing import check_decoder
from helpers.draws import accuracy, zipf_round
from plain.gamp import gamp as plain_gamp

CODEBOOK = make_codebook("two-bases", 128, 64, rng=generator(0, "codebook"))
ALONE = GampSettings(agreement=0.0)  # what is drawn below: devices that choose independently


draw_round = partial(zipf_round, codebook=CODEBOOK)


@pytest.mark.seconds
@pytest.mark.parametrize("noise", ["round", "slot"])
def test_it_has_the_properties_of_a_decoder(noise):
    check_decoder(lambda codebook: Gamp(codebook, ALONE, snr_reference=noise))


@pytest.mark.parametrize("snr_db", [0.0, 10.0, 30.0])
def test_fast_equals_plain(snr_db):
    received, popularity, _, noise_var = draw_round(6, 9, snr_db)
    rate = 9 * popularity
    plain = plain_gamp(received, CODEBOOK, noise_var, rate, iterations=10)
    fast = iterate(
        received, PreparedCodebook.of(CODEBOOK), noise_var[:, None], rate[None], iterations=10, reach=9
    ).x_hat
    # float32 through ten iterations
    torch.testing.assert_close(fast.double(), plain, rtol=0, atol=1e-4)
    double = [t.double() for t in (received, CODEBOOK, noise_var, rate)]
    exact = iterate(
        double[0], PreparedCodebook.of(double[1]), double[2][:, None], double[3][None], iterations=10, reach=40
    )
    torch.testing.assert_close(exact.x_hat, plain, rtol=0, atol=1e-9)


def test_the_first_iteration_has_no_onsager_term():
    received, popularity, _, noise_var = draw_round(4, 9, 5.0)
    book = PreparedCodebook.of(CODEBOOK)
    s = output_block(start(received, 9 * popularity[None]), received, book, noise_var[:, None])
    torch.testing.assert_close(s.z, (9 * popularity @ CODEBOOK).expand_as(s.z), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(s.v, (9 * popularity @ CODEBOOK.square()).expand_as(s.v), rtol=1e-5, atol=1e-6)


def test_the_pseudo_channel_of_a_certain_slot_sees_the_counts():
    """With the truth as state and no doubt left, R is the truth plus what the noise projects on each codeword."""
    received, _, counts, noise_var = draw_round(5, 9, 10.0)
    truth = counts.float()
    s = AmpState(truth, torch.zeros_like(truth), truth @ CODEBOOK, torch.zeros_like(received))
    R, V = pseudo_channel(s, received, PreparedCodebook.of(CODEBOOK), noise_var[:, None])
    torch.testing.assert_close(V, noise_var[:, None].expand_as(V), rtol=1e-5, atol=0)
    torch.testing.assert_close(R, truth + (received - truth @ CODEBOOK) @ CODEBOOK.T, rtol=1e-5, atol=1e-5)


def test_damping_keeps_a_part_of_the_old_state():
    received, popularity, _, noise_var = draw_round(4, 9, 5.0)
    book, rate = PreparedCodebook.of(CODEBOOK), 9 * popularity[None]
    s = iterate(received, book, noise_var[:, None], rate, iterations=2, reach=5)
    free, damped, held = (output_block(s, received, book, noise_var[:, None], eta=eta) for eta in (0.0, 0.25, 1.0))
    torch.testing.assert_close(damped.z, 0.75 * free.z + 0.25 * s.z, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(damped.v, 0.75 * free.v + 0.25 * s.v, rtol=1e-5, atol=1e-6)
    assert torch.equal(held.z, s.z)


@pytest.mark.seconds
def test_gradients_reach_everything_and_every_use_of_the_codebook_counts():
    rng = generator(1, "gradients")
    rows = torch.randn(6, 4, generator=rng, dtype=torch.float64)
    rows = (rows / rows.norm(dim=1, keepdim=True)).requires_grad_()
    y = torch.randn(3, 4, generator=rng, dtype=torch.float64).requires_grad_()
    noise_var = torch.full((3, 1), 0.2, dtype=torch.float64, requires_grad=True)
    rate = (0.2 + torch.rand(1, 6, generator=rng, dtype=torch.float64)).requires_grad_()

    def decode(y, book, noise_var, rate):
        return iterate(y, book, noise_var, rate, iterations=3, reach=30).x_hat

    inputs = (y, rows, noise_var, rate)
    assert torch.autograd.gradcheck(lambda y, c, s, r: decode(y, PreparedCodebook.of(c), s, r), inputs)
    whole = torch.autograd.grad(decode(y, PreparedCodebook.of(rows), noise_var, rate).square().sum(), rows)[0]
    without = PreparedCodebook(rows, rows.detach().square())
    partial = torch.autograd.grad(decode(y, without, noise_var, rate).square().sum(), rows)[0]
    assert (whole - partial).abs().max() > 1e-3


def test_slots_do_not_depend_on_their_neighbours():
    received, popularity, _, noise_var = draw_round(40, 9, 3.0)
    book, rate = PreparedCodebook.of(CODEBOOK), 9 * popularity[None]
    together = iterate(received, book, noise_var[:, None], rate, iterations=10, reach=5).x_hat
    for i in (0, 17, 39):
        alone = iterate(received[i : i + 1], book, noise_var[i : i + 1, None], rate, iterations=10, reach=5).x_hat
        torch.testing.assert_close(alone[0], together[i], rtol=0, atol=1e-4)


@pytest.mark.parametrize("reference", ["round", "slot"])
def test_estimating_everything_costs_next_to_nothing(reference):
    received, popularity, counts, noise_var = draw_round(1000, 10, 5.0, reference=reference)
    decoder = Gamp(CODEBOOK, ALONE, snr_reference=reference)
    blind = decoder.decode(received, popularity)
    told = decoder.decode(received, popularity, num_active=10, noise_var=noise_var)
    assert blind.num_active == 10
    assert accuracy(told.counts, counts) > 0.74  # 0.77 and 0.79; the popularity alone gets 0.09
    # the standard error of a mean over 1,000 slots is about 0.006, but both decode the same slots
    assert accuracy(blind.counts, counts) > accuracy(told.counts, counts) - 0.01
    # wrongly decoded slots leave a larger residual: five to twelve percent too much at this SNR
    assert blind.noise_var.mean().item() == pytest.approx(noise_var.mean().item(), rel=0.2)


def test_without_noise_every_slot_is_exact_and_so_is_the_number_of_devices():
    for num_active in (1, 7, 13):
        received, popularity, counts, _ = draw_round(300, num_active, 200.0)
        decoded = Gamp(CODEBOOK, ALONE).decode(received, popularity)
        assert torch.equal(decoded.counts, counts)
        assert decoded.num_active_hat == pytest.approx(num_active, abs=0.01)


def test_ten_decibels_are_nearly_exact():
    received, popularity, counts, _ = draw_round(500, 8, 10.0)
    assert accuracy(Gamp(CODEBOOK, ALONE).decode(received, popularity).counts, counts) > 0.98


def test_the_posterior_mean_beats_the_integers_in_squared_error():
    received, popularity, counts, _ = draw_round(500, 10, 3.0)
    decoded = Gamp(CODEBOOK, ALONE).decode(received, popularity)
    # no estimator has less expected squared error than the posterior mean; it was 0.73 here
    assert (decoded.mean - counts).square().sum() < 0.8 * (decoded.counts - counts).square().sum()


def test_noise_that_follows_the_slot_is_found_slot_by_slot():
    received, popularity, counts, noise_var = draw_round(1000, 10, 0.0, reference="slot")
    by_slot = Gamp(CODEBOOK, ALONE, snr_reference="slot").decode(received, popularity)
    by_round = Gamp(CODEBOOK, ALONE, snr_reference="round").decode(received, popularity)
    assert (by_slot.noise_var - noise_var).square().mean() < 0.4 * (by_round.noise_var - noise_var).square().mean()
    assert accuracy(by_slot.counts, counts) > accuracy(by_round.counts, counts)


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
def test_the_chunk_changes_nothing(chunk, monkeypatch):
    received, popularity, _, _ = draw_round(40, 9, 3.0, reference="slot")
    whole = Gamp(CODEBOOK, ALONE, snr_reference="slot").decode(received, popularity)
    monkeypatch.setattr("aircomp.decoders.estimate.pilot.CHUNK", chunk * len(CODEBOOK))
    parts = Gamp(CODEBOOK, ALONE, snr_reference="slot").decode(received, popularity)
    assert torch.equal(whole.counts, parts.counts)
    torch.testing.assert_close(parts.mean, whole.mean, rtol=1e-6, atol=3e-6)  # a chunk of one multiplies in other order
    assert parts.num_active_hat == pytest.approx(whole.num_active_hat, rel=1e-6)


def test_a_codeword_that_the_base_station_never_used_is_decoded():
    received, popularity, _, noise_var = draw_round(400, 8, 15.0)
    popularity[100] = 0.0
    received[3] = 8 * CODEBOOK[100] + noise_var[0].sqrt() * torch.randn(64, generator=generator(2, "noise"))
    decoded = Gamp(CODEBOOK, ALONE).decode(received, popularity)
    assert decoded.counts[3, 100] == 8


def test_one_slot_is_decoded():
    received, popularity, counts, noise_var = draw_round(1, 5, 20.0)
    decoded = Gamp(CODEBOOK, ALONE).decode(received, popularity, num_active=5, noise_var=noise_var)
    assert torch.equal(decoded.counts, counts)
    assert Gamp(CODEBOOK, ALONE, snr_reference="slot").decode(received, popularity).counts.shape == (1, 128)


def test_given_noise_of_zero_and_no_devices_are_accepted():
    received, popularity, counts, _ = draw_round(60, 6, 40.0)
    decoded = Gamp(CODEBOOK, ALONE).decode(received, popularity, noise_var=0.0, num_active=6)
    assert torch.equal(decoded.counts, counts)
    nobody = Gamp(CODEBOOK, ALONE).decode(received, popularity, num_active=0)
    assert not nobody.counts.any()
    assert not nobody.mean.any()
    assert nobody.noise_var.mean().item() == pytest.approx(received.square().mean().item(), rel=1e-5)


def test_double_precision_goes_through():
    received, popularity, counts, _ = draw_round(100, 6, 15.0)
    decoded = Gamp(CODEBOOK, ALONE).decode(received.double(), popularity.double())
    assert decoded.mean.dtype == torch.float64
    assert accuracy(decoded.counts, counts) > 0.99


def test_mistakes_are_named():
    received, popularity, _, _ = draw_round(5, 6, 10.0)
    with pytest.raises(ConfigError, match="iterations = 0: expected 1 to"):
        GampSettings(iterations=0)
    with pytest.raises(ShapeError, match="noise_var holds values that are negative"):
        Gamp(CODEBOOK, ALONE).decode(received, popularity, noise_var=-torch.ones(5))
    with pytest.raises(ConfigError, match="num_active is -1"):
        Gamp(CODEBOOK, ALONE).decode(received, popularity, num_active=-1)
    with pytest.raises(ShapeError, match="not finite"):
        Gamp(CODEBOOK, ALONE).decode(received.index_fill(1, torch.tensor([2]), torch.nan), popularity)


def test_noise_that_is_told_is_not_held_in_the_moments_of_unequal_codewords():
    """Moments take for noise what their model misses; rates that have to explain it decode worse."""
    received, popularity, _, noise_var = draw_round(300, 9, 5.0)

    def rates(unit_norm, told):
        estimator = PilotEstimator(CODEBOOK, pilot_passes=0, unit_norm=unit_norm)
        return estimator.estimate(received, popularity, 9.0, told)[0].rate

    assert torch.equal(rates(False, noise_var / 2), rates(False, None))
    assert not torch.allclose(rates(True, noise_var / 2), rates(True, None), rtol=1e-2)
