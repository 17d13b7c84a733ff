"""OFDMA: as many bits as in turns over white noise, more where frequencies fade, and power that peaks cost."""

import math
from dataclasses import dataclass, replace

import pytest
import torch

from aircomp.channel.awgn import Awgn
from aircomp.link import Link, communicate
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import OfdmaSettings
from aircomp.testing import check_uplink

SETTINGS = OfdmaSettings(name="ofdma-vq")


@dataclass(frozen=True)
class Multipath(Awgn):
    """Eight paths of equal power a device; each block of slots is a frequency, H[f] = Σ h exp(−j2πfτ)."""

    block_uses: int = 64

    def sound(self, num_devices, num_uses, *, rng):
        csi = super().sound(num_devices, num_uses, rng=rng)
        blocks = -(-num_uses // self.block_uses)
        taps = torch.view_as_complex(torch.randn(num_devices, 8, 2, generator=rng)) / 4
        turns = -2j * math.pi * torch.arange(8)[:, None] * torch.arange(blocks) / blocks
        snr = (taps @ torch.exp(turns).to(taps)).abs().square() * csi.at_devices.snr
        at_devices = replace(csi.at_devices, snr=snr, over_noise=None, block_uses=self.block_uses)
        return replace(csi, at_devices=at_devices)


def exchange(name, channel, *, devices=10, params=4000, **options):
    given = torch.randn(devices + 1, params, generator=torch.Generator().manual_seed(0)) ** 3
    scheme = make_scheme(SETTINGS.changed(**options) if name == "ofdma-vq" else name)
    done = communicate(Link(scheme, channel), given[0], given[1:], {}, 0)
    return done, float((done.sent.payload != 0).double().mean())


def test_it_passes_as_every_scheme_does():
    check_uplink(lambda: make_scheme(SETTINGS))


@pytest.mark.parametrize("snr_db", [0.0, 5.6])
def test_over_white_noise_as_much_arrives_as_in_turns(snr_db):
    channel = Awgn(snr_db, "transmit")
    (turns, in_turns), (side, beside) = (exchange(name, channel) for name in ("tdma-vq", "ofdma-vq"))
    assert beside == pytest.approx(in_turns, abs=1e-3)
    torch.testing.assert_close(side.update, turns.update)
    assert side.air.channel_uses == turns.air.channel_uses
    torch.testing.assert_close(side.air.energy, turns.air.energy, rtol=1e-5, atol=0)


def test_fading_over_frequency_lets_more_arrive_than_in_turns():
    channel = Multipath(0.0, "transmit")
    assert exchange("ofdma-vq", channel)[1] > 1.3 * exchange("tdma-vq", channel)[1]


def test_peaks_are_those_of_many_carriers_and_a_limit_costs_bits():
    channel = Awgn(3.0, "transmit")
    side, arrived = exchange("ofdma-vq", channel)
    mean = side.air.nominal_energy / side.air.channel_uses
    # 25 of 256 carriers, the largest of 64 symbols and 10 devices: about 10 dB, where turns have ten times the mean
    assert 5 < side.air.peak_power / mean < 25
    limited, less = exchange("ofdma-vq", channel, peak=2.0)
    assert limited.air.peak_power / mean == pytest.approx(2, rel=1e-4)
    assert float(limited.air.energy.mean()) < 0.5 * float(side.air.energy.mean())
    assert less < arrived
