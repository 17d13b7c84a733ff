"""What bits hold and allow, beside enumerations of cases so small that everything can be listed."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aircomp.channel.awgn import noise_variance, superpose
from aircomp.errors import ConfigError, ShapeError
from aircomp.measure import information
from aircomp.measure.information import (
    AccuracyLimit,
    capacity_bits,
    draw_counts,
    entropy_bits,
    exact_limit,
    signal_bits,
    signal_covariance,
)

weights = st.lists(st.integers(0, 9), min_size=2, max_size=4).filter(lambda w: sum(w) > 0)


def listed(shares: torch.Tensor, num_active: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all counts that the devices can make and their probabilities, by going through all their choices."""
    p, found = (shares / shares.sum()).tolist(), {}
    for labels in product(range(len(p)), repeat=num_active):
        counts = tuple(labels.count(j) for j in range(len(p)))
        found[counts] = found.get(counts, 0.0) + math.prod(p[j] for j in labels)
    chances = torch.tensor(list(found.values()), dtype=torch.float64)
    return torch.tensor(list(found)), chances


def bits_of(chances: torch.Tensor) -> float:
    return -torch.xlogy(chances, chances).sum().item() / math.log(2)


def mutual_bits(prior: torch.Tensor, channel: torch.Tensor) -> float:
    """Return I(x; x̂) of a channel [x, x̂]."""
    joint = prior[:, None] * channel
    return bits_of(prior) + bits_of(joint.sum(0)) - bits_of(joint)


def accuracies(truth: torch.Tensor, decoded: torch.Tensor) -> torch.Tensor:
    """Return the metric for every pair of counts."""
    return (1 - (truth[:, None] - decoded).abs().sum(2) / truth.sum(1, keepdim=True)).clamp(min=0).double()


@settings(deadline=None, max_examples=50)
@given(weights, st.integers(0, 4))
def test_entropy_of_counts_is_that_of_all_that_devices_can_choose(parts, num_active):
    shares = torch.tensor(parts, dtype=torch.float64)
    expected = bits_of(listed(shares, num_active)[1])
    assert entropy_bits(shares, num_active) == pytest.approx(expected, abs=1e-9)


@settings(deadline=None, max_examples=100)
@given(weights, st.integers(1, 3), st.integers(0, 1000), st.floats(0, 1))
def test_no_channel_is_exact_more_often_than_its_bits_allow(parts, num_active, seed, noise):
    _, prior = listed(torch.tensor(parts, dtype=torch.float64), num_active)
    prior = prior[prior > 0]
    rng = torch.Generator().manual_seed(seed)
    wrong = torch.rand(len(prior), len(prior), generator=rng, dtype=torch.float64) ** 4 + 1e-9
    channel = (1 - noise) * torch.eye(len(prior), dtype=torch.float64) + noise * wrong / wrong.sum(1, keepdim=True)
    limit = exact_limit(mutual_bits(prior, channel), torch.tensor(parts, dtype=torch.float64), num_active)
    assert float(prior @ channel.diagonal()) <= limit + 1e-9


def test_the_limit_of_exact_slots_is_reached_by_equal_errors():
    outcomes, right = 6, 0.7  # one device: all codewords are as likely
    channel = torch.full((6, 6), (1 - right) / (outcomes - 1), dtype=torch.float64).fill_diagonal_(right)
    bits = mutual_bits(torch.full((6,), 1 / 6, dtype=torch.float64), channel)
    assert exact_limit(bits, torch.ones(6), 1) == pytest.approx(right, abs=1e-9)
    assert exact_limit(10.0, torch.ones(6), 1) == 1.0
    assert exact_limit(0.0, torch.ones(6), 1) == pytest.approx(1 / 6, abs=1e-6)


def test_capacity_is_half_a_bit_a_use_at_zero_decibels():
    assert capacity_bits(0.0, 64) == 32.0
    assert capacity_bits(10.0, 64) == pytest.approx(110.70, abs=0.01)
    assert capacity_bits(math.inf, 64) == math.inf


def test_the_covariance_is_that_of_drawn_signals(rng):
    shares, codebook = torch.tensor([5.0, 3.0, 2.0, 0.0]), torch.randn(4, 3, generator=rng)
    counts = draw_counts(shares, 6, 10_000, rng=rng)
    assert (counts.sum(1) == 6).all()
    assert not counts[:, 3].any()
    drawn = torch.cov((counts.double() @ codebook.double()).T)
    # variances of at most 10 from 10,000 draws have a standard error of 10·√(2/10,000) = 0.14
    torch.testing.assert_close(signal_covariance(codebook, shares, 6), drawn, atol=0.5, rtol=0)


def test_white_signals_without_a_mean_reach_capacity_and_a_mean_costs():
    opposite, shares = torch.cat([torch.eye(4), -torch.eye(4)]), torch.ones(8)
    noise_var = torch.full((1,), 3 / 4 / 2)  # three devices of unit energy over four uses, and 3 dB
    snr_db = 10 * math.log10(2)
    found = signal_bits(signal_covariance(opposite, shares, 3), noise_var)
    assert found == pytest.approx(capacity_bits(snr_db, 4), abs=1e-9)
    codebook = torch.eye(4)
    signal = superpose(draw_counts(torch.ones(4), 3, 1000, rng=torch.Generator()), codebook)
    noise_var = noise_variance(signal, snr_db, "round", num_active=3)
    assert signal_bits(signal_covariance(codebook, torch.ones(4), 3), noise_var) < capacity_bits(snr_db, 4) - 0.5


