"""Rounds in which nobody speaks in some coherence blocks, or many have nothing to say."""

import math
from contextlib import nullcontext

import pytest
import torch

from aircomp.channel.awgn import Awgn
from aircomp.channel.fading import Fading
from aircomp.channel.settings import ChannelSettings, PowerSettings
from aircomp.errors import ConfigError
from aircomp.link import Link, communicate
from aircomp.schemes.base import SchemeContext
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import SchemeSettings


def faded_round(name, devices, threshold, *, seed, snr_db=40.0, block_slots=16, params=6400, **options):
    """Send a round over Rayleigh fading to a scheme whose devices undo their gains."""
    channel = ChannelSettings(kind="fading", snr_db=snr_db, snr_reference="transmit", block_slots=block_slots)
    air = Fading(channel, PowerSettings(control="inversion", threshold=threshold))
    uplink = make_scheme(name, SchemeContext(block_uses=air.block_uses))
    drawn = torch.randn(1 + devices, params, generator=torch.Generator().manual_seed(seed)) ** 3
    return communicate(Link(uplink, air, "mean", seed=seed, **options), drawn[0], drawn[1:], {}, 0)


def test_blocks_in_which_nobody_spoke_are_not_divided_by_nobody():
    for seed in range(3):
        done = faded_round("ca-dsgd", 1, 0.3, seed=seed, snr_db=30.0)
        assert not done.sent.delivered.any(0).all()  # or nothing is asked
        assert done.update.norm() < 1.05 * done.sent.reconstruction.mean(0).norm()


@pytest.mark.parametrize("name", ["bit-slicing", "sumcomp", "channelcomp"])
def test_an_interleaver_leaves_the_numbers_of_a_parameter_where_the_same_devices_speak(name):
    wrong = []
    for interleave in (False, True):
        done = faded_round(SchemeSettings(name=name, interleave=interleave), 6, 0.3, seed=0)
        truth = done.sent.reconstruction.mean(0)
        wrong.append(float((done.update - truth).square().sum() / truth.square().sum()))
    # others are silent for other parameters: the same on average over 6,400 of them
    assert wrong[1] < 1.3 * wrong[0]


@pytest.mark.parametrize("readout", ["integers", "soft", "unbiased"])
def test_blocks_in_which_nobody_spoke_do_not_lengthen_the_update(readout):
    done = faded_round("gamp", 3, 1.0, seed=1, params=3200, readout=readout)
    spoke = done.sent.delivered.repeat_interleave(20, 1).sum(0)
    assert (spoke == 0).any()
    mean = done.sent.reconstruction.sum(0) / spoke.clamp(min=1)
    # at 40 dB all counts are right
    assert float(done.update @ mean / mean.square().sum()) == pytest.approx(1, abs=0.01)


def test_devices_without_a_sign_toss_a_coin_each():
    messages = torch.zeros(10, 4000)
    messages[:3] = 1.0
    done = communicate(
        Link(make_scheme("obda"), Awgn(40.0, "transmit"), "sign-vote"), torch.ones(4000), messages, {}, 0
    )
    # minus wins if six or seven of seven coins say so, and half of the time if five do; noise decides ties
    wrong = sum(math.comb(7, minus) * (1.0 if minus > 5 else 0.5) for minus in (5, 6, 7)) / 2**7
    assert float((done.update < 0).float().mean()) == pytest.approx(wrong, abs=4 * math.sqrt(wrong / 4000))


def test_the_noise_of_pilots_does_not_count_as_devices():
    one, lengths = torch.randn(10_240, generator=torch.Generator().manual_seed(0)), []
    channel = ChannelSettings(kind="fading", snr_db=-10.0, snr_reference="transmit", antennas=64)
    air = Fading(channel)
    for seed in range(4):
        uplink = make_scheme("blind-analog", SchemeContext(block_uses=air.block_uses))
        done = communicate(Link(uplink, air, "mean", seed=seed), one, one.expand(10, -1).clone(), {}, 0)
        lengths.append(float(done.update @ one / one.square().sum()))
    mean, error = torch.tensor(lengths).mean(), torch.tensor(lengths).std() / 2
    assert float(mean) == pytest.approx(1, abs=max(0.02, 3 * float(error)))


def test_the_computation_rate_without_noise_sends_every_parameter():
    base, *messages = torch.randn(4, 200, generator=torch.Generator().manual_seed(0)).unbind()
    done = communicate(
        Link(make_scheme("computation-rate"), Awgn(math.inf), "mean"), base, torch.stack(messages), {}, 0
    )
    error = (done.update - torch.stack(messages).mean(0)).norm() / torch.stack(messages).mean(0).norm()
    assert float(error) < 0.2  # numbers beyond the clip are cut


@pytest.mark.parametrize(
    ("control", "told"), [("common", ("the weakest device's gain, which sets the level of all",)), ("inversion", ())]
)
def test_a_level_that_follows_the_rounds_gains_is_declared(control, told):
    air = Fading(ChannelSettings(kind="fading", snr_db=10.0), PowerSettings(control=control))
    assert air.sound(3, 64, rng=torch.Generator().manual_seed(0)).at_receiver.side_information == told


@pytest.mark.parametrize(
    ("repeat", "block_slots", "fits"), [(2, 4, True), (2, 3, False), ("auto", 6, False), (1, 3, True)]
)
def test_copies_of_a_slot_lie_in_one_coherence_block(repeat, block_slots, fits):
    context = SchemeContext(block_uses=64 * block_slots)
    with (
        nullcontext()
        if fits
        else pytest.raises(ConfigError, match=f"uplink.repeat = {repeat}: up to .* coherence block")
    ):
        make_scheme(SchemeSettings(name="blind", repeat=repeat), context)
