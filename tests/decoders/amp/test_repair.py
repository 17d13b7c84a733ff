"""Slots that message passing left wrong are searched once more."""

import pytest
import torch

from aircomp.decoders.amp.gamp import Gamp
from aircomp.decoders.amp.repair import repair
from aircomp.encode.codebook import count, make_codebook

SLOTS, DEVICES, WORDS, USES = 300, 8, 32, 16


def heard(noise_var=0.0, energies=None, seed=0):
    rng = torch.Generator().manual_seed(seed)
    codebook = make_codebook("low-coherence-real", WORDS, USES, rng=rng)
    if energies is not None:
        codebook = codebook * energies.sqrt()[:, None]
    counts = count(torch.randint(0, WORDS, (DEVICES, SLOTS), generator=rng), WORDS)
    noise = noise_var**0.5 * torch.randn(SLOTS, USES, generator=rng)
    return codebook, counts, counts.to(codebook) @ codebook + noise


def repaired(codebook, counts, received, noise_var=0.0, mean=None, num_active=DEVICES):
    mean = torch.full((SLOTS, WORDS), DEVICES / WORDS) if mean is None else mean
    rate, noise = torch.full((1, WORDS), DEVICES / WORDS), torch.full((SLOTS,), noise_var)
    return repair(received, codebook, mean, noise, rate, num_active)


def spoilt(counts, share=0.1):
    """Counts of which some slots are another slot's."""
    wrong = counts.to(torch.float32)
    number = int(share * len(counts))
    wrong[:number] = wrong[:number].roll(1, 0)
    return wrong


@pytest.mark.parametrize("noise_var", [0.0, 1e-4, 0.005])
def test_wrong_slots_become_right(noise_var):
    codebook, counts, received = heard(noise_var)
    found = repaired(codebook, counts, received, noise_var, spoilt(counts))
    assert (found.round() == counts).all(dim=1).double().mean() > 0.99


def test_wrong_slots_become_right_with_unequal_energies():
    codebook, counts, received = heard(energies=torch.linspace(0.2, 1.8, WORDS))
    assert torch.equal(repaired(codebook, counts, received, mean=spoilt(counts)), counts.float())


@pytest.mark.parametrize("off", [-1, 1])
def test_slots_that_fit_stay_and_wrong_ones_become_right_though_the_number_is_off_by_one(off):
    codebook, counts, received = heard()
    found = repaired(codebook, counts, received, mean=spoilt(counts), num_active=DEVICES + off)
    searched = (found != spoilt(counts)).any(dim=1)
    assert (found == counts).all(dim=1).double().mean() > 0.8
    assert searched.any()


def test_slots_that_fit_keep_their_soft_counts():
    codebook, counts, received = heard(0.1)
    mean = (counts + 0.1).clamp(min=0.0)
    assert torch.equal(repaired(codebook, counts, received, 0.2, mean), mean)


def test_nobody_and_no_slots_need_no_repair():
    codebook, counts, received = heard()
    mean = torch.zeros(SLOTS, WORDS)
    assert torch.equal(repaired(codebook, counts, received, mean=mean, num_active=0.0), mean)
    empty = repair(received[:0], codebook, mean[:0], torch.zeros(0), torch.ones(1, WORDS), 3.0)
    assert empty.shape == (0, WORDS)


@pytest.mark.seconds
def test_gamp_decodes_short_codewords_exactly_without_noise():
    codebook, counts, received = heard(seed=1)
    found = Gamp(codebook).decode(received, torch.ones(WORDS), num_active=DEVICES, noise_var=0.0)
    assert torch.equal(found.counts, counts)


def test_two_bases_of_16_uses_make_the_same_sum_of_different_codewords():
    """Why short codewords are others: four of one basis are four of the other."""
    codebook = make_codebook("two-bases", 32, 16, rng=torch.Generator().manual_seed(0)).double()
    second = torch.tensor([16, 17, 18, 19])  # rows of a Hadamard matrix that form a group
    counts = torch.linalg.lstsq(codebook[:16].T, codebook[second].sum(0)).solution
    torch.testing.assert_close(counts, counts.round(), atol=1e-5, rtol=0)
    assert counts.sum().round() == 4
    assert counts.min() > -1e-5


def test_thousands_of_devices_are_not_searched(monkeypatch):
    """As one huge slot among ordinary ones makes them: every sweep would draw thousands of labels."""
    codebook, counts, received = heard()
    monkeypatch.setattr("aircomp.decoders.amp.repair._search", None)  # would be called
    mean = spoilt(counts)
    assert repaired(codebook, counts, received, mean=mean, num_active=5000) is mean
    with pytest.raises(TypeError):
        repaired(codebook, counts, received, mean=mean)
