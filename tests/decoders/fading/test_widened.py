"""GAMP with a widened likelihood: equal to its plain version, GAMP without spread, as accurate as measured before."""

import math
from dataclasses import replace

import pytest
import torch

from aircomp.channel.fading import Fading
from aircomp.channel.settings import ChannelSettings, PowerSettings
from aircomp.common.packing import unpack
from aircomp.common.radio import GainModel
from aircomp.decoders.amp.steps import PreparedCodebook, iterate
from aircomp.decoders.fading import widened as module
from aircomp.decoders.fading.count_weights import CountTable
from aircomp.decoders.fading.receiver import Reception
from aircomp.decoders.fading.widened import Widened, widened_gamp
from aircomp.decoders.rounding import round_to_sum
from aircomp.decoders.settings import WidenedSettings
from aircomp.encode.codebook import count
from aircomp.errors import ConfigError
from helpers.draws import accuracy, draw_indices, seeded
from helpers.radio import DEVICES, POPULARITY, hear, normal, qpsk
from plain.widened import widened as plain

INDEPENDENT = WidenedSettings(agreement=0.0)
"""Devices of these rounds choose independently."""
RATE = DEVICES * POPULARITY[None]


def of_phase(degrees):
    s2 = math.radians(degrees) ** 2
    mean = math.exp(-s2 / 2)
    return GainModel(mean, (1 + math.exp(-2 * s2)) / 2 - mean**2, (1 - math.exp(-2 * s2)) / 2)


def turned(degrees, slots, rng):
    angle = math.radians(degrees) * torch.randn(1, DEVICES, slots, generator=rng)
    return torch.polar(torch.ones_like(angle), angle)


def run(received, codebook, noise_var, model, iterations, max_count=12):
    receiver, table = Widened(codebook), CountTable.of(max_count)
    y, prior = unpack(received[0], 64), table.log_prior(RATE, 0.0)
    return widened_gamp(y, receiver.rows, noise_var / 2, prior, RATE, table, model, iterations=iterations)


def test_it_is_the_plain_version():
    rng = seeded(1)
    codebook, model = qpsk(rng), of_phase(30)
    received, _, noise_var, _ = hear(turned(30, 3, rng), codebook, 5.0, rng=rng)
    found = run(received, codebook, noise_var, model, 4, max_count=8)
    parts = {"mean": model.mean, "var_real": model.var_real, "var_imag": model.var_imag}
    expected = plain(received[0], codebook, noise_var, RATE[0], **parts, iterations=4, max_count=8)
    torch.testing.assert_close(found.mean.double(), expected, atol=1e-3, rtol=1e-3)  # float32 through four iterations


def test_without_spread_it_is_gamp():
    rng = seeded(2)
    codebook = qpsk(rng)
    received, _, noise_var, _ = hear(turned(0, 50, rng), codebook, 5.0, rng=rng)
    found = run(received, codebook, noise_var, GainModel(), 5, max_count=16)
    book, noise = PreparedCodebook.of(unpack(codebook, 64)), torch.full((50, 1), noise_var / 2)
    expected = iterate(unpack(received[0], 64), book, noise, RATE, iterations=5, reach=16).x_hat
    torch.testing.assert_close(found.mean, expected, atol=2e-3, rtol=1e-3)  # float32 through five iterations


@pytest.mark.parametrize(
    ("degrees", "snr_db", "expected"),
    [
        *((0, 0, 0.47), (0, 5, 0.91)),
        *((10, 0, 0.44), (10, 5, 0.87)),
        *((30, 0, 0.37), (30, 5, 0.75), (30, 10, 0.98)),
    ],
)
def test_it_counts_as_well_behind_a_phase_error_as_measured_before(degrees, snr_db, expected):
    rng = seeded(degrees)
    codebook = qpsk(rng)
    received, counts, _, _ = hear(turned(degrees, 200, rng), codebook, float(snr_db), rng=rng)
    seen = Reception(received, POPULARITY, gain_model=of_phase(degrees))  # neither noise nor devices are told
    found = Widened(codebook, INDEPENDENT).receive(seen)[0]
    assert accuracy(found.counts, counts) > expected - 0.03  # 200 slots: a standard error of .015 at most


def test_the_wide_likelihood_is_what_withstands_the_phase():
    rng = seeded(5)
    codebook = qpsk(rng)
    received, counts, noise_var, _ = hear(turned(30, 150, rng), codebook, 10.0, rng=rng)
    naive, wide = (
        Widened(codebook, INDEPENDENT).receive(
            Reception(received, POPULARITY, num_active=10.0, noise_var=noise_var, gain_model=model)
        )[0]
        for model in (GainModel(), of_phase(30))
    )
    assert accuracy(wide.counts, counts) > accuracy(naive.counts, counts) + 0.3


