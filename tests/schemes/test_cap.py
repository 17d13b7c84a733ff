"""A cap on what a device spends in a round, in place of the mean energy: who meets it, what it costs, and who is refused."""

import pytest
import torch

import aircomp
from aircomp.channel.awgn import Awgn
from aircomp.channel.base import make_channel
from aircomp.channel.settings import ChannelSettings, PowerSettings
from aircomp.errors import ConfigError
from aircomp.link import Link, communicate
from aircomp.schemes.base import SchemeContext
from aircomp.schemes.meter import CAP, check_power, record_of
from aircomp.schemes.outputs import Vote
from aircomp.schemes.registry import make_scheme
from helpers.schemes import RIVALS

UNEQUAL = torch.tensor([1.0, 1.0, 2.0, 3.0, 5.0])[:, None]
"""What the base station's and four devices' updates are long."""


def given(params=4000):
    return UNEQUAL * torch.randn(5, params, generator=torch.Generator().manual_seed(0))


def exchange(name, channel, *, cap, messages=None, block_uses=0):
    uplink = make_scheme(name, SchemeContext(block_uses=block_uses))
    rule = "sign-vote" if uplink.offers is Vote else "mean"
    messages = given() if messages is None else messages
    return communicate(Link(uplink, channel, rule, readout="integers", cap=cap), messages[0], messages[1:], {}, 0)


@pytest.mark.parametrize("name", ["gamp", *RIVALS])
def test_the_device_that_spends_most_spends_the_nominal_energy(name):
    held = exchange(name, Awgn(10.0, "transmit"), cap=True)
    assert float(held.air.energy.max()) == pytest.approx(200, rel=1e-3)
    assert set(CAP) <= set(held.air.side_information)
    check_power([record_of(held.air)])


@pytest.mark.parametrize("name", ["gamp", "baa", "tdma-vq", "a-dsgd", "reed", "blind"])
def test_it_does_so_behind_power_control(name):
    settings = ChannelSettings(kind="fading", snr_db=30.0, snr_reference="transmit", block_slots=50, antennas=4)
    control = "inversion" if name in ("gamp", "baa", "a-dsgd", "tdma-vq") else "statistical"
    channel = make_channel(settings, PowerSettings(control=control))
    held = exchange(name, channel, cap=True, block_uses=50 * 64)
    assert float(held.air.energy.max()) == pytest.approx(200, rel=1e-3)
    check_power([record_of(held.air)])


@pytest.mark.parametrize("name", ["gamp", "baa", "cotaf", "reed", "obda", "sumcomp", "tdma-coded"])
def test_without_noise_a_cap_changes_nothing(name):
    free, held = (exchange(name, Awgn(float("inf"), "transmit"), cap=cap) for cap in (False, True))
    torch.testing.assert_close(held.update, free.update, rtol=1e-4, atol=1e-4)


def test_a_cap_costs_analog_transmission_the_largest_energy_over_the_mean():
    """The squares of 1, 2, 3 and 5 have the mean 9.75 and the largest 25; pilots aside, which are a cent."""
    free, held = (exchange("baa", Awgn(0.0, "transmit"), cap=cap) for cap in (False, True))
    errors = [float((e.update - e.messages.mean(0)).square().sum()) for e in (free, held)]
    assert errors[1] / errors[0] == pytest.approx(25 / 9.75, rel=0.05)
    assert float(held.air.energy.mean()) < 0.5 * float(free.air.energy.mean())


def test_a_cap_leaves_cotaf_as_it_is_but_for_pilots():
    free, held = (exchange("cotaf", Awgn(0.0, "transmit"), cap=cap) for cap in (False, True))
    torch.testing.assert_close(held.air.energy, free.air.energy, rtol=1e-3, atol=0)


def test_turns_choose_their_rates_by_the_cap():
    """Without power control all turns cost the same; behind inversion the weakest device sets how loud all are."""
    settings = ChannelSettings(kind="fading", snr_db=10.0, snr_reference="transmit", block_slots=1000)
    channel = make_channel(settings, PowerSettings(control="inversion"))
    free, held = (exchange("tdma-topk", channel, cap=cap, block_uses=64_000) for cap in (False, True))
    arrived = [(e.sent.reconstruction != 0).sum() for e in (free, held)]
    louder = held.sent.amplitude
    assert louder is not None
    assert (arrived[1] > arrived[0]) == (louder > 1)
    assert arrived[1] != arrived[0]


@pytest.mark.parametrize("reference", ["round", "slot"])
def test_a_cap_is_refused_where_noise_follows_what_is_received(reference):
    with pytest.raises(ConfigError, match=r"power\.cap was given but has no effect: .*snr_reference = 'transmit'"):
        aircomp.simulate("digits", rounds=0, uplink="baa", **{"power.cap": True, "channel.snr_reference": reference})


def test_a_cap_needs_no_fading(digits, quick):
    settings = {"dataset": digits, "uplink": "baa", "channel.snr_reference": "transmit", "power.cap": True}
    row = aircomp.simulate(quick.changed(rounds=1), **settings).row
    assert any("spend most" in words for words in row["side_information"])
