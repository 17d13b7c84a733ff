"""Sketches: what they tell, who is admitted, what they cost, and what defeats them."""

import pytest
import torch

from aircomp.channel.awgn import Awgn
from aircomp.channel.base import Attack, make_channel
from aircomp.channel.settings import FadingSettings, PowerSettings
from aircomp.errors import ConfigError
from aircomp.link import Link
from aircomp.schemes import sketch
from aircomp.schemes.meter import check_power, record_of
from aircomp.schemes.outputs import Vote
from aircomp.schemes.registry import scheme_class
from helpers.schemes import sized

DEVICES, PARAMS, SHARE = 10, 6000, 1 / 15
BAD = torch.arange(DEVICES) < 3


def updates(agreement=0.5, seed=0):
    """Return the base station's own update and those of devices, whose cosines are about `agreement`."""
    drawn = torch.randn(2 + DEVICES, PARAMS, generator=torch.Generator().manual_seed(seed))
    together = agreement**0.5 * drawn[0] + (1 - agreement) ** 0.5 * drawn[1:]
    return together[0], together[1:]


def sent(name, given, own, *, snr_db=10.0, share=SHARE, attack=None):
    rule = "sign-vote" if scheme_class(name).offers is Vote else "mean"
    return Link(sized(name), Awgn(snr_db, "transmit"), rule, sketch=share).send(given, own, attack)


def test_a_sketch_keeps_lengths_and_angles():
    own, given = updates()
    told = sketch.announce(own, {}, DEVICES, 512 * (DEVICES + 1), torch.Generator().manual_seed(0))
    sums = sketch.sums_of(given, told)
    # of 512 sums: lengths to 1/sqrt(1024) = 3 %, cosines to 1/sqrt(512) = .044; four of each
    assert float((sums.norm(dim=1) / given.norm(dim=1) - 1).abs().max()) < 0.13
    cosines = torch.nn.functional.cosine_similarity
    angle = cosines(sums[:-1], sums[1:]) - cosines(given[:-1], given[1:])
    assert float(angle.abs().max()) < 0.18


def test_devices_send_by_the_broadcast_alone_and_nobody_in_the_last_turn():
    own, given = updates()
    told = sketch.announce(own, {}, DEVICES, 1000, torch.Generator().manual_seed(0))
    signal = sketch.send(given, told.at_devices())
    assert signal.values.shape == (DEVICES, DEVICES + 1, 1000 // (DEVICES + 1))
    speaking = signal.slot_energy() > 0
    assert torch.equal(speaking, torch.eye(DEVICES, DEVICES + 1, dtype=torch.bool))


def test_nobody_spends_more_than_the_nominal_energy_in_its_turn():
    own, given = updates()
    told = sketch.announce(own, {}, DEVICES, 1000, torch.Generator().manual_seed(0))
    given[0] *= 1e4
    spent = sketch.send(given, told).slot_energy().sum(dim=1)
    assert float(spent.max()) <= told.num_uses * 1.0001
    assert float(spent[1:].mean()) == pytest.approx(told.num_uses / sketch.MOST, rel=0.1)


@pytest.mark.parametrize("kind", ["long", "flip"])
@pytest.mark.parametrize("name", ["analog", "gamp", "a-dsgd", "tdma-vq", "obda", "perfect", "refined-analog"])
def test_who_sends_too_much_or_the_opposite_stays_silent(name, kind):
    own, given = updates()
    given = torch.where(BAD[:, None], 10 * given if kind == "long" else -given, given)
    done = sent(name, given, own, attack=Attack(BAD))
    assert torch.equal(done.admission.admitted, ~BAD)
    assert not done.sent.reconstruction[BAD].any()
    assert done.sent.reconstruction[~BAD].any(dim=1).all()


@pytest.mark.parametrize("agreement", [0.0, 0.01, 0.5])
def test_honest_devices_are_admitted_however_much_they_agree(agreement):
    refused = 0
    for seed in range(10):
        own, given = updates(agreement, seed)
        refused += int((~sent("baa", given, own).admission.admitted).sum())
    assert refused <= 5  # of 100


def test_noise_of_honest_length_passes_where_honest_devices_do_not_agree():
    own, given = updates(agreement=0.0)
    flipped = torch.where(BAD[:, None], -given, given)
    assert bool(sent("baa", flipped, own).admission.admitted[BAD].any())


def test_the_mean_of_those_who_are_admitted_is_that_of_honest_devices():
    own, given = updates()
    attacked = torch.where(
        BAD[:, None], 10 * torch.randn(given.shape, generator=torch.Generator().manual_seed(9)), given
    )
    truth = given[~BAD].mean(dim=0)

    def error(share):
        found = sent("baa", attacked, own, share=share, attack=Attack(BAD)).update
        return float((found - truth).square().sum() / truth.square().sum())

    assert error(SHARE) < 0.03 < 2 * 0.03 < error(0.0)


def test_a_device_that_lies_in_its_sketch_is_held_to_the_energy_of_one():
    """What it sends after an honest sketch is that of an attacker without sketches: its amplifier bounds it."""
    own, given = updates()
    loud = torch.where(BAD[:, None], 100 * given.flip(1), given)
    done = sent("baa", loud, own, share=0.0, attack=Attack(BAD))
    assert float(done.air.energy[BAD].max()) <= 1.02 * float(done.sent.signal.power * done.broadcast.num_uses)


def test_it_is_metered():
    own, given = updates()
    plain, done = (sent("baa", given, own, share=share) for share in (0.0, SHARE))
    sums = int(SHARE * plain.air.channel_uses) // (DEVICES + 1)
    assert done.air.channel_uses - plain.air.channel_uses == sums * (DEVICES + 1)
    assert done.air.downlink_bits > plain.air.downlink_bits + DEVICES
    more = float((done.air.energy - plain.air.energy).mean()) / float(plain.air.energy.mean())
    assert more == pytest.approx(SHARE / sketch.MOST, rel=0.3)
    assert set(sketch.IDENTITIES) <= set(done.air.side_information)
    check_power([record_of(done.air)])


def test_the_unit_of_length_follows_the_last_round():
    own, given = updates()
    link = Link("baa", Awgn(20.0, "transmit"), sketch=SHARE)
    link.send(5 * given, own)
    again = link.send(5 * given, own).admission
    # lengths of 100 sums behind noise: 15 % each, the median of ten 6 %
    assert float(again.lengths.median()) == pytest.approx(5 * float(given.norm(dim=1).median()), rel=0.35)


def test_jammers_are_heard_in_every_turn():
    own, given = updates()
    quiet, loud = (sent("baa", given, own, attack=each).admission for each in (None, Attack(BAD, jams=True)))
    assert float((quiet.cosines - loud.cosines)[~BAD].abs().max()) > 0.02


def test_turns_that_are_too_short_and_random_phases_are_refused():
    own, given = updates()
    with pytest.raises(ConfigError, match="expected at least 8"):
        sent("baa", given, own, share=0.001)
    channel = make_channel(FadingSettings(antennas=64, snr_db=10.0), PowerSettings(control="none"))
    with pytest.raises(ConfigError, match="arrive in phase"):
        Link("blind-analog", channel, sketch=SHARE)
