import math

import pytest
import torch

from aircomp.common.rng import generator
from aircomp.decoders.amp.gamp import Gamp
from aircomp.decoders.amp.posterior import BLOCK, Chains, Posterior, Prior
from aircomp.decoders.settings import GampSettings, PosteriorSettings
from aircomp.encode.codebook import count, make_codebook
from aircomp.errors import ConfigError, ShapeError
from aircomp.measure.metrics import count_accuracy
from aircomp.testing import check_decoder
from helpers.draws import add_noise, draw_indices
from plain.posterior import enumerate_posterior, gibbs_sweep

CODEBOOK = make_codebook("two-bases", 128, 64, rng=generator(0, "codebook"))
POPULARITY = 1 / torch.arange(1.0, 129.0)
POPULARITY /= POPULARITY.sum()


def draw_round(num_slots, num_active, snr_db, seed=0):
    rng = generator(seed, "round", num_active)
    counts = count(draw_indices(POPULARITY, num_slots, num_active, rng=rng), 128)
    received, noise_var = add_noise(counts, CODEBOOK, snr_db, rng=rng)
    return received, counts, noise_var


def tiny(num_slots=16):
    """Four codewords that two channel uses cannot keep apart, and three devices: twenty possible counts."""
    rng = generator(3, "tiny")
    codebook = torch.nn.functional.normalize(torch.randn(4, 2, generator=rng), dim=1)
    return codebook, torch.tensor([0.5, 0.25, 0.2, 0.05]), 1.5 * torch.randn(num_slots, 2, generator=rng)


@pytest.mark.seconds
def test_it_has_the_properties_of_a_decoder():
    check_decoder(lambda codebook: Posterior(codebook, PosteriorSettings(sweeps=5, burn_in=5, agreement=0.0)))


@pytest.mark.parametrize("agreement", [0.0, 0.3])
def test_samples_have_the_exact_mean_median_and_mode(agreement):
    codebook, rate, received = tiny()
    states, chance = enumerate_posterior(received, codebook, rate, 3, 0.3, agreement=agreement)
    sampler = Posterior(codebook, PosteriorSettings(sweeps=250, burn_in=20, chains=16, agreement=agreement))
    samples = sampler.sample(received, rate, 3, torch.full((len(received),), 0.3))
    x = states.double()
    # Counts have a standard deviation of 1.1 at most, so 4,000 samples, which turn out as good as independent, leave
    # 0.017; of 64 such errors none is beyond five times that, and their mean is well below one.
    torch.testing.assert_close(samples.mean.double(), chance @ x, rtol=0, atol=0.085)
    assert (samples.mean.double() - chance @ x).abs().mean() < 0.01
    assert torch.equal(samples.best, states[chance.argmax(1)])
    expected_error = chance @ (x[:, None] - x[None]).abs().sum(2)
    chosen = (samples.median[:, None] == states[None]).all(2).double().argmax(1)
    excess = expected_error.gather(1, chosen[:, None])[:, 0] - expected_error.amin(1)
    assert excess.max() < 0.05  # where two choices are nearly as good, samples cannot tell them apart


def test_the_log_posterior_is_that_of_the_best_counts():
    codebook, rate, received = tiny()
    for agreement in (0.0, 0.3):
        states, chance = enumerate_posterior(received, codebook, rate, 3, 0.3, agreement=agreement)
        sampler = Posterior(codebook, PosteriorSettings(sweeps=100, burn_in=5, agreement=agreement))
        samples = sampler.sample(received, rate, 3, torch.full((len(received),), 0.3))
        fit = -(received - samples.best.float() @ codebook).square().sum(1) / 0.6
        prior = Prior.of(rate, agreement)
        labels = torch.stack([torch.arange(4).repeat_interleave(x) for x in samples.best])
        earlier = (labels[:, :, None] == labels[:, None, :]).tril(-1).sum(2)
        # float32 sums of terms of size ten
        torch.testing.assert_close(samples.log_posterior, fit + prior.log_counts(labels, earlier), rtol=0, atol=1e-4)
        assert torch.equal(samples.best, states[chance.argmax(1)])


