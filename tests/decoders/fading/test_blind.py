"""Multisource AMP: equal to its plain version, as accurate as measured before, blind to phases."""

from dataclasses import replace

import pytest
import torch

from aircomp.common.radio import GainModel
from aircomp.decoders.fading import blind
from aircomp.decoders.fading import receiver as receiver_module
from aircomp.decoders.fading.blind import Blind
from aircomp.decoders.fading.count_weights import CountTable
from aircomp.decoders.fading.multisource import Schedule, multisource_amp
from aircomp.decoders.fading.receiver import Reception
from aircomp.decoders.settings import BlindSettings
from helpers.draws import accuracy, seeded
from helpers.radio import DEVICES, POPULARITY, hear, normal, qpsk
from plain.multisource_amp import multisource_amp as plain

INDEPENDENT = BlindSettings(agreement=0.0)
"""Devices of these rounds choose independently."""


def blind_round(antennas, snr_db, slots=200, seed=0, power=None):
    rng = seeded(seed)
    codebook = qpsk(rng)
    gains = normal(antennas, DEVICES, slots, rng=rng)
    if power is not None:
        gains = gains * power(rng, slots)
    return codebook, *hear(gains, codebook, snr_db, rng=rng)


def test_it_is_the_plain_version():
    codebook, received, *_ = blind_round(4, 5.0, slots=3)
    rate, table = DEVICES * POPULARITY[None], CountTable.of(8)
    Y, prior, power = received.transpose(0, 1)[:, None], table.log_prior(rate, 0.0)[:, None], table.power[None, :, None]
    options = {"iterations": 4, "damping": 0.3}
    found = multisource_amp(Y, codebook, prior, table.counts, power, Schedule.plain(**options))
    expected = plain(Y, codebook, prior[0], table.counts, power, **options)
    torch.testing.assert_close(found.mean[:, 0].double(), expected, atol=1e-3, rtol=1e-3)  # float32, four iterations


def test_message_passing_in_silence_finds_nothing():
    table = CountTable.of(8)
    prior = table.log_prior(DEVICES * POPULARITY[None], 0.0)[:, None]
    Y, schedule = torch.zeros(2, 1, 4, 32, dtype=torch.complex64), Schedule.plain(4, 0.3)
    found = multisource_amp(Y, qpsk(seeded(0)), prior, table.counts, table.power[None, :, None], schedule)
    assert float(found.mean.abs().max()) < 1e-6
    assert not found.vectors.abs().any()


@pytest.mark.parametrize(
    ("antennas", "snr_db", "expected"),
    [
        *((1, 0, 0.13), (1, 5, 0.34), (1, 10, 0.60)),
        *((4, 0, 0.49), (4, 5, 0.84), (4, 10, 0.88)),
        *((8, 0, 0.76), (8, 5, 0.92), (8, 10, 0.93)),
        *((64, 0, 0.99), (64, 5, 0.99), (64, 10, 0.99)),
    ],
)
def test_it_counts_as_well_as_measured_before(antennas, snr_db, expected):
    codebook, received, counts, noise_var, _ = blind_round(antennas, snr_db, slots={64: 60}.get(antennas, 200))
    seen = Reception(received, POPULARITY, num_active=10.0, noise_var=noise_var)
    found = accuracy(Blind(codebook, INDEPENDENT).receive(seen)[0].counts, counts)
    assert found > expected - 0.045  # .03, and a standard error of .015 at most with 200 slots


@pytest.mark.parametrize("snr_db", [0, 10])
def test_it_estimates_noise_and_devices_as_well_as_it_is_told(snr_db):
    codebook, received, counts, noise_var, _ = blind_round(8, snr_db)
    receiver = Blind(codebook, INDEPENDENT)
    found = receiver.receive(Reception(received, POPULARITY))[0]
    assert found.num_active_hat == pytest.approx(
        10, abs=0.5
    )  # the power of 2,000 gains on 8 antennas: .08, and the noise
    assert float(found.noise_var[0]) == pytest.approx(noise_var, rel=0.04)
    told = receiver.receive(Reception(received, POPULARITY, num_active=10.0, noise_var=noise_var))[0]
    assert accuracy(found.counts, counts) > accuracy(told.counts, counts) - 0.02


def test_phases_of_devices_do_not_matter():
    rng = seeded(1)
    codebook, gains = qpsk(rng), normal(8, DEVICES, 200, rng=rng)
    turned = gains * torch.polar(torch.ones(DEVICES, 1), 6.28 * torch.rand(DEVICES, 1, generator=rng))
    found = []
    for values in (gains, turned):
        received, counts, *_ = hear(values, codebook, 5.0, rng=seeded(2))
        found.append(
            accuracy(Blind(codebook).receive(Reception(received, POPULARITY, num_active=10.0))[0].counts, counts)
        )
    assert abs(found[0] - found[1]) < 0.02  # overlapping codewords add up differently; the accuracy is the same
    assert found[0] > 0.89


def test_one_phase_for_all_changes_nothing_at_all():
    codebook, received, *_ = blind_round(8, 5.0, slots=40)
    receiver = Blind(codebook)
    once = receiver.receive(Reception(received, POPULARITY))[0]
    turned = receiver.receive(Reception(received * torch.exp(torch.tensor(2j)), POPULARITY))[0]
    assert torch.equal(once.counts, turned.counts)


def test_the_size_of_chunks_changes_nothing(monkeypatch):
    codebook, received, *_ = blind_round(4, 5.0, slots=70)
    whole = Blind(codebook).receive(Reception(received, POPULARITY))[0]
    monkeypatch.setattr(blind, "CHUNK", 16)
    monkeypatch.setattr(receiver_module, "CHUNK", 16)
    pieces = Blind(codebook).receive(Reception(received, POPULARITY))[0]
    assert torch.equal(whole.counts, pieces.counts)
    torch.testing.assert_close(whole.mean, pieces.mean, atol=1e-4, rtol=1e-4)


def test_knowing_that_power_is_missed_helps():
    def power(rng, slots):
        q = 0.2303 * 3
        return torch.exp(torch.randn(DEVICES, slots, generator=rng) * q / 2 - q**2 / 4)

    codebook, received, counts, noise_var, _ = blind_round(8, 10.0, slots=300, power=power)
    seen = Reception(received, POPULARITY, num_active=10.0, noise_var=noise_var)
    receiver = Blind(codebook, INDEPENDENT)
    model = GainModel.unknown_phase(power_var=0.611)
    naive, told = (receiver.receive(replace(seen, gain_model=m))[0] for m in (seen.gain_model, model))
    assert accuracy(told.counts, counts) > accuracy(naive.counts, counts) + 0.015
    assert accuracy(told.counts, counts) > 0.87 - 0.03


def test_side_information_helps():
    rng = seeded(3)
    codebook = qpsk(rng)
    halves = [hear(normal(4, DEVICES, 200, rng=rng), book, 0.0, rng=rng) for book in (codebook, codebook.flip(0))]
    received = torch.cat([half[0] for half in halves], 1)
    counts = torch.cat([halves[0][1], halves[1][1].flip(1)])
    popularity, layers = (POPULARITY + POPULARITY.flip(0)) / 2, torch.arange(400) // 200
    alone, told = (
        Blind(codebook).receive(Reception(received, popularity, slot_layers=groups))[0] for groups in (None, layers)
    )
    assert accuracy(told.counts, counts) > accuracy(alone.counts, counts) + 0.05