@pytest.mark.parametrize("reference", ["round", "slot"])
@pytest.mark.parametrize("snr_db", [-10.0, 0.0, 10.0])
def test_no_slot_tells_more_than_its_signal_bits(reference, snr_db):
    shares, codebook = torch.tensor([4.0, 2.0, 1.0]), torch.tensor([[1.0], [-0.8], [0.3]])
    # three devices with seven equal choices, of which four are the first codeword and two the second
    choices = torch.tensor(list(product([0, 0, 0, 0, 1, 1, 2], repeat=3)))
    signal = codebook[choices].sum(1)
    noise_var = noise_variance(signal, snr_db, reference, num_active=3)
    # I(x; y) by a sum over the only use: ten of the largest deviations (9.5) wide, as fine as the smallest (0.06),
    # which is fine enough: sums over a Gaussian curve in steps of its deviation are right to 1e-8
    y, var = torch.linspace(-100, 100, 4001, dtype=torch.float64), noise_var.double()[:, None]
    density = torch.exp(-((y - signal) ** 2) / (2 * var)) / (2 * math.pi * var).sqrt() * (y[1] - y[0])
    told = mutual_bits(torch.full((len(signal),), 1 / len(signal), dtype=torch.float64), density)
    assert 0 < told <= signal_bits(signal_covariance(codebook, shares, 3), noise_var)


def test_without_noise_there_is_no_limit():
    assert signal_bits(torch.eye(3, dtype=torch.float64), torch.zeros(5)) == math.inf
    assert AccuracyLimit.of(torch.ones(4), 3).at(math.inf) == 1.0


@pytest.mark.parametrize("parts", [[1, 1, 1], [6, 3, 1], [1, 1, 1, 1, 1, 1]])
def test_the_best_code_of_any_rate_stays_below_the_limit(parts):
    """Blahut–Arimoto over whole vectors of counts and with the clipped metric: what can be had, point by point."""
    shares = torch.tensor(parts, dtype=torch.float64)
    truth, prior = listed(shares, 3)
    answers = [x for x in product(range(4), repeat=len(parts)) if sum(x) <= 3]
    scores = accuracies(truth, torch.tensor(answers))
    limit, distances = AccuracyLimit.of(shares, 3), []
    for slope in (0.5, 1.0, 2.0, 4.0, 8.0):
        q = torch.full((scores.shape[1],), 1 / scores.shape[1], dtype=torch.float64)
        channel = q.expand_as(scores)
        for _ in range(100):
            channel = q * torch.exp(slope * scores)
            channel = channel / channel.sum(1, keepdim=True)
            q = prior @ channel
        score = (prior[:, None] * channel * scores).sum().item()
        distances.append(limit.at(mutual_bits(prior, channel)) - score)
    assert min(distances) >= 0
    assert limit.at(0.0) < 0.92


@settings(deadline=None, max_examples=25)
@given(weights, st.integers(1, 3), st.integers(0, 2**31), st.floats(0.1, 8.0))
def test_no_decoder_of_any_kind_passes_the_limit(parts, num_active, seed, sharpness):
    shares = torch.tensor(parts, dtype=torch.float64)
    truth, prior = listed(shares, num_active)
    rng = torch.Generator().manual_seed(seed)
    channel = torch.softmax(sharpness * torch.randn(len(truth), len(truth), generator=rng, dtype=torch.float64), dim=1)
    score = (prior[:, None] * channel * accuracies(truth, truth)).sum().item()
    assert score <= AccuracyLimit.of(shares, num_active).at(mutual_bits(prior, channel)) + 1e-9


def test_the_limit_of_one_device_is_that_of_coins():
    """One device and n equal codewords: n coins, whose rate–distortion function is h(1/n) − h(δ) each."""

    def h(q: float) -> float:
        return -q * math.log2(q) - (1 - q) * math.log2(1 - q)

    n, bits = 32, 1.0
    wanted = (math.log2(n) - bits - 1) / n  # n(h(1/n) − h(δ)) = bits + 1 + n·h(1/n) − log2 n
    low, high = 1e-9, 1 / n
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if h(middle) < wanted else (low, middle)
    exact = 1 - n * low
    # tangents lie √2 apart: between two of them the curve is at most a hundredth away
    assert exact - 1e-9 <= AccuracyLimit.of(torch.ones(n), 1).at(bits) <= exact + 0.01


def test_an_unfinished_computation_gives_a_higher_limit_never_a_lower_one(monkeypatch):
    shares = 1 / torch.arange(1.0, 33)
    finished = AccuracyLimit.of(shares, 8).at(10.0)
    monkeypatch.setattr(information, "ROUNDS", 0)
    assert finished < AccuracyLimit.of(shares, 8).at(10.0) < 1


def test_more_bits_allow_more_and_too_few_allow_less_than_everything():
    limit = AccuracyLimit.of(1 / torch.arange(1.0, 129), 10)
    values = [limit.at(bits) for bits in (0.0, 10.0, 20.0, 30.0, 60.0)]
    assert values == sorted(values)
    assert values[0] < 0.5 < values[2] < 0.9 < values[4] == 1.0


@pytest.mark.parametrize("shares", [torch.zeros(3), torch.tensor([0.5, -0.1]), torch.tensor([math.nan, 1.0])])
def test_shares_that_are_none_are_refused(shares):
    with pytest.raises(ConfigError, match="shares"):
        entropy_bits(shares, 3)


def test_bad_shapes_and_too_many_devices_are_refused(as_in_production):
    with pytest.raises(ShapeError, match="codewords"):
        entropy_bits(torch.ones(2, 2), 3)
    with pytest.raises(ShapeError, match="one row for each share"):
        signal_covariance(torch.eye(3), torch.ones(4), 3)
    with pytest.raises(ConfigError, match="1 to 128"):
        AccuracyLimit.of(torch.ones(3), 1000)