@pytest.mark.parametrize("agreement", [0.0, 0.05])
def test_a_sweep_equals_the_plain_one(agreement):
    received, _, noise_var = draw_round(6, 9, 5.0)
    rng = generator(0, "sweep")
    labels = torch.multinomial(POPULARITY.expand(6, -1), 9, replacement=True, generator=rng)
    gram, prior = CODEBOOK @ CODEBOOK.T, Prior.of(POPULARITY, agreement)
    chains = Chains.start(labels, received @ CODEBOOK.T, gram, prior)
    plain = labels.tolist()
    for _ in range(4):
        uniforms = torch.rand(9, 6, generator=rng)
        chains.sweep(gram, noise_var[:, None], prior, uniforms)
        plain = [
            gibbs_sweep(plain[i], y, CODEBOOK, POPULARITY, float(noise_var[i]), u.tolist(), agreement=agreement)
            for i, (y, u) in enumerate(zip(received, uniforms.T, strict=True))
        ]
    assert chains.labels.tolist() == plain
    assert (chains.labels != labels).float().mean() > 0.3
    left = received - count(chains.labels.T, 128).float() @ CODEBOOK
    # float32 after 72 exchanges
    torch.testing.assert_close(chains.field, left @ CODEBOOK.T - gram.diagonal() / 2, rtol=0, atol=1e-4)


@pytest.mark.seconds
def test_two_chains_agree():
    """One started from decoded counts, the other from the prior: that they agree shows that both forgot it."""
    received, _, noise_var = draw_round(200, 9, 0.0)
    short, long = (
        Posterior(CODEBOOK, PosteriorSettings(sweeps=sweeps, burn_in=30, agreement=0.0))
        .sample(received, POPULARITY, 9, noise_var)
        .disagreement.mean()
        for sweeps in (40, 160)
    )
    # four times the samples halve what chance leaves (0.57 measured, as samples are related), and nothing else
    assert 0.4 < long / short < 0.65
    assert long < 0.08
    received, _, noise_var = draw_round(200, 9, 10.0)
    samples = Posterior(CODEBOOK, PosteriorSettings(sweeps=40, burn_in=30, agreement=0.0)).sample(
        received, POPULARITY, 9, noise_var
    )
    assert samples.disagreement.mean() < 0.005  # nearly all slots are certain


def test_a_stuck_chain_shows_and_does_not_count():
    received, counts, noise_var = draw_round(200, 13, 20.0)
    samples = Posterior(CODEBOOK, PosteriorSettings(sweeps=20, burn_in=0, agreement=0.0)).sample(
        received, POPULARITY, 13, noise_var
    )
    assert (samples.disagreement > 0.2).sum() > 10  # not annealed
    assert torch.equal(samples.median, counts)


@pytest.mark.seconds
@pytest.mark.parametrize(("snr_db", "num_active"), [(0.0, 9), (10.0, 13)])
def test_it_decodes_no_worse_than_message_passing(snr_db, num_active):
    received, counts, noise_var = draw_round(400, num_active, snr_db)
    known = {"num_active": num_active, "noise_var": noise_var}
    sampled = Posterior(CODEBOOK, PosteriorSettings(sweeps=40, burn_in=20, agreement=0.0)).decode(
        received, POPULARITY, **known
    )
    passed = Gamp(CODEBOOK, GampSettings(agreement=0.0)).decode(received, POPULARITY, **known)
    better = count_accuracy(counts, sampled.counts) - count_accuracy(counts, passed.counts)
    # at 0 dB half of the 3,600 labels are unsure: one standard error of the difference is about 0.005
    assert better > (-0.01 if snr_db == 0 else 0)
    assert (sampled.mean - counts).square().sum() < (passed.mean - counts).square().sum()


def test_without_noise_it_is_exact():
    received, counts, _ = draw_round(100, 9, math.inf)
    for given in ({}, {"noise_var": 0.0, "num_active": 9}):
        decoded = Posterior(CODEBOOK, PosteriorSettings(sweeps=10, burn_in=20, agreement=0.0)).decode(
            received, POPULARITY, **given
        )
        assert torch.equal(decoded.counts, counts)
        torch.testing.assert_close(decoded.mean, counts.float(), rtol=0, atol=1e-6)


def test_the_samples_of_a_slot_depend_neither_on_the_chunk_nor_on_later_slots(monkeypatch):
    received, _, noise_var = draw_round(2 * BLOCK + 40, 5, 3.0)
    sampler, found = Posterior(CODEBOOK, PosteriorSettings(sweeps=4, burn_in=4, agreement=0.0)), []
    for chunk, y in ((3 * BLOCK, received), (BLOCK, received), (BLOCK, received[:300])):
        monkeypatch.setattr("aircomp.decoders.amp.posterior.CHUNK", chunk)
        found.append(sampler.sample(y, POPULARITY, 5, noise_var[: len(y)]))
    monkeypatch.setattr("aircomp.decoders.amp.posterior.MOST_LEVELS", 100 * 2 * 5 * (len(CODEBOOK) + 5))
    once, pieces, fewer, least = *found, sampler.sample(received, POPULARITY, 5, noise_var)
    for field in ("mean", "median", "best", "log_posterior", "disagreement"):
        assert torch.equal(getattr(once, field), getattr(pieces, field)), field
        assert torch.equal(getattr(once, field), getattr(least, field)), field
    assert torch.equal(once.best[:256], fewer.best[:256])
    assert not torch.equal(once.mean[:40], once.mean[BLOCK : BLOCK + 40])


