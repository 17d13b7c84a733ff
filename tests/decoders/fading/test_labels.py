"""Labels of devices with known channels, and channels that are learnt: against enumeration, and as measured before."""

import itertools

import pytest
import torch

from aircomp.decoders.fading import labels, semi_blind
from aircomp.decoders.fading.labels import Sampler, least_squares, log_shares
from aircomp.decoders.fading.receiver import Reception
from aircomp.decoders.fading.semi_blind import SemiBlind, cluster, strongest
from aircomp.decoders.rounding import round_to_sum
from aircomp.decoders.settings import SemiBlindSettings
from helpers.draws import accuracy, seeded
from helpers.radio import DEVICES, POPULARITY, hear, normal, qpsk


def block(antennas, snr_db, slots, seed=0):
    """Draw a block: gains that stay for all slots."""
    rng = seeded(seed)
    codebook = qpsk(rng)
    channels = normal(DEVICES, antennas, rng=rng)
    received, counts, noise_var, indices = hear(channels.T[:, :, None].expand(-1, -1, slots), codebook, snr_db, rng=rng)
    return codebook, channels, received, counts, noise_var, indices


def count_with(channels, received, codebook, noise_var):
    """Count with known channels."""
    sampler = Sampler(received.transpose(0, 1), codebook, log_shares(POPULARITY), noise_var, seeded())
    return round_to_sum(sampler.expected_counts(sampler.find(channels), channels), len(channels))


def test_expected_counts_are_those_of_enumeration():
    rng = seeded(1)
    codebook = torch.nn.functional.normalize(normal(4, 3, rng=rng), dim=1)
    channels, shares = normal(2, 2, rng=rng), torch.tensor([0.4, 0.3, 0.2, 0.1])
    received, noise_var = normal(1, 2, 3, rng=rng), 0.4
    pairs = list(itertools.product(range(4), repeat=2))
    weights = []
    for i, j in pairs:
        left = received[0] - channels[0][:, None] * codebook[i] - channels[1][:, None] * codebook[j]
        weights.append(shares[i] * shares[j] * torch.exp(-left.abs().square().sum() / noise_var))
    expected = torch.zeros(4)
    for (i, j), weight in zip(pairs, weights, strict=True):
        expected[i] += weight / sum(weights)
        expected[j] += weight / sum(weights)
    many = received.expand(4000, -1, -1)  # chains side by side
    sampler = Sampler(many, codebook, log_shares(shares), noise_var, seeded(2))
    labels = sampler.anneal(sampler.start(channels), channels, heat=8.0)
    found = sampler.expected_counts(sampler.sweep(labels, channels, 1.0), channels).mean(0)
    torch.testing.assert_close(found, expected, atol=0.03, rtol=0)  # 16,000 dependent draws: about .01


@pytest.mark.parametrize(
    ("antennas", "snr_db", "expected"),
    [*((1, 0, 0.16), (1, 10, 0.5)), *((4, 0, 0.8), (4, 10, 0.97)), *((8, 0, 0.93), (8, 10, 0.99))],
)
def test_known_channels_are_counted_as_well_as_measured_before(antennas, snr_db, expected):
    found = []
    for seed in range(8):
        codebook, channels, received, counts, noise_var, _ = block(antennas, snr_db, 24, seed)
        found.append(accuracy(count_with(channels, received, codebook, noise_var), counts))
    assert sum(found) / 8 > expected


def test_in_much_noise_more_sweeps_are_averaged_and_tell_more(monkeypatch):
    more = []
    for seed in range(4):
        codebook, channels, received, counts, noise_var, _ = block(4, 0, 64, seed)
        found = []
        for sweeps in (labels.NOISY_SWEEPS, labels.SWEEPS):
            with monkeypatch.context() as patched:
                patched.setattr(labels, "NOISY_SWEEPS", sweeps)
                found.append(accuracy(count_with(channels, received, codebook, noise_var), counts))
        more.append(found[0] - found[1])
    assert sum(more) / 4 > 0.005


def test_least_squares_finds_the_channels_of_true_labels():
    codebook, channels, received, _, _, indices = block(8, 100.0, 64)
    found = least_squares(received.transpose(0, 1), codebook, indices.T)
    torch.testing.assert_close(found, channels, atol=1e-3, rtol=1e-3)


def test_the_strongest_channel_of_a_residual_is_that_of_its_device():
    rng = seeded(3)
    codebook, channel = qpsk(rng), normal(1, 8, rng=rng)
    residual, *_ = hear(channel.T[:, :, None].expand(-1, -1, 64), codebook, 20.0, rng=rng)
    torch.testing.assert_close(strongest(residual.transpose(0, 1), codebook), channel[0], atol=0.1, rtol=0)


def test_clusters_are_the_channels():
    rng = seeded(4)
    channels = normal(10, 8, rng=rng)
    samples = channels.repeat(30, 1) + 0.2 * normal(300, 8, rng=rng)
    found = cluster(samples, 10, rng=rng)
    nearest = (channels[:, None] - found).abs().square().sum(2).amin(1)
    assert float(nearest.max()) < 0.1


@pytest.mark.seconds
@pytest.mark.parametrize(("antennas", "snr_db", "expected"), [(8, 0, 0.97), (8, 10, 0.97), (4, 5, 0.93)])
def test_learnt_channels_are_counted_as_well_as_measured_before(antennas, snr_db, expected):
    codebook, _, received, counts, noise_var, _ = block(antennas, snr_db, 128, seed=1)
    told = {} if antennas == 8 else {"num_active": 10.0, "noise_var": noise_var}
    found = SemiBlind(codebook).receive(Reception(received, POPULARITY, **told))[0]
    assert found.num_active == 10
    assert accuracy(found.counts, counts) > expected


def test_a_start_that_leaves_much_unexplained_is_tried_anew(monkeypatch):
    codebook, _, received, counts, *_ = block(8, 5.0, 40, seed=2)
    right, starts = semi_blind.cluster, []

    def wrong_at_first(vectors, number, *, rng):
        starts.append(right(vectors, number, rng=rng))
        return starts[-1] if len(starts) > 1 else starts[-1][:1].expand(number, -1).clone()

    monkeypatch.setattr(semi_blind, "cluster", wrong_at_first)
    receiver = SemiBlind(codebook, SemiBlindSettings(repairs=0))
    found = receiver.receive(Reception(received, POPULARITY, num_active=10.0))[0]
    assert len(starts) > 1
    assert accuracy(found.counts, counts) > 0.97


def test_equal_receptions_give_equal_counts():
    codebook, _, received, *_ = block(8, 5.0, 40)
    once, again = (SemiBlind(codebook).receive(Reception(received, POPULARITY))[0] for _ in range(2))
    assert torch.equal(once.mean, again.mean)
