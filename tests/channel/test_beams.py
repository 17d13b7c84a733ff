"""Beams of the base station: as good as closed forms and search, and who is left out."""

import pytest
import torch

from aircomp.channel.beams import choose_beams, heard_through, max_min_beams
from aircomp.channel.fading import Fading
from aircomp.channel.settings import ChannelSettings, PowerSettings
from helpers.draws import seeded


def drawn(devices, blocks, antennas, seed=0):
    return torch.randn(devices, blocks, antennas, generator=seeded(seed), dtype=torch.complex128)


def weakest(gains, beams):
    return heard_through(gains, beams).abs().square().amin(0)


def everybody(gains):
    return torch.ones(gains.shape[:2], dtype=torch.bool)


def test_between_two_devices_of_one_strength_the_beam_takes_the_middle():
    """With the correlation c of their directions, each is heard with the power (1 + |c|)/2."""
    gains = drawn(2, 50, 4)
    gains = gains / gains.abs().square().sum(2, keepdim=True).sqrt()
    together = (gains[0].conj() * gains[1]).sum(1).abs()
    torch.testing.assert_close(
        weakest(gains, max_min_beams(gains, everybody(gains))), (1 + together) / 2, rtol=0.03, atol=0
    )


def test_equal_gains_are_heard_by_all_antennas_together():
    gains = torch.ones(5, 1, 8, dtype=torch.complex128)
    assert float(weakest(gains, max_min_beams(gains, everybody(gains)))) == pytest.approx(8)


@pytest.mark.parametrize("antennas", [2, 8])
def test_no_beam_of_thousands_at_random_is_better(antennas):
    gains = drawn(6, 10, antennas)
    random = drawn(4000, 10, antennas, seed=1)
    random = random / random.abs().square().sum(2, keepdim=True).sqrt()
    best = torch.stack([weakest(gains, beams) for beams in random]).amax(0)
    found = weakest(gains, max_min_beams(gains, everybody(gains)))
    # in two dimensions 4,000 beams lie dense, and one step from another start may lead further up
    assert (found > 0.85 * best).all()
    assert float(found.mean()) > 0.98 * float(best.mean())


def test_on_one_antenna_those_below_the_threshold_are_left_out():
    gains = drawn(50, 20, 1)
    _, chosen = choose_beams(gains, 0.3)
    assert torch.equal(chosen, gains[:, :, 0].abs().square() >= 0.3)


def test_with_more_antennas_fewer_are_left_out_and_one_never():
    left = []
    for antennas in (1, 4):
        gains = drawn(10, 40, antennas)
        beams, chosen = choose_beams(gains, 0.5)
        assert (heard_through(gains, beams).abs().square()[chosen] >= 0.5).all()
        left.append(int((~chosen).sum()))
    assert left[1] < left[0]
    assert choose_beams(drawn(10, 40, 2), 1e6)[1].sum(0).eq(1).all()


def beamforming(**settings):
    settings = {"kind": "fading", "snr_db": 200.0, "block_slots": 1, "antennas": 4} | settings
    return Fading(ChannelSettings(**settings), PowerSettings(control="beamforming", threshold=0.5))


def test_the_chosen_arrive_alike_and_the_weakest_of_them_spends_one():
    csi = beamforming(path_loss=2.0).sound(6, 64 * 30, rng=seeded(1))
    scale = csi.at_devices.scale
    arriving = (csi.behind_beams.values[:, :, 0] / csi.level)[scale != 0]
    torch.testing.assert_close(arriving, torch.ones_like(arriving), rtol=0, atol=1e-5)
    torch.testing.assert_close(scale.abs().amax(0), torch.ones(30), rtol=0, atol=1e-5)
    assert csi.at_receiver.side_information == ("every device's channel gain",)


def test_wrong_beliefs_are_spread_as_the_model_says():
    channel = beamforming(errors={"csi_correlation": 0.95})
    csi = channel.sound(8, 64 * 256, rng=seeded(2))
    arriving = (csi.behind_beams.values[:, :, 0] / csi.level)[csi.at_devices.scale != 0]
    model = channel.gain_model
    assert model.silence
    # 4,000 numbers in the model, of a deviation of a half, and half as many here: a hundredth each
    assert float(arriving.real.mean()) == pytest.approx(model.mean, abs=0.05)
    assert float(arriving.imag.square().mean()) == pytest.approx(model.var_imag, rel=0.25)
