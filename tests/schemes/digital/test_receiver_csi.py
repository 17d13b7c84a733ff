"""The link whose base station learns channels from pilots: what they cost, what they tell, and who is refused."""

import pytest
import torch

import aircomp
from aircomp.channel.fading import Fading
from aircomp.channel.settings import ChannelSettings, PowerSettings
from aircomp.decoders.fading.learnt_channels import learn_channels
from aircomp.decoders.settings import ReceiverCsiSettings
from aircomp.encode.own_pilots import first_of_blocks, own_sequences
from aircomp.errors import ConfigError
from aircomp.link import Link, communicate
from aircomp.quantize.settings import QuantizeSettings
from aircomp.schemes.base import SchemeContext
from aircomp.schemes.digital.drawn import hear_with_pilots
from aircomp.schemes.digital.receiver_csi import OwnPilots
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import SchemeSettings
from helpers.draws import seeded
from helpers.radio import normal


def link(block_slots=32, control="none", snr_db=20.0, antennas=8, **settings):
    quantize = QuantizeSettings(fragment_length=20, num_codewords=32)
    chosen = SchemeSettings(name="receiver-csi", quantize=quantize, codebook="bernoulli", **settings)
    uplink = make_scheme(chosen, SchemeContext(block_uses=64 * block_slots))
    channel = ChannelSettings(kind="fading", snr_db=snr_db, antennas=antennas, block_slots=block_slots)
    return Link(uplink, Fading(channel, PowerSettings(control=control)))


def messages(devices, params, rng):
    base, *rest = (torch.randn(1 + devices, params, generator=rng) ** 3).unbind()
    return base, torch.stack(rest)


def test_pilots_take_the_place_of_slots_and_are_charged(rng):
    base, sent = messages(5, 20 * 64, rng)
    exchange = communicate(link(), base, sent, {}, 0)
    assert exchange.air.num_slots == 64
    assert exchange.air.channel_uses == 64 * 64
    assert exchange.air.pilot_uses == 2 * 64  # one slot in each of two blocks
    torch.testing.assert_close(exchange.air.energy, torch.full((5,), 64.0, dtype=torch.float64), rtol=1e-5, atol=0)
    assert exchange.air.side_information == ("which devices send, so that each has a pilot of its own",)
    left_out = ~exchange.sent.reconstruction.any(dim=0)
    assert int(left_out.sum()) == 2 * 20, "two fragments are left to error feedback"


def test_counts_are_those_of_what_devices_sent(rng):
    base, sent = messages(5, 20 * 70, rng)  # the last block is short
    faded = link()
    exchange = communicate(faded, base, sent, {}, 0)
    found = faded.scheme.diagnose(exchange.sent, exchange.broadcast, exchange.output)
    assert found["count_accuracy"] > 0.98
    assert exchange.output.num_active_hat == 5


def test_silence_is_heard_block_by_block(rng):
    base, sent = messages(6, 20 * 128, rng)
    faded = link(control="inversion", antennas=2)
    exchange = communicate(faded, base, sent, {}, 0)
    speaking = exchange.sent.delivered[:, ::32].sum(0)
    assert len(speaking.unique()) > 1, "nobody is silent: choose another seed"
    counted = exchange.output.counts.sum(1).view(4, 31)[:, 0]
    assert torch.equal(counted, speaking)
    found = faded.scheme.diagnose(exchange.sent, exchange.broadcast, exchange.output)
    assert found["count_accuracy"] > 0.95


def test_orthogonal_sequences_have_one_power_and_no_likeness():
    sequences = own_sequences(64, energy=2.0)
    torch.testing.assert_close(sequences.abs(), torch.full((64, 64), (2 / 64) ** 0.5))
    torch.testing.assert_close(
        sequences @ sequences.mH, 2 * torch.eye(64, dtype=torch.complex64), atol=1e-4, rtol=0
    )  # float32 sums of 64 terms


def test_every_block_begins_with_its_pilots():
    assert first_of_blocks(10, 64, 2, 4 * 64).tolist() == [0, 1, 4, 5, 8, 9]
    assert first_of_blocks(5, 64, 1, 0).tolist() == [0]


def test_channels_are_learnt_as_well_as_the_noise_allows():
    sequences, rng = own_sequences(32), seeded(1)
    channels, noise_var = normal(10, 40, 4, rng=rng), 0.3
    heard = torch.einsum("kba,ku->abu", channels, sequences[:10]) + noise_var**0.5 * normal(4, 40, 32, rng=rng)
    learnt = learn_channels(heard, sequences, 10, silence=False)
    assert learnt.speaking.all()
    # 22 sequences that nobody has, on 4 antennas in 40 blocks: 1.7 % standard deviation
    assert learnt.noise_var == pytest.approx(noise_var, rel=0.06)
    error = float((learnt.channels - channels).abs().square().mean())
    # gains of power one: 1,600 squares, 2.5 %; a device's power is estimated from 160 of them
    assert error == pytest.approx(noise_var / (1 + noise_var), rel=0.1)
    assert float(learnt.left.mean()) == pytest.approx(error, rel=0.1)


@pytest.mark.seconds
def test_learnt_channels_count_as_well_as_measured_before():
    """Table of the pilots' row: .91 at 0 dB, 1 at 5 dB, with eight antennas and one slot of pilots."""
    for snr_db, expected in ((0.0, 0.9), (5.0, 0.97)):
        settings = {"snr_db": snr_db, "snr_reference": "transmit", "antennas": 8, "block_slots": 128}
        channel = ChannelSettings(kind="fading", **settings)
        heard = hear_with_pilots(OwnPilots, channel, PowerSettings(), num_active=10, num_slots=128, seed=0)
        assert heard.accuracy > expected


def test_a_block_that_is_all_pilots_is_refused_in_one_sentence(rng):
    base, sent = messages(3, 400, rng)
    with pytest.raises(ConfigError, match=r"1 slots of pilots leave no other slot of a coherence block, which has 1;"):
        communicate(link(block_slots=1), base, sent, {}, 0)


def test_more_devices_than_sequences_are_refused_with_what_would_do(rng):
    base, sent = messages(32, 400, rng)
    with pytest.raises(ConfigError, match=r"32 devices need a pilot each, .* room for 31 .*; expected at least 2"):
        communicate(link(), base, sent, {}, 0)
    enough = link(decoder=ReceiverCsiSettings(pilots=2))
    assert communicate(enough, base, sent, {}, 0).air.pilot_uses == 2 * 64


def test_odd_codewords_and_copies_are_refused(quick, digits):
    quantize = QuantizeSettings(num_codewords=32)
    with pytest.raises(ConfigError, match=r"codeword_length = 63: 'receiver-csi' takes two real uses"):
        make_scheme(SchemeSettings(name="receiver-csi", quantize=quantize, codeword_length=63, codebook="gaussian"))
    with pytest.raises(ConfigError, match=r"there is no setting uplink.repeat with uplink.name = 'receiver-csi'"):
        aircomp.simulate(quick, dataset=digits, channel="fading", uplink="receiver-csi", **{"uplink.repeat": 2})


def test_a_federated_run_prints_the_share_of_its_pilots(quick, digits):
    run = aircomp.simulate(
        quick.changed(rounds=1),
        dataset=digits,
        channel="fading",
        uplink="receiver-csi",
        **{"channel.antennas": 8, "channel.block_slots": 100},
    )
    assert 0 < run.row["pilot_share"] < 0.05
    assert run.row["count_accuracy"] > 0.95
