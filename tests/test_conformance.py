"""Every part of the package passes the checks that users' own parts are given, and broken ones do not."""

import importlib.util
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
import torch

import aircomp
from aircomp.channel.awgn import Awgn
from aircomp.channel.base import AtDevices, Csi, make_channel
from aircomp.channel.settings import ChannelSettings, PowerSettings
from aircomp.channel.signal import Gains, Symbols
from aircomp.common.packing import unpack
from aircomp.common.rng import generator
from aircomp.decoders.fading.blind import Blind
from aircomp.decoders.settings import BlindNetSettings
from aircomp.errors import ConfigError, PowerMismatch
from aircomp.link import Link, communicate
from aircomp.quantize.codebook import Quantizer, build
from aircomp.quantize.settings import QuantizeSettings
from aircomp.schemes.digital.counting import LEARNED
from aircomp.schemes.digital.receivers import make_receiver, receiver_names
from aircomp.schemes.registry import make_scheme, scheme_class
from aircomp.testing import check_channel, check_quantizer, check_receiver, check_rule, check_uplink
from helpers.schemes import needs_phase, sized


@pytest.fixture(scope="session")
def analog_sum():
    path = Path(__file__).parents[1] / "examples" / "analog_sum.py"
    spec = importlib.util.spec_from_file_location("analog_sum", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["analog_sum"] = module
    spec.loader.exec_module(module)
    yield module.AnalogSum
    del sys.modules["analog_sum"]


SLOW = ("posterior", "blind", "blind-net", "semi-blind", "covariance", "tuma", "tuma-self", "md-aircomp-plus")
"""Uplinks whose conformance takes more than ten seconds; receivers also pass `check_receiver` on their own."""


@pytest.mark.seconds
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in SLOW else ())
        for name in aircomp.uplink_names()
        # without noise trained networks still err: amp-da-net in the number of devices, nomographic in the mean
        if name not in ("amp-da-net", "nomographic")
    ],
)
def test_every_uplink_passes(name):
    check_uplink(lambda: make_scheme(small(name)), CHANNELS.get(name, Awgn))


def small(name):
    """Return a scheme's settings with 64 codewords, where they were not learned."""
    return sized(name, num_codewords=None if scheme_class(name).facts.sends == LEARNED else 64)


def hardened(snr_db, antennas=192):
    """Random phases on so many antennas that power alone tells the number of devices, anew in every slot."""
    settings = ChannelSettings(kind="fading", snr_db=snr_db, antennas=antennas, block_slots=1)
    return make_channel(settings, PowerSettings())


def staying(snr_db, antennas=8):
    """Random phases that stay for the round, on some antennas."""
    return make_channel(ChannelSettings(kind="fading", snr_db=snr_db, antennas=antennas), PowerSettings())


CHANNELS = dict.fromkeys(
    [name for name in (*receiver_names(), "tuma", "tuma-self") if not needs_phase(name)], hardened
) | {
    "reed": partial(hardened, antennas=512),
    "receiver-csi": staying,
    "md-aircomp-plus": partial(staying, antennas=512),
}
"""Of the schemes that are not for the paper's: energies of devices disturb each other, also without noise."""


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *(
            pytest.param(name, None, marks=pytest.mark.slow if name in ("semi-blind", "blind-net") else ())
            for name in receiver_names()
        ),
        ("blind-net", BlindNetSettings(memory=False)),
    ],
)
def test_every_receiver_passes(name, settings):
    def make(codebook):
        return make_receiver(name, unpack(codebook, 2 * codebook.shape[1]), settings)

    check_receiver(make, in_phase=needs_phase(name))


def test_a_receiver_that_prefers_the_first_block_fails():
    class First(Blind):
        def receive(self, seen):
            return super().receive(seen)[:1]

    with pytest.raises(AssertionError, match="1 results came back for 2 blocks"):
        check_receiver(First)


@pytest.mark.seconds
def test_a_repeated_link_passes():
    check_uplink(lambda: make_scheme(small("gamp").changed(repeat=2)))


def test_the_example_of_a_scheme_passes(analog_sum):
    check_uplink(analog_sum)


def test_a_rule_that_the_output_cannot_serve_is_refused_before_training(analog_sum, digits, quick):
    with pytest.raises(ConfigError, match="'trimmed-mean' was given, but this uplink offers a mean"):
        aircomp.simulate(quick.changed(rounds=0), dataset=digits, uplink=analog_sum(), aggregator="trimmed-mean")