def test_the_seed_decides_the_samples():
    received, _, noise_var = draw_round(20, 5, 0.0)
    a, b, c = (
        Posterior(CODEBOOK, PosteriorSettings(sweeps=5, burn_in=2, seed=seed, agreement=0.0)).sample(
            received, POPULARITY, 5, noise_var
        )
        for seed in (0, 0, 1)
    )
    assert torch.equal(a.mean, b.mean)
    assert not torch.equal(a.mean, c.mean)


def test_agreement_makes_devices_choose_alike():
    received, _, noise_var = draw_round(100, 9, -10.0)
    alone, together = (
        Posterior(CODEBOOK, PosteriorSettings(sweeps=30, burn_in=10, agreement=agreement)).sample(
            received, POPULARITY, 9, noise_var
        )
        for agreement in (0.0, 0.5)
    )
    # noise says little, so the samples look like the prior, and with 0.5 most pairs of devices choose alike
    assert together.best.square().sum() > 2 * alone.best.square().sum()


def test_nobody_and_one_device():
    received, counts, noise_var = draw_round(50, 1, 10.0)
    sampler = Posterior(CODEBOOK, PosteriorSettings(sweeps=20, burn_in=10, agreement=0.0))
    silence = sampler.sample(received, POPULARITY, 0, noise_var)
    assert not silence.mean.any()
    assert not silence.best.any()
    # nothing was sent: all energy is noise
    torch.testing.assert_close(silence.log_posterior, -received.square().sum(1) / (2 * noise_var), rtol=1e-6, atol=0)
    one = sampler.sample(received, POPULARITY, 1, noise_var)
    assert torch.equal(one.median, counts)


def test_a_codeword_of_rate_zero_is_never_sampled():
    received, _, noise_var = draw_round(50, 9, 10.0)
    rate = POPULARITY.clone()
    rate[::2] = 0
    samples = Posterior(CODEBOOK, PosteriorSettings(sweeps=5, burn_in=2, agreement=0.1)).sample(
        received, rate, 9, noise_var
    )
    assert not samples.mean[:, ::2].any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sweeps": 0}, "sweeps = 0: expected 1 to"),
        ({"burn_in": -1}, "burn_in = -1: "),
        ({"chains": 1}, "chains = 1: "),
        ({"agreement": 1.0}, "agreement = 1.0: expected 0 to less than 1"),
    ],
)
@pytest.mark.usefixtures("as_in_production")
def test_bad_options_are_refused_with_one_sentence(options, message):
    with pytest.raises(ConfigError, match=message):
        PosteriorSettings(**options)


def test_bad_arguments_are_refused_with_one_sentence():
    received, _, noise_var = draw_round(3, 2, 10.0)
    for number in (-1, 501):
        with pytest.raises(ConfigError, match=f"num_active is {number}; expected 0 to 500 devices"):
            Posterior(CODEBOOK, PosteriorSettings(agreement=0.0)).sample(received, POPULARITY, number, noise_var)
    with pytest.raises(ShapeError, match="negative or not finite"):
        Posterior(CODEBOOK, PosteriorSettings(agreement=0.0)).sample(received, POPULARITY, 2, -noise_var)


def test_slots_with_rates_of_their_own_are_sampled_as_if_alone():
    rates = torch.stack([POPULARITY, POPULARITY.flip(0), torch.ones_like(POPULARITY)])
    received = torch.randn(3, CODEBOOK.shape[1], generator=generator(0, "slots"))
    noise_var = torch.full((3,), 0.3)
    # a slot's random numbers depend on its place, so each is sampled in its place, with the same rates for all
    together = Posterior(CODEBOOK, PosteriorSettings(sweeps=20, agreement=0.0)).sample(received, rates, 4, noise_var)
    for row in range(3):
        alone = Posterior(CODEBOOK, PosteriorSettings(sweeps=20, agreement=0.0)).sample(
            received, rates[row], 4, noise_var
        )
        assert torch.equal(together.mean[row], alone.mean[row])
        assert torch.equal(together.median[row], alone.median[row])
    assert not torch.equal(
        together.mean[1],
        Posterior(CODEBOOK, PosteriorSettings(sweeps=20, agreement=0.0))
        .sample(received, rates[0], 4, noise_var)
        .mean[1],
    )
