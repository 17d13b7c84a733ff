"""Codewords that lean towards what they stand for: energies, directions, and what the network may change."""

import pytest
import torch

from aircomp.encode.codebook import make_codebook, random_rotation
from aircomp.encode.energy import codeword_energies
from aircomp.encode.joint_code import JointCode, mean_one
from aircomp.encode.settings import JointCodeSettings
from helpers.draws import seeded

NUM, USES, LENGTH = 32, 16, 5


@pytest.fixture
def link():
    """Return what codewords stand for, their popularity, the directions to lean from, and where to."""
    rng = seeded(0)
    words = torch.randn(NUM, LENGTH, generator=rng) * torch.logspace(-2, 0, NUM)[:, None]
    popularity = torch.rand(NUM, generator=rng)
    return (
        words,
        popularity,
        make_codebook("two-bases", NUM, USES, rng=rng),
        random_rotation(USES, rng)[:LENGTH].float(),
    )


@pytest.fixture
def trained():
    code = JointCode(JointCodeSettings(width=6), seeded(1))
    with torch.no_grad():
        code.network[-1].weight += torch.randn(2, 6, generator=seeded(2))
    return code.requires_grad_(False)


def shape(code, link, snr_db, peak=36.0, devices=10):
    words, popularity, base, spread = link
    return code(words, popularity, devices / USES * 10 ** (-snr_db / 10), devices, peak, base, spread)


@pytest.mark.parametrize("snr_db", [-40.0, -10.0, 5.0, 40.0])
@pytest.mark.parametrize("peak", [1.0, 3.0, 36.0])
def test_energies_have_mean_one_below_the_peak_and_directions_length_one(trained, link, snr_db, peak):
    found = shape(trained, link, snr_db, peak)
    shares = link[1].double() / link[1].double().sum()
    assert float(shares @ found.energies) == pytest.approx(1, rel=1e-9)
    assert float(found.energies.max()) <= peak * (1 + 1e-9)
    assert float(found.energies.min()) > 0
    torch.testing.assert_close(found.directions.norm(dim=1), torch.ones(NUM), atol=1e-6, rtol=0)


def test_in_little_noise_a_trained_code_is_that_of_matched_energies(trained, link):
    found = shape(trained, link, 10.0)
    assert not found.leaning
    torch.testing.assert_close(found.directions, link[2], atol=1e-6, rtol=0)
    expected = codeword_energies(link[0], link[1], 10 / USES * 0.1, 36.0)
    torch.testing.assert_close(found.energies, expected, atol=0, rtol=1e-9)


def test_untrained_it_keeps_matched_energies_and_leans_more_in_more_noise(link):
    code = JointCode(JointCodeSettings(), seeded(0)).requires_grad_(False)
    towards = torch.nn.functional.normalize(link[0], dim=1) @ link[3]
    alike = {snr: float((shape(code, link, snr).directions * towards).sum(1).mean()) for snr in (-10.0, 0.0, 8.0)}
    assert alike[-10.0] > alike[0.0] + 0.1 > alike[8.0] + 0.2
    found = shape(code, link, -10.0)
    torch.testing.assert_close(
        found.energies, codeword_energies(link[0], link[1], 10 / USES * 10, 36.0), rtol=1e-9, atol=0
    )


def test_codewords_in_another_order_are_the_same_codewords(trained, link):
    words, popularity, base, spread = link
    order = torch.randperm(NUM, generator=seeded(3))
    found = shape(trained, link, -5.0)
    turned = shape(trained, (words[order], popularity[order], base[order], spread), -5.0)
    torch.testing.assert_close(turned.energies, found.energies[order])
    torch.testing.assert_close(turned.directions, found.directions[order])


def test_the_unit_of_updates_changes_nothing(trained, link):
    words, *others = link
    found, scaled = shape(trained, link, -5.0), shape(trained, (1e-12 * words, *others), -5.0)
    torch.testing.assert_close(scaled.energies, found.energies, rtol=1e-4, atol=0)
    torch.testing.assert_close(scaled.directions, found.directions, rtol=0, atol=1e-4)


@pytest.mark.parametrize("row", [0.0, 1.0])
def test_words_that_are_zero_or_all_alike_have_finite_codewords(trained, link, row):
    _, *others = link
    found = shape(trained, (torch.full((NUM, LENGTH), row), *others), -5.0)
    assert torch.isfinite(found.energies).all()
    torch.testing.assert_close(found.directions.norm(dim=1), torch.ones(NUM), atol=1e-6, rtol=0)


def test_gradients_know_that_energies_compete():
    energies = torch.tensor([0.5, 1.0, 2.0, 80.0], dtype=torch.float64, requires_grad=True)
    shares = torch.tensor([0.4, 0.3, 0.29, 0.01], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda e: mean_one(e, shares, 36.0), energies)
