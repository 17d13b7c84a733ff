import math

import pytest
import torch

from aircomp.decode.amp_da import AmpDa, AmpDaSettings, slab_posterior, start_activity
from aircomp.decode.heard import exact_counts, noise_per_slot
from aircomp.encode.codebook import count
from aircomp.errors import ConfigError, ShapeError
from aircomp.plain.amp_da import amp_da as plain_amp_da
from aircomp.testing import check_decoder
from helpers.draws import accuracy, add_noise, draw_indices

NUM_CODEWORDS, LENGTH = 128, 64


def bernoulli(rng, num_codewords=NUM_CODEWORDS, length=LENGTH):
    return (2.0 * torch.randint(0, 2, (num_codewords, length), generator=rng) - 1) / math.sqrt(length)


def draw_round(codebook, num_slots, snr_db, rng, num_active=10):
    """Zipf-1 popularity, noise in proportion to each slot's own power."""
    popularity = 1 / torch.arange(1, len(codebook) + 1)
    counts = count(draw_indices(popularity, num_slots, num_active, rng=rng), len(codebook))
    received, noise_var = add_noise(counts, codebook, snr_db, reference="slot", rng=rng)
    return received, popularity / popularity.sum(), counts, noise_var


@pytest.mark.seconds
@pytest.mark.parametrize("activity", ["slot", "pooled"])
def test_it_has_the_properties_of_a_decoder(activity):
    check_decoder(lambda codebook: AmpDa(codebook, activity=activity))


@pytest.mark.parametrize("activity", ["slot", "pooled"])
@pytest.mark.parametrize("max_iterations", [1, 7, 50])
def test_fast_equals_plain_after_the_same_iterations(activity, max_iterations, rng, monkeypatch):
    monkeypatch.setattr("aircomp.decode.amp_da.CHUNK", 4)
    codebook = bernoulli(rng, 24, 16).double()
    received, popularity, _, _ = draw_round(codebook.float(), 6, 12.0, rng, num_active=3)
    received = received.double()
    decoder = AmpDa(codebook, AmpDaSettings(max_iterations=max_iterations), activity=activity)
    plain = plain_amp_da(
        received,
        codebook,
        largest=16,
        start_activity=start_activity(24, 16),
        activity=activity,
        max_iterations=max_iterations,
    )
    # the same formulas in double precision; iterations multiply its rounding
    torch.testing.assert_close(decoder.decode(received, popularity).mean, plain, rtol=0, atol=1e-6)
    single = decoder.decode(received.float(), popularity).mean
    torch.testing.assert_close(single, plain.float(), rtol=0, atol=1e-4 if max_iterations < 50 else 1e-2)


def test_a_given_noise_variance_is_used_as_it_is(rng):
    codebook = bernoulli(rng, 24, 16).double()
    received, popularity, _, _ = draw_round(codebook.float(), 5, 12.0, rng, num_active=3)
    decoded = AmpDa(codebook, AmpDaSettings(max_iterations=9)).decode(
        received.double(), popularity, noise_var=0.3, num_active=3
    )
    plain = plain_amp_da(
        received.double(), codebook, largest=3, start_activity=start_activity(24, 16), noise_var=0.3, max_iterations=9
    )
    torch.testing.assert_close(decoded.mean, plain, rtol=0, atol=1e-6)
    torch.testing.assert_close(decoded.noise_var, torch.full_like(decoded.noise_var, 0.3))


@pytest.mark.parametrize("activity", ["slot", "pooled"])
def test_the_chunk_changes_nothing(activity, rng, monkeypatch):
    codebook = bernoulli(rng)
    received, popularity, _, _ = draw_round(codebook, 200, 5.0, rng)
    decoder = AmpDa(codebook, activity=activity)
    one = decoder.decode(received, popularity)
    monkeypatch.setattr("aircomp.decode.amp_da.CHUNK", 48)
    many = decoder.decode(received, popularity)
    assert torch.equal(one.counts, many.counts)
    torch.testing.assert_close(one.mean, many.mean, rtol=0, atol=1e-6)


@pytest.mark.parametrize("activity", ["slot", "pooled"])
def test_it_decodes_well_at_high_snr_and_collapses_at_low(activity, rng):
    codebook = bernoulli(rng)
    reached = {}
    for snr_db in (0.0, 20.0):
        received, popularity, counts, _ = draw_round(codebook, 300, snr_db, rng)
        reached[snr_db] = accuracy(AmpDa(codebook, activity=activity).decode(received, popularity).counts, counts)
    # measured over three seeds: .13 to .27 at 0 dB, .99 and above at 20 dB
    assert reached[20.0] > 0.97
    assert reached[0.0] < 0.35


