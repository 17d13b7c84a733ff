"""The learned schedule: blind when untrained, better when trained, with counts that add up."""

import math
from dataclasses import replace

import pytest
import torch

from aircomp.common.packing import pack
from aircomp.common.radio import GainModel
from aircomp.decoders.fading.blind import Blind
from aircomp.decoders.fading.blind_net import LAYERS, BlindNet, features
from aircomp.decoders.fading.multisource import Schedule, towards_sum
from aircomp.decoders.fading.receiver import Reception
from aircomp.decoders.fading.semi_blind import SHORTEST
from aircomp.decoders.settings import BlindNetSettings, BlindSettings
from aircomp.layer.blind_net import BlindLayer, BlindNetworks
from aircomp.schemes.digital.receivers import make_receiver
from helpers.draws import accuracy, seeded
from helpers.radio import DEVICES, POPULARITY, hear, normal, qpsk

INDEPENDENT = BlindSettings(agreement=0.0)


def faded(codebook, antennas, snr_db, *, slots=150, power_db=0.0, correlation=0.0, seed=0):
    """Hear slots whose gains are new in each; return them with what a receiver knows, and the counts."""
    rng = seeded(seed)
    place = torch.arange(antennas)
    root = torch.linalg.cholesky(correlation ** (place[:, None] - place).abs().double())
    gains = torch.einsum("ab,bks->aks", root.to(torch.complex64), normal(antennas, DEVICES, slots, rng=rng))
    q = math.log(10) / 10 * power_db
    gains = gains * torch.exp(torch.randn(DEVICES, slots, generator=rng) * q / 2 - q**2 / 4)
    received, counts, noise_var, _ = hear(gains, codebook, snr_db, rng=rng)
    model = GainModel.unknown_phase(math.expm1(q**2), correlation)
    return Reception(received, POPULARITY, gain_model=model, num_active=float(DEVICES), noise_var=noise_var), counts


def test_untrained_it_is_blind():
    codebook = qpsk(seeded(0))
    seen, _ = faded(codebook, 4, 5.0, slots=60, power_db=2.0, correlation=0.5)
    for given in (seen, replace(seen, num_active=None, noise_var=None, slot_layers=torch.arange(60) // 30)):
        blind, same = Blind(codebook).receive(given)[0], Blind(codebook, learned=BlindNet()).receive(given)[0]
        assert torch.equal(blind.counts, same.counts)
        torch.testing.assert_close(blind.mean, same.mean, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("antennas", "snr_db", "spread", "gain"),
    [
        (8, 0.0, {}, 0.0),
        (8, 10.0, {}, 0.005),
        (8, 10.0, {"power_db": 3.0}, 0.01),
        (8, 5.0, {"correlation": 0.9}, 0.02),
        (4, 5.0, {}, 0.005),
    ],
)
def test_trained_it_beats_untrained(antennas, snr_db, spread, gain):
    layer, plain = BlindLayer.load(), BlindNetworks.untrained(128, 64, seed=0)
    found = []
    for codebook, net in ((layer.codebook, layer.net), (plain.codebook.detach(), plain.net)):
        seen, counts = faded(pack(codebook), antennas, snr_db, slots=300, **spread)
        found.append(accuracy(Blind(pack(codebook), INDEPENDENT, net).receive(seen)[0].counts, counts))
    assert found[0] > found[1] + gain


@pytest.mark.seconds
@pytest.mark.parametrize(("antennas", "snr_db", "expected"), [(4, 0.0, 0.8), (8, 0.0, 0.98)])
def test_where_gains_stay_it_remembers_them(antennas, snr_db, expected):
    codebook, rng = BlindLayer.load().codebook, seeded(5)
    gains = normal(antennas, DEVICES, 1, rng=rng).expand(-1, -1, 96)
    received, counts, *_ = hear(gains, pack(codebook), snr_db, rng=rng)
    seen = Reception(received, POPULARITY, num_active=float(DEVICES))
    with_memory, without = (
        accuracy(make_receiver("blind-net", codebook, BlindNetSettings(memory=memory)).receive(seen)[0].counts, counts)
        for memory in (True, False)
    )
    assert with_memory > max(expected, without + 0.15)


def test_where_gains_do_not_stay_it_counts_slot_by_slot():
    layer = BlindLayer.load()
    seen, _ = faded(pack(layer.codebook), 8, 5.0, slots=3 * SHORTEST)
    short = tuple(slice(first, first + SHORTEST - 1) for first in range(0, 3 * SHORTEST - 3, SHORTEST - 1))
    seen = replace(seen, received=seen.received[:, : short[-1].stop], blocks=short)
    with_memory, without = (
        make_receiver("blind-net", layer.codebook, BlindNetSettings(memory=memory)).receive(seen)
        for memory in (True, False)
    )
    assert [torch.equal(a.mean, b.mean) for a, b in zip(with_memory, without, strict=True)] == [True] * 3


def test_a_schedule_can_be_shorter_and_then_ends_alike():
    whole = BlindLayer.load().net(8, GainModel.unknown_phase())
    short = whole.first(3)
    assert len(whole.trust) == LAYERS
    assert short.trust.tolist() == [*whole.trust[:2].tolist(), whole.trust[-1].item()]
    assert whole.first(LAYERS + 1) is whole
    assert Schedule.plain(3, 0.3).damping.tolist() == pytest.approx([0, 0.3, 0.3])


def test_counts_are_brought_to_the_number_of_devices():
    rng, counts = seeded(1), torch.arange(5.0)
    weight = torch.softmax(torch.randn(6, 2, 5, 20, generator=rng), 2)
    total = torch.tensor([20.0, 50.0, 80.0, 81.0, 100.0, 120.0])
    bend = towards_sum(weight, counts, total)
    bent = weight * torch.exp(bend[:, None] * counts)[:, None, :, None]
    mean = (bent * counts[:, None]).sum(2) / bent.sum(2)
    torch.testing.assert_close(mean.sum((1, 2)), total, atol=0.01, rtol=0)


def test_a_sum_that_cannot_be_reached_leaves_all_finite():
    certain = torch.zeros(2, 1, 3, 4)
    certain[:, :, 0] = 1.0
    bend = towards_sum(certain, torch.arange(3.0), torch.tensor([0.0, 30.0]))
    assert torch.isfinite(bend).all()


def test_the_sum_carries_its_gradient():
    logits = torch.randn(1, 1, 3, 4, generator=seeded(2), dtype=torch.float64, requires_grad=True)
    counts, total = torch.arange(3.0).double(), torch.tensor([5.0]).double()

    def bent(logits):
        return towards_sum(torch.softmax(logits, 2), counts, total)

    assert torch.autograd.gradcheck(bent, logits, atol=1e-4)


def test_features_are_zero_for_one_antenna_and_follow_the_matrix_of_correlations():
    assert features(1, GainModel.unknown_phase()).tolist() == [0, 0, 0]
    place = torch.arange(6.0)
    matrix = 0.8 ** (place[:, None] - place).abs()
    found = features(6, GainModel.unknown_phase(0.2, 0.8))
    assert float(found[1]) == pytest.approx(math.log(6 / float(matrix.square().sum())))
    assert 0 < float(found[2]) < 1
    assert features(1024, GainModel.unknown_phase(9.0)).tolist() == [1, 0, 1]
