"""TUMA with devices that select themselves: who sends, what arrives of it, and where the threshold settles."""

import math

import pytest
import torch

from aircomp.channel.fading import Fading
from aircomp.channel.settings import ChannelSettings, PowerSettings
from aircomp.link import Link, communicate
from aircomp.quantize.settings import QuantizeSettings
from aircomp.schemes.base import NUM_DEVICES, SchemeContext
from aircomp.schemes.digital.tuma_self import LOWEST, RATE, THRESHOLD, next_threshold
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import SchemeSettings

QUANTIZE = QuantizeSettings(fragment_length=20, num_codewords=32)
NORMS = torch.tensor([0.4, 0.6, 1.6, 2.0, 3.0])
"""Of the messages, over that of the base station's own update."""


def uplink(name="tuma-self", access_points=1, **settings):
    chosen = SchemeSettings(name=name, quantize=QUANTIZE, codebook="gaussian", side_information="none", **settings)
    return make_scheme(chosen, SchemeContext(block_uses=128, access_points=access_points))


def air(access_points=1, antennas=48):
    """Gains anew in every second slot, on so many antennas that power tells the number of devices."""
    channel = ChannelSettings(
        kind="fading", access_points=access_points, antennas=antennas, snr_db=30.0, block_slots=2, path_loss=3.76
    )
    return Fading(channel, PowerSettings(control="statistical"))


def messages(rng, norms=NORMS, params=640):
    base, *rest = torch.randn(1 + len(norms), params, generator=rng).unbind()
    return base, torch.stack([norm * base.norm() * each / each.norm() for norm, each in zip(norms, rest, strict=True)])


def sent_at(threshold, rng, *, access_points=1, **settings):
    """Send a round whose threshold is so many times the norm of the base station's own update."""
    link, (base, given) = Link(uplink(access_points=access_points, **settings), air(access_points)), messages(rng)
    last = {THRESHOLD: threshold * base.norm().double(), NUM_DEVICES: torch.tensor(5.0)}  # of which five are the target
    return link.scheme, communicate(link, base, given, last, 0)


@pytest.mark.parametrize("settings", [{}, {"access_points": 4}, {"repeat": 2}])
def test_messages_that_reach_the_threshold_arrive_and_others_stay_where_they_are(settings, rng):
    scheme, done = sent_at(1.0, rng, **settings)
    sends = NORMS >= 1
    assert torch.equal(done.air.energy > 0, sends)
    assert torch.equal(done.sent.reconstruction.any(dim=1), sends)
    assert done.output.num_active_hat == pytest.approx(3, abs=0.3)
    assert scheme.diagnose(done.sent, done.broadcast, done.output)["count_accuracy"] > 0.95
    truth = done.sent.reconstruction[sends].mean(dim=0)
    assert float((done.update - truth).norm() / truth.norm()) < 0.25
    assert done.memory[NUM_DEVICES] == done.output.num_active_hat


def test_in_the_first_round_all_devices_send_what_tuma_sends(rng):
    given = messages(rng)
    first, tuma = (communicate(Link(uplink(name), air()), *given, {}, 0) for name in ("tuma-self", "tuma"))
    assert torch.equal(first.sent.signal.superpose(None), tuma.sent.signal.superpose(None))
    assert torch.equal(first.update, tuma.update)
    second, _ = uplink().broadcast(given[0], first.memory, rng=rng)
    assert second.values[THRESHOLD] == pytest.approx(float(given[0].norm()))


def test_a_round_in_which_nobody_sends_changes_nothing(rng):
    _, done = sent_at(10.0, rng)
    assert not done.air.energy.any()
    assert not done.update.any()
    assert done.memory[NUM_DEVICES] < 0.1


def test_the_threshold_moves_by_the_rate_at_most_and_not_where_it_would_change_nothing():
    assert next_threshold(1.0, 0, target=5, own=1.0) == pytest.approx(math.exp(-RATE))
    assert next_threshold(1.0, 5, target=5, own=1.0) == 1
    assert next_threshold(1.0, 50, target=5, own=1.0) == pytest.approx(math.exp(RATE))
    assert next_threshold(LOWEST, 3, target=5, own=1.0) == LOWEST


def test_the_threshold_settles_where_the_target_number_of_devices_sends(rng):
    """Norms with a normal logarithm reach T with the probability Q(ln T / s), which is the target's share at the quantile."""
    devices, target, spread, own = 20, 5, 0.5, 3.0
    threshold, numbers, levels = 0.0, [], []
    for _ in range(4_000):
        norms = (spread * torch.randn(devices, generator=rng)).exp()
        numbers.append(int((norms >= threshold).sum()))
        threshold = next_threshold(threshold, numbers[-1], target, own)
        levels.append(math.log(threshold))
    assert numbers[:2] == [devices, 0]
    quantile = spread * math.sqrt(2) * float(torch.erfinv(torch.tensor(1 - 2 * target / devices)))
    # 5 ± 1.9 devices a round; what is over twice the target moves the threshold too little, in 1 % of the rounds
    assert torch.tensor(numbers[100:]).double().mean() == pytest.approx(target, abs=0.1)
    assert torch.tensor(levels[100:]).mean() == pytest.approx(quantile, abs=0.03)