def test_it_learns_the_noise_variance(rng):
    codebook = bernoulli(rng)
    received, popularity, _, noise_var = draw_round(codebook, 300, 20.0, rng)
    learned = AmpDa(codebook).decode(received, popularity).noise_var
    # a few wrong counts, each of energy one against a noise energy of a tenth, raise the estimate
    assert 0.8 < (learned.mean() / noise_var.mean()).item() < 2.5


def test_silent_slots_in_noise_stay_silent(rng):
    received = 0.01 * torch.randn(50, LENGTH, generator=rng)
    decoded = AmpDa(bernoulli(rng)).decode(received, torch.ones(NUM_CODEWORDS))
    assert decoded.num_active == 0
    assert torch.isfinite(decoded.mean).all()


@pytest.mark.parametrize("scale", [1e-5, 1e-2, 1.0, 1e3])
def test_posterior_moments_equal_the_table_of_exponentials(scale):
    largest = 20
    R = torch.cat([torch.linspace(-60, 80, 281), torch.tensor([-1e6, 1e6, 0.5, 1.5])]).double()[None]
    V = torch.tensor([[scale]], dtype=torch.float64)
    log_odds = torch.linspace(-20, 20, R.shape[1]).double()[None]
    mean, variance, odds = slab_posterior(R, V, log_odds, largest)
    m = torch.arange(largest + 1.0, dtype=torch.float64)
    table = -(((R[0, :, None] - m) ** 2) / (2 * scale))
    table[:, 1:] += log_odds[0, :, None] - math.log(largest)
    weights = torch.softmax(table, 1)
    torch.testing.assert_close(mean[0], weights @ m, rtol=1e-9, atol=1e-9)
    spread = (weights * (m - mean[0, :, None]) ** 2).sum(1)
    torch.testing.assert_close(variance[0], spread, rtol=1e-7, atol=2e-12)  # the floor is 1e-12
    wanted = (torch.logsumexp(table[:, 1:], 1) - table[:, 0]).clamp(-math.log(1e10), math.log(1e10))
    torch.testing.assert_close(odds[0], wanted, rtol=1e-9, atol=1e-9)


def test_posterior_of_absurd_observations_is_finite_in_float32():
    R = torch.tensor([[-1e30, -100.0, 0.0, 7.3, 100.0, 1e30]])
    for variance in (1e-12, 1.0, 1e12):
        for out in slab_posterior(R, torch.tensor([[variance]]), torch.zeros_like(R), 16):
            assert torch.isfinite(out).all()


def test_activity_starts_at_the_phase_transition():
    # for half as many uses as codewords, ℓ1 recovery of signed vectors breaks down at 0.386 nonzeros a use
    assert start_activity(128, 64) == pytest.approx(0.5 * 0.386, abs=1e-3)
    assert 0 < start_activity(16, 16) < 1
    assert 0 < start_activity(4, 64) < 1


def test_exact_counts_are_only_claimed_when_they_explain_everything(rng):
    codebook = bernoulli(rng)
    received, _, counts, _ = draw_round(codebook, 20, 30.0, rng)
    assert exact_counts(received, codebook) is None
    assert exact_counts(counts.float() @ codebook, codebook) is None  # interference, so the matched filter is off
    exact = exact_counts(counts.float(), torch.eye(NUM_CODEWORDS))
    assert exact is not None
    assert torch.equal(exact, counts.float())


def test_bad_arguments_are_refused_in_one_sentence(rng):
    codebook = bernoulli(rng)
    received = torch.zeros(3, LENGTH)
    with pytest.raises(ConfigError, match=r"damping = 1\.0: input should be less than 1"):
        AmpDaSettings(damping=1.0)
    with pytest.raises(ShapeError, match=r"noise_var has shape \(2,\)"):
        noise_per_slot(torch.ones(2), received)
    with pytest.raises(ShapeError, match="negative"):
        AmpDa(codebook).decode(received, torch.ones(NUM_CODEWORDS), noise_var=-1.0)


def test_a_signal_on_the_wrong_scale_still_ends(rng):
    received = 1e4 * torch.randn(3, LENGTH, generator=rng)
    decoded = AmpDa(bernoulli(rng), AmpDaSettings(max_iterations=3)).decode(received, torch.ones(NUM_CODEWORDS))
    assert torch.isfinite(decoded.mean).all()