@pytest.mark.parametrize(
    ("control", "rho", "snr_db", "expected"),
    [
        *(("inversion", 1.0, 0, 0.29), ("inversion", 1.0, 5, 0.68)),
        *(("inversion", 0.95, 0, 0.26), ("inversion", 0.95, 10, 0.85)),
        *(("phase", 1.0, 0, 0.33), ("phase", 1.0, 10, 0.75)),
    ],
)
def test_it_counts_as_well_behind_power_control_as_measured_before(control, rho, snr_db, expected):
    slots, rng = 300, seeded(7)
    settings = ChannelSettings(kind="fading", block_slots=1, errors={"csi_correlation": rho})
    channel, codebook = Fading(settings, PowerSettings(control=control)), qpsk(rng)
    csi = channel.sound(DEVICES, 64 * slots, rng=rng)
    gains = (csi.with_power.values / csi.level[:, None]).permute(2, 0, 1)
    received, counts, noise_var, _ = hear(gains, codebook, float(snr_db), rng=rng, level=float(csi.level[0]))
    # every slot is a block of its own here; its number of senders is known, as in the measurements
    steady = replace(channel.gain_model, silence=False)
    seen = Reception(received, POPULARITY, num_active=10.0, noise_var=noise_var, gain_model=steady)
    mean = Widened(codebook, INDEPENDENT).receive(seen)[0].mean
    rounded = torch.cat([round_to_sum(mean[i : i + 1], int(counts[i].sum())) for i in range(slots)])
    assert accuracy(rounded, counts) > expected - 0.035  # 300 slots: a standard error of .012


@pytest.mark.parametrize(("snr_db", "expected"), [(5, 0.70), (10, 0.97)])
def test_it_counts_late_devices_as_well_as_measured_before(snr_db, expected):
    """Each device is late by up to three tenths of a complex use, anew in every slot."""
    slots, rng = 300, seeded(3)
    codebook, indices = qpsk(rng), draw_indices(POPULARITY, slots, DEVICES, rng=rng)
    late, sent = 0.3 * torch.rand(DEVICES, slots, 1, generator=rng), codebook[indices]
    heard = ((1 - late) * sent + late * torch.nn.functional.pad(sent, (1, 0))[..., :-1]).sum(0)
    noise_var = DEVICES / (32 * 10 ** (snr_db / 10))
    heard = heard + math.sqrt(noise_var) * normal(slots, 32, rng=rng)
    settings = ChannelSettings(kind="fading", rician_factor=1e6, errors={"timing": 0.3})
    model = Fading(settings, PowerSettings(control="inversion")).gain_model
    seen = Reception(heard[None], POPULARITY, num_active=10.0, noise_var=noise_var, gain_model=model)
    found = accuracy(Widened(codebook, INDEPENDENT).receive(seen)[0].counts, count(indices, 128))
    assert found > expected - 0.03
    naive = Widened(codebook, INDEPENDENT).receive(replace(seen, gain_model=GainModel()))[0]
    assert found > accuracy(naive.counts, count(indices, 128)) + 0.02


def test_silence_is_counted_block_by_block():
    rng = seeded(9)
    codebook = qpsk(rng)
    gains = torch.ones(1, DEVICES, 512, dtype=torch.complex64)
    gains[:, :4, 256:] = 0
    received, _, _, _ = hear(gains, codebook, 10.0, rng=rng)
    blocks = (slice(0, 256), slice(256, 512))
    found = Widened(codebook).receive(Reception(received, POPULARITY, blocks, GainModel(silence=True)))
    assert [decoded.num_active for decoded in found] == [10, 6]


def test_the_size_of_chunks_changes_nothing(monkeypatch):
    rng = seeded(6)
    codebook = qpsk(rng)
    received, *_ = hear(turned(20, 70, rng), codebook, 5.0, rng=rng)
    seen = Reception(received, POPULARITY, gain_model=of_phase(20))
    whole = Widened(codebook).receive(seen)[0]
    monkeypatch.setattr(module, "AT_ONCE", 16 * 128 * 12)
    assert torch.equal(whole.counts, Widened(codebook).receive(seen)[0].counts)


def test_random_phases_are_refused_in_one_sentence():
    codebook = qpsk(seeded())
    with pytest.raises(ConfigError, match="needs gains of a common phase"):
        Widened(codebook).receive(Reception(torch.ones(1, 3, 32, dtype=torch.complex64), POPULARITY))
