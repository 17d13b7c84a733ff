"""Standard channel models: the settings that go with them, and with Sionna installed what they draw."""

from typing import get_args

import pytest
import torch

from aircomp.channel.fading import Fading
from aircomp.channel.settings import ChannelSettings, PowerSettings, StandardModel, direct_power
from aircomp.channel.standard import draw_standard
from helpers.draws import seeded


def drawn(model, devices=200, blocks=3, antennas=2, **settings):
    chosen = {"delay_ns": 100.0, "step_khz": 180.0, "seed": 1} | settings
    return draw_standard(model, devices, blocks, antennas, **chosen)


@pytest.fixture(scope="module")
def sionna():
    return pytest.importorskip("sionna")


@pytest.mark.parametrize("model", get_args(StandardModel))
def test_gains_have_mean_power_one_and_every_link_its_own(model, sionna):
    gains = drawn(model)
    assert gains.shape == (200, 3, 2)
    # Rayleigh powers of 400 links: 5 % standard deviation
    assert float(gains.abs().square().mean()) == pytest.approx(1, abs=0.2)
    each = gains.abs().square().mean((1, 2))
    assert float(each.std()) > 0.005, "links were normalised one by one"


@pytest.mark.parametrize("model", ["tdl-d", "tdl-e"])
def test_the_direct_path_is_as_strong_as_the_table_says(model, sionna):
    power = drawn(model, devices=4000, blocks=1, antennas=1, delay_ns=1000.0).abs().double().square()
    # of a Rician gain with factor κ: Var|h|² = (1 + 2κ)/(1 + κ)² of the mean squared; 4,000 draws tell it to 4 %
    factor = direct_power(model)
    assert float(power.var() / power.mean() ** 2) == pytest.approx((1 + 2 * factor) / (1 + factor) ** 2, rel=0.15)


def test_more_blocks_begin_like_fewer_and_nothing_global_is_seeded(sionna):
    before = torch.random.get_rng_state()
    fewer, more = drawn("tdl-a", blocks=2), drawn("tdl-a", blocks=5)
    torch.testing.assert_close(more[:, :2], fewer)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not torch.allclose(drawn("tdl-a", seed=2), drawn("tdl-a", seed=1))


def test_a_small_delay_spread_leaves_neighbouring_blocks_alike(sionna):
    def correlation(gains):
        a, b = gains[:, 0, 0], gains[:, 1, 0]
        return float((a * b.conj()).mean().abs() / (a.abs().square().mean() * b.abs().square().mean()).sqrt())

    assert correlation(drawn("tdl-a", delay_ns=10.0)) > 0.99
    assert correlation(drawn("tdl-a", delay_ns=1000.0)) < 0.8


def test_a_round_is_sounded_like_any_other(sionna):
    settings = ChannelSettings(kind="standard", model="tdl-c", antennas=4, block_slots=2)
    csi = Fading(settings, PowerSettings(control="inversion")).sound(5, 6 * 64, rng=seeded(0))
    assert csi.gains.values.shape == (5, 3, 4)
    assert torch.isfinite(csi.at_devices.scale.abs()).all()
