"""TUMA on the digital link: every zone has its codewords, counts are summed over zones, and what is refused."""

import pytest
import torch

import aircomp
from aircomp.channel.awgn import Awgn
from aircomp.channel.fading import Fading
from aircomp.channel.settings import ChannelSettings, PowerSettings
from aircomp.errors import ConfigError
from aircomp.link import Link, communicate
from aircomp.quantize.settings import QuantizeSettings
from aircomp.schemes.base import SchemeContext
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import SchemeSettings

QUANTIZE = QuantizeSettings(fragment_length=20, num_codewords=32)


def uplink(name="tuma", access_points=4, **settings):
    chosen = SchemeSettings(name=name, quantize=QUANTIZE, codebook="gaussian", side_information="none", **settings)
    return make_scheme(chosen, SchemeContext(block_uses=128, access_points=access_points))


def air(access_points=4, **settings):
    settings = {"antennas": 128, "snr_db": 30.0, "path_loss": 3.76, "block_slots": 2} | settings
    channel = ChannelSettings(kind="fading", access_points=access_points, **settings)
    return Fading(channel, PowerSettings(control="statistical"))


def messages(rng):
    base, *rest = (torch.randn(1 + 5, 1200, generator=rng) ** 3).unbind()
    return base, torch.stack(rest)


@pytest.mark.parametrize("repeat", [1, 2])
def test_the_link_counts_what_devices_of_all_zones_sent(repeat, rng):
    scheme = uplink(repeat=repeat)
    exchange = communicate(Link(scheme, air()), *messages(rng), {}, 0)
    zones = exchange.sent.signal.indices // 32
    assert len(zones.unique()) > 1, "all are in one zone: choose another seed"
    assert (zones == zones[:, :1]).all()
    found = scheme.diagnose(exchange.sent, exchange.broadcast, exchange.output)
    assert found["count_accuracy"] > 0.95
    assert exchange.output.num_active_hat == pytest.approx(5, abs=0.3)
    truth = exchange.sent.reconstruction.mean(dim=0)
    assert float((exchange.update - truth).norm() / truth.norm()) < 0.25


def test_one_place_and_one_zone_send_what_blind_sends(rng):
    base, sent = messages(rng)
    channel = air(access_points=1, path_loss=0.0, antennas=8, snr_db=0.0)
    zoned, blind = (
        communicate(Link(uplink(name, access_points=1), channel), base, sent, {}, 0) for name in ("tuma", "blind")
    )
    assert torch.equal(zoned.sent.signal.superpose(None), blind.sent.signal.superpose(None))
    same = (zoned.output.counts == blind.output.counts).float().mean()
    assert float(same) > 0.99  # the searches for the noise begin at different values


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, r"but channel\.kind = 'awgn' was given"),
        ({"channel": "fading", "power.control": "inversion"}, r"but power\.control = 'inversion' was given"),
        (
            {"channel": "fading", "channel.antennas": 6, "channel.access_points": 4},
            r"access_points = 4 do not divide channel\.antennas = 6",
        ),
        ({"channel": "fading", "uplink.decoder.zones": 0}, r"uplink\.decoder\.zones = 0"),
    ],
)
def test_what_cannot_work_is_refused_before_training(settings, said, digits, quick):
    with pytest.raises(ConfigError, match=said):
        aircomp.simulate(quick.changed(rounds=0), dataset=digits, uplink="tuma", **settings)


def test_a_channel_without_places_is_refused(rng):
    with pytest.raises(ConfigError, match="needs to know places"):
        communicate(Link(uplink(), Awgn(10.0)), *messages(rng), {}, 0)


def test_more_codewords_than_a_codebook_holds_are_refused():
    many = SchemeSettings(name="tuma", quantize=QuantizeSettings(num_codewords=1024), decoder={"zones": 64})
    with pytest.raises(ConfigError, match="64 zones of 1024 codewords are 65536"):
        make_scheme(many)
