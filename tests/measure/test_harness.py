"""The link-level harness: what was sent, what arrives, and who counts it."""

import pytest
import torch

from aircomp.channel.awgn import Awgn, transmit
from aircomp.channel.fading import Fading
from aircomp.common.packing import pack
from aircomp.decoders.amp.gamp import Gamp
from aircomp.decoders.fading.blind import Blind
from aircomp.encode.codebook import count, make_codebook
from aircomp.measure.harness import send
from aircomp.schemes.digital.receiver_csi import OwnPilots
from helpers.draws import seeded

CODEBOOK = make_codebook("two-bases", 32, 16, rng=seeded(0))
POPULARITY = torch.ones(32) / 32
CHOSEN = torch.randint(0, 32, (5, 40), generator=seeded(1))


@pytest.mark.parametrize("reference", ["round", "slot", "transmit"])
def test_white_noise_is_that_of_transmit(reference):
    sent = send(CHOSEN, CODEBOOK, Awgn(5.0, reference), rng=seeded(2))
    counts = count(CHOSEN, 32)
    expected = transmit(counts, CODEBOOK, snr_db=5.0, reference=reference, rng=seeded(2))
    # under `transmit`, the codebook's mean energy is one to what float32 rounds
    torch.testing.assert_close(sent.received[0], expected, rtol=1e-6, atol=1e-6)
    assert torch.equal(sent.counts, counts)


def test_what_is_decoded_is_compared_with_what_was_sent():
    words = torch.randn(32, 3, generator=seeded(3))
    sent = send(CHOSEN, CODEBOOK, Awgn(40.0), rng=seeded(2))
    row = sent.compare(sent.decode(Gamp(CODEBOOK), POPULARITY, num_active=5.0), words)
    assert row["count_accuracy"] > 0.99
    assert row["update_nmse_hard"] < 0.01
    assert row["num_active_mae"] == 0.0


def test_a_receiver_hears_all_antennas():
    found = []
    for antennas in (1, 32):
        channel = Fading(antennas=antennas, block_slots=1, snr_db=10.0, snr_reference="transmit")
        sent = send(CHOSEN, CODEBOOK, channel, rng=seeded(2))
        assert sent.received.shape == (antennas, 40, 16)
        decoded = sent.receive(Blind(pack(CODEBOOK)), POPULARITY, num_active=5.0)
        found.append(sent.compare(decoded, torch.eye(32))["count_accuracy"])
    assert found[1] > found[0] + 0.2


def test_those_who_are_silent_do_not_count_as_sent():
    channel = Fading(control="inversion", block_slots=1)
    chosen = torch.randint(0, 32, (5, 400), generator=seeded(1))  # 16 uses each: 100 blocks
    sent = send(chosen, CODEBOOK, channel, rng=seeded(2))
    assert sent.speaking is not None
    assert torch.equal(sent.counts.sum(1), sent.speaking.sum(0))
    assert 0 < (~sent.speaking).sum() < sent.speaking.numel() / 2


def test_slots_with_pilots_have_no_counts():
    channel = Fading(control="inversion", block_slots=2)  # 8 slots of 16 uses
    plan = OwnPilots(400, 16, channel.block_uses)
    chosen = torch.randint(0, 32, (1, len(plan.rows)), generator=seeded(1))
    sent = send(chosen, CODEBOOK, channel, rng=seeded(2), pilots=plan)
    assert sent.received.shape == (1, 400, 16)
    assert sent.speaking is not None
    assert sent.speaking.shape == chosen.shape
    assert torch.equal(sent.counts.sum(1), sent.speaking.sum(0))
    assert not sent.speaking.all()


def test_gains_may_come_from_a_generator_of_their_own():
    channel = Fading(snr_db=100.0)
    one, other = (send(CHOSEN, CODEBOOK, channel, rng=seeded(seed), fading=seeded(5)) for seed in (2, 3))
    torch.testing.assert_close(one.received, other.received, rtol=0, atol=1e-3)  # noise is 100 dB below
    assert not torch.equal(one.received, other.received)
    alone = send(CHOSEN, CODEBOOK, channel, rng=seeded(2))
    assert (alone.received - one.received).abs().max() > 0.1
