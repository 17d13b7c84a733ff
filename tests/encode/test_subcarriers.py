"""Subcarriers: water-filling, who has which, and peaks in time."""

import math

import pytest
import torch

from aircomp.encode.subcarriers import crest, fill, share_slots


def test_water_stands_at_one_level_and_covers_what_lies_below(rng):
    snr = torch.rand(5, 40, generator=rng).double() * 3
    snr[:, :7] = 0
    energies = fill(snr, 10.0)
    torch.testing.assert_close(energies.sum(dim=1), torch.full((5,), 10.0, dtype=torch.float64))
    level = (energies + 1 / snr).masked_fill(energies == 0, 0).amax(dim=1, keepdim=True)
    wet = energies > 0
    torch.testing.assert_close((energies + 1 / snr)[wet], level.expand_as(snr)[wet])
    assert (1 / snr >= level - 1e-9)[~wet].all()


def test_two_slots_share_energy_as_the_closed_form_says():
    """SNR 1 and ¼ with energy 5: the level is (5 + 1 + 4)/2 = 5, so 4 and 1; with energy 2 all of it goes to the first."""
    torch.testing.assert_close(fill(torch.tensor([[1.0, 0.25]]), 5.0), torch.tensor([[4.0, 1.0]]).double())
    torch.testing.assert_close(fill(torch.tensor([[1.0, 0.25]]), 2.0), torch.tensor([[2.0, 0.0]]).double())
    assert not fill(torch.zeros(2, 3), 5.0).any()


def test_every_device_has_its_share_of_slots_and_is_louder_there_than_on_average(rng):
    snr = torch.empty(4, 100).exponential_(generator=rng)
    owner = share_slots(snr)
    assert torch.bincount(owner).tolist() == [25] * 4
    own = snr.gather(0, owner[None])
    assert float(own.mean()) > 1.5 * float(snr.mean())  # the largest of four exponential numbers: 2.08
    assert share_slots(torch.ones(3, 7)).tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_peaks_of_many_carriers_follow_the_closed_form(rng):
    """1 − (1 − e^{−z})^N: 7.7 dB in the middle and 10.1 dB at 99 % for 256 carriers."""
    peaks = crest(torch.arange(256), 256, 4000, rng)
    for share, expected_db in ((0.5, 7.7), (0.99, 10.1)):
        z = -math.log(1 - share ** (1 / 256))
        assert 10 * math.log10(z) == pytest.approx(expected_db, abs=0.06)
        assert float((peaks <= z).double().mean()) == pytest.approx(share, abs=0.04)  # samples are nearly Gaussian
    assert float(crest(torch.tensor([3]), 256, 10, rng).amax()) == pytest.approx(1, rel=1e-4)
