"""The composite pilot: the gains that combining leaves, what the pilot costs, and counts of many antennas."""

import pytest
import torch

from aircomp.channel.fading import Fading
from aircomp.channel.settings import ChannelSettings, PowerSettings
from aircomp.link import Link, communicate
from aircomp.quantize.settings import QuantizeSettings
from aircomp.schemes.base import SchemeContext
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import SchemeSettings
from helpers.draws import seeded
from helpers.radio import normal


def test_combined_gains_have_the_moments_that_the_receiver_expects():
    devices, antennas, blocks = 10, 8, 4000
    h = normal(blocks, devices, antennas, rng=seeded(0))
    g = torch.einsum("ba,bka->bk", h.sum(1).conj(), h) / antennas
    # 4,000 blocks; gains of a block are correlated, so a tenth is several standard deviations
    assert float(g.real.mean()) == pytest.approx(1, abs=0.05)
    assert float(g.real.var()) == pytest.approx((1 + 9 / 2) / antennas, rel=0.1)
    assert float(g.imag.var()) == pytest.approx(9 / 2 / antennas, rel=0.1)


def test_many_antennas_count_without_side_information(rng):
    base, *sent = (torch.randn(5, 20 * 64, generator=rng) ** 3).unbind()
    quantize = QuantizeSettings(fragment_length=20, num_codewords=32)
    chosen = SchemeSettings(name="md-aircomp-plus", quantize=quantize, codebook="bernoulli")
    uplink = make_scheme(chosen, SchemeContext(block_uses=64 * 32))
    channel = ChannelSettings(kind="fading", snr_db=20.0, antennas=128, block_slots=32)
    exchange = communicate(Link(uplink, Fading(channel, PowerSettings())), base, torch.stack(sent), {}, 0)
    assert exchange.air.side_information == ()
    assert exchange.air.pilot_uses == 2 * 64
    assert exchange.output.num_active_hat == pytest.approx(4, abs=0.5)
    assert uplink.diagnose(exchange.sent, exchange.broadcast, exchange.output)["count_accuracy"] > 0.95
