import pytest
import torch

from aircomp.decoders.settings import NnlsSettings
from aircomp.decoders.simple import Genie, Nnls, Omp
from aircomp.encode.codebook import count
from aircomp.errors import ConfigError, ShapeError
from aircomp.testing import check_decoder
from helpers.draws import accuracy, add_noise, draw_indices


def draw_round(num_slots, snr_db, rng, num_active=8, num_codewords=128, length=64):
    codebook = torch.randn(num_codewords, length, generator=rng)
    codebook /= codebook.norm(dim=1, keepdim=True)
    popularity = 1 / torch.arange(1, num_codewords + 1)
    counts = count(draw_indices(popularity, num_slots, num_active, rng=rng), num_codewords)
    received, _ = add_noise(counts, codebook, snr_db, rng=rng)
    return codebook, received, popularity, counts


@pytest.mark.parametrize("make", [Omp, Nnls])
def test_they_have_the_properties_of_a_decoder(make):
    check_decoder(make)


@pytest.mark.parametrize(("make", "enough"), [(Omp, 0.9), (Nnls, 0.7)])
def test_they_decode_an_overcomplete_codebook_at_high_snr(make, enough, rng):
    codebook, received, popularity, counts = draw_round(400, 20.0, rng)
    decoded = make(codebook).decode(received, popularity)
    assert decoded.num_active == 8
    assert accuracy(decoded.counts, counts) > enough  # about .99 and .9 measured; zeros would reach 0


def test_matching_pursuit_without_noise_finds_nearly_all_slots(rng):
    codebook, received, popularity, counts = draw_round(200, 200.0, rng, num_active=5)
    assert accuracy(Omp(codebook).decode(received, popularity).counts, counts) > 0.98


def test_matching_pursuit_stops_at_a_given_noise_level(rng):
    codebook, received, popularity, _ = draw_round(50, 0.0, rng)
    energy = received.square().mean(1)
    assert (Omp(codebook).decode(received, popularity, noise_var=energy * 1.01).mean == 0).all()


def test_matching_pursuit_of_one_slot_equals_the_batch(rng):
    codebook, received, popularity, _ = draw_round(30, 5.0, rng)
    batch = Omp(codebook).decode(received, popularity, num_active=8).mean
    single = torch.cat([Omp(codebook).decode(row[None], popularity, num_active=8).mean for row in received])
    torch.testing.assert_close(batch, single, rtol=0, atol=1e-4)  # float32 solves of up to 8 equations


def test_nonnegative_least_squares_meets_its_optimality_conditions(rng):
    codebook, received, popularity, _ = draw_round(20, 10.0, rng, num_codewords=24)
    x = Nnls(codebook.double(), NnlsSettings(num_steps=3000)).decode(received.double(), popularity).mean
    gradient = (x @ codebook.double() - received.double()) @ codebook.double().T
    assert (x >= 0).all()
    assert gradient.min() > -1e-6  # no codeword at zero wants to grow …
    assert (gradient * x).abs().max() < 1e-6  # … and none above it wants to move


def test_number_of_devices_comes_from_the_soft_counts_of_few_slots(rng):
    codebook, received, popularity, counts = draw_round(3, 25.0, rng)
    assert Omp(codebook).decode(received, popularity).num_active == counts[0].sum()


def test_number_of_devices_comes_from_the_popularity_where_noise_biases_the_soft_counts(rng):
    codebook, received, popularity, _ = draw_round(2000, 5.0, rng)
    decoded = Nnls(codebook).decode(received, popularity)
    assert decoded.mean.sum(1).mean() > 20  # 8 devices
    # one slot's fit spreads by about 4 (Zipf-1, 64 uses), so 2000 slots by 0.1
    assert decoded.num_active_hat == pytest.approx(8, abs=0.5)


def test_decoders_keep_the_dtype_of_the_signal(rng):
    codebook, received, popularity, _ = draw_round(4, 10.0, rng)
    for make in (Omp, Nnls):
        assert make(codebook).decode(received.double(), popularity).mean.dtype == torch.float64


def test_genie_returns_what_it_is_told(rng):
    _, received, popularity, counts = draw_round(5, 0.0, rng)
    decoded = Genie(truth=counts).decode(received, popularity)
    assert torch.equal(decoded.counts, counts)
    assert torch.equal(decoded.mean, counts.float())
    assert decoded.num_active == 8
    assert Genie(truth=counts[:0]).decode(received[:0], popularity).num_active == 0


def test_genie_refuses_to_guess(rng):
    _, received, popularity, counts = draw_round(5, 0.0, rng)
    with pytest.raises(ConfigError, match="pass truth="):
        Genie().decode(received, popularity)
    counts[0, 0] += 1
    with pytest.raises(ShapeError, match="the same sum"):
        Genie(truth=counts).decode(received, popularity)


def test_a_step_count_of_zero_is_refused():
    with pytest.raises(ConfigError, match="num_steps = 0: expected 1 to"):
        NnlsSettings(num_steps=0)
