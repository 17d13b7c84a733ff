"""Antennas in several places: mean gains by distance, power control by their mean, and what is refused."""

import pytest
import torch

from aircomp.channel.fading import Fading
from aircomp.channel.places import Layout, places
from aircomp.channel.settings import ChannelSettings, PowerSettings
from aircomp.errors import ConfigError
from helpers.draws import seeded


def spread_out(control="none", **settings):
    settings = {"kind": "fading", "antennas": 8, "access_points": 4, "path_loss": 3.76, "block_slots": 1} | settings
    return Fading(ChannelSettings(**settings), PowerSettings(control=control))


@pytest.mark.parametrize("number", [1, 4, 50])
def test_places_share_the_disc_about_evenly(number):
    nearest = torch.cdist(places(20_000), places(number)).argmin(dim=1)
    areas = torch.bincount(nearest, minlength=number) * number / 20_000
    assert areas.min() > 0.5
    assert areas.max() < 1.4


def test_every_access_point_hears_a_device_by_its_distance():
    csi = spread_out().sound(3, 64 * 4000, rng=seeded(1))
    heard = csi.gains.values.abs().double().square().mean(1).unflatten(1, (4, 2)).mean(2)
    expected = Layout(4, 3.76).gains(csi.at_devices.positions.double())
    assert expected.max() / expected.min() > 30, "all are as far: choose another seed"
    torch.testing.assert_close(heard, expected, rtol=0.05, atol=0)  # 8,000 exponential numbers: 1.1 %


def test_control_by_mean_gain_spends_power_one_and_lets_all_arrive_alike():
    channel = spread_out("statistical")
    csi = channel.sound(20_000, 64, rng=seeded(1))
    assert float(csi.at_devices.scale.abs().square().mean()) == pytest.approx(1, abs=0.03)
    values = csi.with_power.values / csi.level[None, :, None]
    assert float(values.abs().square().mean()) == pytest.approx(1, abs=0.02)
    arriving = channel.layout.arriving(csi.at_devices.positions)
    torch.testing.assert_close(arriving.mean(1), torch.ones(20_000))
    found = values[:, 0].abs().square().unflatten(1, (4, 2)).mean(2)
    assert float((found / arriving).mean()) == pytest.approx(1, abs=0.02)


def test_antennas_correlate_within_an_access_point_alone():
    values = spread_out(correlation=0.8, path_loss=0.0).sound(50_000, 64, rng=seeded(1)).gains.values[:, 0]
    products = (values[:, :, None] * values[:, None, :].conj()).mean(0).real
    expected = torch.block_diag(*[torch.tensor([[1.0, 0.8], [0.8, 1.0]])] * 4)
    torch.testing.assert_close(products, expected, atol=0.02, rtol=0)


def test_without_path_loss_several_places_are_one():
    one, four = (
        spread_out(path_loss=0.0, access_points=number).sound(3, 640, rng=seeded(1)).gains.values for number in (1, 4)
    )
    assert torch.equal(one, four)


@pytest.mark.parametrize(
    ("control", "settings", "said"),
    [
        ("none", {"antennas": 6}, r"access_points = 4 do not divide channel\.antennas = 6 evenly"),
        ("inversion", {}, "'inversion' lets signals arrive in phase at one site"),
        ("phase", {}, "'phase' lets signals arrive in phase at one site"),
        ("none", {"rician_factor": 2.0}, "rician_factor = 2 is a direct path to one site"),
    ],
)
def test_what_cannot_be_is_refused(control, settings, said):
    with pytest.raises(ConfigError, match=said):
        spread_out(control, **settings)
