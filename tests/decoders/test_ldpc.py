"""Belief propagation of sums: equal to the plain one, and its error rates against the computation rate and repetition."""

import math

import pytest
import torch
from scipy import special

from aircomp.decoders import ldpc
from aircomp.decoders.digit_sums import sum_prior
from aircomp.decoders.lattice_sums import residues, uncertainty
from aircomp.encode.ldpc import GRAPHS, LENGTH, make_code
from helpers.lattice import decoded, sent_words
from plain import ldpc as plain

DEVICES = 10


def computation_rate_db(bits, devices):
    """The SNR of one device at which ½ log2(1/K + SNR) is so many bits (Nazer and Gastpar 2011)."""
    return 10 * math.log10(2 ** (2 * bits) - 1 / devices)


def test_belief_propagation_is_that_of_plain_sums(rng):
    code = make_code(5, GRAPHS[2])
    channel = torch.softmax(2 * torch.randn(3, LENGTH, 5, generator=rng), dim=2)
    _, right, beliefs = ldpc.decode(channel, code, iterations=2)
    assert not right.any()
    # float32 transforms, and messages of at least 1e-9
    torch.testing.assert_close(beliefs[1].double(), plain.decode(channel[1], code, 2), rtol=1e-3, atol=1e-5)


def test_residues_are_those_of_all_sums_one_by_one(rng):
    prior, prime, noise_var = sum_prior(torch.ones(5), 4), 5, 0.7
    heard = 16 * torch.rand(20, generator=rng)
    expected = torch.zeros(20, prime, dtype=torch.float64)
    for i, y in enumerate(heard.tolist()):
        for s, likely in enumerate(prior.tolist()):
            expected[i, s % prime] += likely * math.exp(-((y - s) ** 2) / (2 * noise_var))
    expected = expected / expected.sum(dim=1, keepdim=True)
    torch.testing.assert_close(residues(heard, noise_var, prior, prime).double(), expected, rtol=1e-4, atol=1e-6)


def test_what_noise_leaves_open_is_what_a_simulation_finds(rng):
    prior, noise_var = sum_prior(torch.tensor([0.3, 0.7]), 6), 0.4
    sums = torch.multinomial(prior, 40_000, replacement=True, generator=rng)
    heard = sums.float() + noise_var**0.5 * torch.randn(40_000, generator=rng)
    told = residues(heard, noise_var, prior, 7)
    entropy, variance = uncertainty(noise_var, prior, 7)
    # 40,000 terms: half a percent of standard deviation
    assert entropy == pytest.approx(float(torch.special.entr(told).sum(dim=1).mean()) / math.log(7), rel=0.02)
    mean = told @ torch.arange(7.0)
    assert variance == pytest.approx(float((sums - mean).square().mean()), rel=0.03)


@pytest.mark.seconds
@pytest.mark.parametrize(("graph", "prime"), [(0, 17), (1, 17), (4, 17)])
def test_words_are_lost_between_two_and_three_and_a_half_decibels_from_the_computation_rate(graph, prime):
    """The frame error rate falls from most words to one in fifty: 1.53 dB of the distance are the shape of the points."""
    code = make_code(prime, GRAPHS[graph])
    limit = computation_rate_db(code.graph.information / LENGTH * math.log2(prime), DEVICES)
    sent = sent_words(code, DEVICES, 48)
    lost = {}
    for apart in (1.0, 3.4):
        words, truth = decoded(code, sent, limit + apart)
        lost[apart] = float((words != truth).any(dim=1).double().mean())
    assert lost[1.0] > 0.9
    assert lost[3.4] <= 0.07  # of 48 words; .01 expected


@pytest.mark.seconds
def test_the_code_needs_three_decibels_less_than_repetition_of_its_lattice():
    """Two uses a symbol in both: nearest points of a repeated lattice err with 2Q(½ √2/σ), 1e-3 at 27 dB."""
    code = make_code(17, GRAPHS[1])
    energy = (code.prime**2 - 1) / 12
    deviation = math.sqrt(2) / 2 / (math.sqrt(2) * float(special.erfcinv(1e-3)))
    repeated_db = 10 * math.log10(energy / deviation**2)
    words, truth = decoded(code, sent_words(code, DEVICES, 64), repeated_db - 10)
    # 23,040 symbols of 64 words: fewer than 24 errors are 1e-3; none expected, a lost word has dozens
    assert int((words != truth).sum()) < 24
