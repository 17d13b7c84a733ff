"""Disturbances of white noise, each against its closed form."""

import math

import pytest
import torch

from aircomp.channel.disturb import STEPS, Disturbed
from aircomp.channel.settings import DisturbanceSettings
from aircomp.channel.signal import Symbols
from aircomp.errors import ConfigError
from aircomp.link import Link
from helpers.draws import seeded

SLOTS, USES = 4000, 64
NOISELESS = math.inf


def carried(values, snr_db=NOISELESS, **settings):
    """Return what one antenna hears of devices that send at mean power one."""
    channel = Disturbed(snr_db, "transmit", DisturbanceSettings(**settings))
    csi = channel.sound(len(values), values[0].numel(), rng=seeded(2))
    return channel.carry(Symbols(values, 1.0), csi, rng=seeded(3))[0]


def gaussian(devices=1, seed=1):
    return torch.randn(devices, SLOTS, USES, generator=seeded(seed))


@pytest.mark.parametrize("clip_db", [0.0, 3.0, 6.0])
@pytest.mark.parametrize("kind", [torch.float32, torch.complex64])
def test_a_clipped_gaussian_signal_has_the_gain_and_distortion_of_bussgang(clip_db, kind):
    sent = torch.randn(1, SLOTS, USES, generator=seeded(1), dtype=kind)
    heard, sent = carried(sent, clip_db=clip_db).to(torch.complex128), sent[0].to(torch.complex128)
    limit = 10 ** (clip_db / 20)
    gain = 1 - math.exp(-(limit**2)) + math.sqrt(math.pi) / 2 * limit * math.erfc(limit)
    distortion = 1 - math.exp(-(limit**2)) - gain**2
    # 128,000 complex symbols: a mean of order one is known to 1/√128,000 = .003; three of that
    assert float((heard * sent.conj()).real.mean()) == pytest.approx(gain, abs=0.009)
    assert float((heard - gain * sent).abs().square().mean()) == pytest.approx(distortion, rel=0.15)
    # at 6 dB 2,300 of them are clipped, whose squares scatter by √(5/2,300) = .05


def test_a_limit_is_over_the_mean_power_and_leaves_the_phase():
    sent = torch.tensor([[[3.0, 4.0, 0.3, 0.4]]])
    heard = carried(sent, clip_db=0.0)  # two real uses of power one: a complex one is at most √2 long
    torch.testing.assert_close(heard, torch.tensor([[0.6 * 2**0.5, 0.8 * 2**0.5, 0.3, 0.4]]), rtol=0, atol=1e-6)


def test_bursts_raise_the_mean_noise_variance_by_their_share():
    noise = carried(torch.zeros(1, SLOTS, USES), snr_db=0.0, burst_share=0.1, burst_db=20.0).square().mean(dim=1)
    loud = noise > 10  # quiet slots are near one, loud ones near a hundred
    assert float(loud.double().mean()) == pytest.approx(0.1, abs=3 * math.sqrt(0.09 / SLOTS))
    assert float(noise[loud].mean()) == pytest.approx(100, rel=0.03)
    assert float(noise[~loud].mean()) == pytest.approx(1, rel=0.03)


@pytest.mark.parametrize(
    ("tail", "below_scale"), [(1, 0.5), (2, 1 / math.sqrt(3)), (3, 1 / 3 + math.sqrt(3) / (2 * math.pi))]
)
def test_heavy_tails_are_those_of_student(tail, below_scale):
    noise = carried(torch.zeros(1, SLOTS, USES), snr_db=0.0, tail=tail)
    # both parts of a complex use share their scale, so 128,000 of 256,000 draws are independent at least
    assert float((noise.abs() < 1).double().mean()) == pytest.approx(below_scale, abs=3 * 0.5 / math.sqrt(128_000))


def test_lost_slots_hold_nothing_and_others_are_whole():
    sent = gaussian()
    heard = carried(sent, lost=0.1)
    gone = (heard == 0).all(dim=1)
    assert float(gone.double().mean()) == pytest.approx(0.1, abs=3 * math.sqrt(0.09 / SLOTS))
    torch.testing.assert_close(heard[~gone], sent[0][~gone], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("bits", "distortion"), [(1, 0.3634), (2, 0.1188), (3, 0.03744), (4, 0.01154), (5, 0.003495), (6, 0.00104)]
)
def test_a_converter_has_the_distortion_of_max(bits, distortion):
    sent = gaussian()
    found = float((carried(sent, adc_bits=bits) - sent[0]).square().mean())
    assert found == pytest.approx(
        distortion, rel=0.06
    )  # of 256,000 numbers few are beyond the last step; their squares scatter by 2 %
    assert len(carried(sent, adc_bits=bits).unique()) == 2**bits


@pytest.mark.parametrize("bits", range(1, 9))
def test_no_step_near_that_of_the_table_distorts_less(bits):
    x = torch.linspace(-10, 10, 400_001, dtype=torch.float64)
    weight = torch.exp(-x.square() / 2)

    def distortion(step):
        level = torch.floor(x / step).clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return float((((level + 0.5) * step - x).square() * weight).sum() / weight.sum())

    step = STEPS[bits - 1]
    assert distortion(step) < min(distortion(0.97 * step), distortion(1.03 * step))


def test_who_sends_too_loudly_moves_the_sum_by_the_extra_amplitude():
    sent = gaussian(10)
    heard = carried(sent, attackers=0.1, attack_db=10.0)
    extra = (heard - sent.sum(dim=0)).square().mean() / sent.sum(dim=0).square().mean()
    assert float(extra) == pytest.approx(0.1 * (math.sqrt(10) - 1) ** 2, rel=0.02)


def test_agreed_energy_and_noise_do_not_follow_an_attack():
    updates = [torch.randn(10, 2000, generator=seeded(seed)) for seed in range(2)]
    honest, attacked = (
        Link("baa", Disturbed(10.0, "transmit", DisturbanceSettings(attackers=share)), seed=0) for share in (0.0, 0.2)
    )
    for each in updates:
        plain, under_attack = honest.send(each), attacked.send(each)
    assert torch.equal(plain.cost.energy, under_attack.cost.energy)
    assert under_attack.nmse > 5 * plain.nmse


@pytest.mark.parametrize(
    "settings",
    [{"clip_db": 100.0}, {"burst_share": 0.5, "burst_db": 0.0}, {"attackers": 0.5, "attack_db": 0.0}],
)
def test_what_changes_nothing_changes_nothing(settings):
    sent = gaussian(3)
    torch.testing.assert_close(carried(sent, 5.0, **settings), carried(sent, 5.0), rtol=0, atol=1e-5)  # sums of floats


@pytest.mark.parametrize("name", ["tdma-vq", "capacity"])
def test_bits_at_capacity_are_refused_where_they_would_not_hear_it(name):
    link = Link(name, Disturbed(10.0, "transmit", DisturbanceSettings(lost=0.1)), seed=0)
    with pytest.raises(ConfigError, match=r"taken to reach the capacity of white noise, but channel\.disturbance"):
        link.send(torch.randn(4, 400, generator=seeded(0)))
