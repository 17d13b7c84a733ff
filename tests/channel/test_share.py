"""The share of a signal that arrives as expected: against symbols sent through the channel, and what it costs turns."""

import math

import pytest
import torch

from aircomp.channel.fading import Fading
from aircomp.channel.settings import ErrorSettings
from aircomp.channel.signal import Symbols
from aircomp.common.packing import pack
from aircomp.link import Link, communicate
from aircomp.schemes.base import SchemeContext
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import SchemeSettings
from aircomp.schemes.tdma import AtCapacity
from helpers.draws import seeded

DEVICES, SLOTS, BLOCK, USES = 3, 4096, 1, 64
ERRORS = {
    "phase": {"phase_deg": 30.0},
    "belief": {"csi_correlation": 0.8},
    "timing": {"timing": 0.5},
    "frequency": {"frequency": 1e-2},
    "all": {"phase_deg": 20.0, "csi_correlation": 0.95, "timing": 0.3, "frequency": 5e-3},
}
IN_TURNS = ("tdma-vq", "tdma-entropy", "ofdma-vq")


def channel_with(errors, **settings):
    settings = {"snr_reference": "transmit", "block_slots": BLOCK, "control": "inversion", "snr_db": 10.0} | settings
    return Fading(errors=ErrorSettings(**errors), **settings)


def bits_of(name, errors, **settings):
    """Return the bits of every device, and what they know of the channel."""
    channel = channel_with(errors, **settings)
    scheme = make_scheme(SchemeSettings(name=name), SchemeContext(block_uses=channel.block_uses))
    known = channel.sound(DEVICES, SLOTS * USES, rng=seeded()).at_devices
    assert isinstance(scheme, AtCapacity)
    return scheme._plan(DEVICES, SLOTS, known).bits, known


def given(told):
    """Return what the channel must tell."""
    assert told is not None
    return told


@pytest.mark.parametrize("kind", ERRORS)
def test_the_share_is_that_of_symbols_which_went_through_the_channel(kind):
    channel = channel_with(ERRORS[kind], snr_db=150.0)
    csi = channel.sound(DEVICES, SLOTS * USES, rng=seeded())
    for device in range(DEVICES):
        sent = torch.zeros(DEVICES, SLOTS, USES)
        sent[device] = torch.randn(SLOTS, USES, generator=seeded(1 + device))
        heard = channel.carry(Symbols(sent, 1.0), csi, rng=seeded())[0]
        blocks = [pack(each).view(-1, BLOCK * USES // 2) for each in (sent[device], heard)]
        expected = (blocks[1] * blocks[0].conj()).real.mean(dim=1) / 2
        power = blocks[1].abs().square().mean(dim=1) / 2
        speaks = given(csi.at_devices.scale)[device] != 0
        share = given(csi.at_devices.share)[device][speaks]
        # four thousand blocks: the square of the mean is known to 2.5 %
        assert float((share * power[speaks]).mean()) == pytest.approx(float(expected[speaks].mean()) ** 2, rel=0.05)


def test_the_snr_of_a_late_device_counts_what_arrives_of_it():
    (_, right), (_, known) = (bits_of("tdma-vq", {"timing": t}, rician_factor=1e6) for t in (0.0, 0.9))
    late = 0.9 * torch.rand(DEVICES, 16, generator=seeded(), dtype=torch.float64)[:, 3]  # as the channel draws it
    assert right.share is None
    torch.testing.assert_close(
        given(known.snr) / given(right.snr),
        ((1 - late).square() + late.square()).float()[:, None].expand_as(given(known.snr)),
    )


@pytest.mark.parametrize("name", IN_TURNS)
def test_phase_errors_cost_turns_what_is_derived(name):
    bits, known = bits_of(name, {"phase_deg": 45.0}, rician_factor=1e6)
    heard = DEVICES * float(
        given(known.snr).mean()
    )  # a third of the slots, three times the energy: the same number in frequency
    kept = math.exp(-(math.radians(45.0) ** 2))
    rate = math.log2(1 + kept * heard / (1 + (1 - kept) * heard)) / 2
    torch.testing.assert_close(bits, torch.full_like(bits, SLOTS * USES / DEVICES * rate), rtol=1e-3, atol=0)
    assert (bits < bits_of(name, {}, rician_factor=1e6)[0]).all()


def test_more_power_does_not_help_beyond_what_errors_leave():
    kept = math.exp(-(math.radians(45.0) ** 2))
    bits, _ = bits_of("tdma-vq", {"phase_deg": 45.0}, rician_factor=1e6, snr_db=100.0)
    limit = math.log2(1 / (1 - kept)) / 2
    torch.testing.assert_close(bits, torch.full_like(bits, SLOTS * USES / DEVICES * limit), rtol=1e-3, atol=0)


@pytest.mark.parametrize("control", ["none", "statistical"])
def test_phases_that_nobody_takes_for_known_cost_nothing(control):
    with_errors, without = (bits_of("tdma-vq", e, control=control)[0] for e in ({"phase_deg": 45.0}, {}))
    torch.testing.assert_close(with_errors, without)
    assert (bits_of("tdma-vq", {"timing": 0.5}, control=control)[0] < without).all()


def test_the_error_of_turns_grows_with_the_phase_error():
    updates = torch.randn(1 + DEVICES, 4000, generator=seeded(3)) ** 3
    errors = [
        communicate(Link("tdma-entropy", channel_with({"phase_deg": s})), updates[0], updates[1:], {}, 0).nmse
        for s in (0.0, 20.0, 45.0)
    ]
    assert errors[0] < errors[1] < errors[2]