def test_the_meter_refuses_a_run_whose_noise_followed_another_power(analog_sum, digits, quick):
    class Quiet(analog_sum):
        def encode(self, messages, broadcast, csi, *, rng):
            sent = super().encode(messages, broadcast, csi, rng=rng)
            return replace(sent, signal=Symbols(0.9 * sent.signal.values, sent.signal.power))

    settings = quick.changed(**{"rounds": 1, "channel.snr_reference": "transmit"})
    aircomp.simulate(settings, dataset=digits, uplink=analog_sum())
    with pytest.raises(PowerMismatch, match=r"devices spent 0\.81 times the nominal power"):
        aircomp.simulate(settings, dataset=digits, uplink=Quiet())


# ── channels ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Rayleigh(Awgn):
    """Block fading on several antennas, drawn block by block; no power control."""

    antennas: int = 2
    block_uses: int = 64

    def sound(self, num_devices, num_uses, *, rng):
        blocks = -(-num_uses // self.block_uses)
        drawn = torch.randn(blocks, num_devices, 16 * self.antennas, generator=rng)[..., : 2 * self.antennas]
        gains = torch.view_as_complex(drawn.unflatten(2, (-1, 2)).contiguous()).transpose(0, 1) / 2**0.5
        return Csi(AtDevices(num_devices), Gains(gains, self.block_uses))


@dataclass(frozen=True)
class Inverted(Rayleigh):
    """The same on one antenna, inverted where it is strong enough, silent elsewhere: silence is per block."""

    antennas: int = 1

    def sound(self, num_devices, num_uses, *, rng):
        csi = super().sound(num_devices, num_uses, rng=rng)
        gains = csi.gains.values[:, :, 0]
        scale = torch.where(gains.abs() > 0.4, 1 / gains, 0)
        return replace(csi, at_devices=AtDevices(num_devices, scale, self.block_uses))


@pytest.mark.parametrize(
    "make",
    [lambda: make_channel(ChannelSettings(snr_db=5.0), PowerSettings()), lambda: Rayleigh(5.0), lambda: Inverted(5.0)],
)
def test_every_channel_passes(make):
    check_channel(make)


def test_a_channel_that_draws_a_longer_round_anew_fails():
    class Anew(Rayleigh):
        def sound(self, num_devices, num_uses, *, rng):
            csi = super().sound(num_devices, num_uses, rng=rng)
            return replace(csi, gains=Gains(csi.gains.values.flip(1), self.block_uses))

    with pytest.raises(AssertionError, match="schemes would not share them"):
        check_channel(lambda: Anew(5.0))


def test_every_signal_adds_up_under_gains_as_its_devices_do_one_by_one(rng):
    uplink = make_scheme(small("gamp").changed(repeat=3))
    base, *messages = torch.randn(5, 900, generator=rng).unbind()
    announced, _ = uplink.broadcast(base, {}, rng=rng)
    csi = Rayleigh(0.0, antennas=3).sound(4, announced.num_uses, rng=rng)
    signal = uplink.encode(torch.stack(messages), announced, csi.at_devices, rng=rng).signal
    slots, uses = next(signal.each()).shape
    per_slot = csi.gains.of_slots(slots, uses)
    expected = sum(per_slot[k].T[:, :, None] * symbols.to(per_slot.dtype) for k, symbols in enumerate(signal.each()))
    # float32 sums of four terms of order one
    torch.testing.assert_close(signal.superpose(csi.gains), expected, rtol=1e-5, atol=1e-5)
    plain = Symbols(torch.stack(list(signal.each())), signal.power)
    torch.testing.assert_close(plain.superpose(csi.gains), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(plain.slot_energy(), signal.slot_energy(), rtol=1e-6, atol=0)
    torch.testing.assert_close(plain.slot_peak(), signal.slot_peak(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("uplink", ["gamp", "analog"])
def test_silence_is_per_block_and_stays_in_the_error_memory(uplink, analog_sum, digits, quick):
    chosen = {"uplink": analog_sum()} if uplink == "analog" else {"uplink": "gamp"}
    happened = []
    run = aircomp.simulate(
        quick.changed(**{"rounds": 1, "feedback.kind": "plain"}),
        dataset=digits,
        channel=Inverted(200.0),
        on_round=lambda _, round_: happened.append(round_.exchange),
        **chosen,
    )
    exchange = happened[0]
    sounded = Inverted(200.0).sound(len(exchange.messages), exchange.broadcast.num_uses, rng=generator(0, "fading", 0))
    speaking = sounded.at_devices.speaking(exchange.broadcast.num_uses // 64, 64)
    num_params = exchange.messages.shape[1]
    spoken = speaking.repeat_interleave(20, dim=1)[:, :num_params]
    if uplink == "analog":  # every number as often as the budget has room for, in uses side by side
        times = (exchange.broadcast.num_uses - 64) // num_params
        spoken = speaking.repeat_interleave(64, dim=1)[:, ::times][:, :num_params]
    assert not exchange.sent.reconstruction[~spoken].any()
    silent = ~exchange.sent.reconstruction.bool()
    assert 0.02 < float(silent.float().mean()) < 0.5  # 15 % of the blocks are too weak
    for message, reconstruction, memory in zip(
        exchange.messages, exchange.sent.reconstruction, run.state.memories.values(), strict=True
    ):
        torch.testing.assert_close(memory, message - reconstruction)
    assert exchange.air.energy.std() > 0


# ── rules and quantisers ─────────────────────────────────────────────────────────────────────────────────────────────


def mine(counts, codewords):
    return counts.to(codewords.dtype) @ codewords / counts.sum(dim=1, keepdim=True).clamp(min=1)


@pytest.mark.parametrize("rule", [*aircomp.aggregator_names(), mine])
def test_every_rule_passes(rule):
    check_rule(rule)


def test_a_rule_that_prefers_the_first_codewords_fails():
    with pytest.raises(AssertionError, match="the order of the codewords matters"):
        check_rule(lambda counts, codewords: codewords[(counts > 0).int().argmax(dim=1)])


@pytest.mark.parametrize("settings", [{}, {"order": "cosine"}, {"lloyd_iterations": 3}, {"curvature_aware": True}])
def test_every_quantiser_passes(settings):
    chosen = QuantizeSettings(fragment_length=6, num_codewords=16, **settings)
    check_quantizer(lambda fragments, rng: build(fragments, chosen, rng=rng))


def test_a_quantiser_with_a_wrong_popularity_fails():
    def wrong(fragments, rng):
        found = build(fragments, QuantizeSettings(fragment_length=6, num_codewords=16), rng=rng)
        return Quantizer(found.codebook, 2 * found.popularity, found.base_indices)

    with pytest.raises(AssertionError, match="sums to 2, not to one"):
        check_quantizer(wrong)


# ── complex signals ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_two_real_uses_packed_into_a_complex_one_cost_and_meet_the_same(analog_sum, rng):
    class Packed(analog_sum):
        def broadcast(self, base_update, memory, *, rng):
            announced, private = super().broadcast(base_update, memory, rng=rng)
            return replace(announced, num_uses=announced.num_uses // 2), private

        def encode(self, messages, broadcast, csi, *, rng):
            whole = replace(broadcast, num_uses=2 * broadcast.num_uses)
            sent = super().encode(messages, whole, csi, rng=rng)
            pairs = torch.view_as_complex(sent.signal.values.unflatten(2, (-1, 2)))
            return replace(sent, signal=Symbols(pairs, 2 * sent.signal.power), pilot_uses=sent.pilot_uses // 2)

        def decode(self, received, broadcast, private, csi):
            whole = replace(broadcast, num_uses=2 * broadcast.num_uses)
            return super().decode(torch.view_as_real(received).flatten(2), whole, private, csi)

    base, *messages = torch.randn(7, 6400, generator=rng).unbind()
    exchanges = [
        communicate(Link(uplink, Awgn(0.0, "transmit")), base, torch.stack(messages), {}, 0)
        for uplink in (analog_sum(), Packed())
    ]
    real, packed = (exchange.air for exchange in exchanges)
    assert (packed.channel_uses, packed.pilot_uses) == (real.channel_uses, real.pilot_uses)
    assert packed.nominal_energy == pytest.approx(real.nominal_energy)
    torch.testing.assert_close(packed.energy, real.energy)
    truth = torch.stack(messages).mean(dim=0)
    errors = [float((e.update - truth).square().mean()) for e in exchanges]
    assert errors[0] == pytest.approx(
        errors[1], rel=0.1
    )  # 6,400 squares: 1.8 % standard deviation, and the pilots' noise
