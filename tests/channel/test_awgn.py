import math

import pytest
import torch

from aircomp.channel.awgn import Awgn, add_noise, noise_variance, superpose, transmit
from aircomp.channel.base import AtDevices, Channel, Csi
from aircomp.channel.signal import Symbols
from aircomp.encode.codebook import count
from aircomp.errors import ConfigError, ShapeError
from helpers.draws import seeded


def make_round(slots: int, num_active: int, codewords: int = 16, uses: int = 8, seed: int = 1):
    rng = seeded(seed)
    codebook = torch.randn(codewords, uses, generator=rng)
    codebook = codebook / codebook.norm(dim=1, keepdim=True)
    indices = torch.randint(codewords, (slots, num_active), generator=rng)
    return count(indices.T, codewords), codebook, indices


def test_superposition_is_the_sum_of_every_devices_codeword():
    counts, codebook, indices = make_round(slots=20, num_active=5)
    one_by_one = torch.zeros(20, 8)
    for slot in range(20):
        for index in indices[slot]:
            one_by_one[slot] += codebook[index]
    torch.testing.assert_close(superpose(counts, codebook), one_by_one, rtol=0, atol=1e-6)  # float32 order of sums


@pytest.mark.parametrize("reference", ["round", "slot", "transmit"])
@pytest.mark.parametrize("snr_db", [-5.0, 10.0])
def test_measured_noise_power_is_the_defined_one(reference, snr_db):
    counts, codebook, _ = make_round(slots=20_000, num_active=4)
    received = transmit(counts, codebook, snr_db=snr_db, reference=reference, rng=seeded(2))
    signal = counts.double() @ codebook.double()
    if reference == "round":
        variance = signal.square().mean().expand(20_000) / 10 ** (snr_db / 10)
    elif reference == "slot":
        variance = signal.square().mean(dim=1) / 10 ** (snr_db / 10)
    else:
        variance = torch.full((20_000,), 4 / 8 / 10 ** (snr_db / 10), dtype=torch.float64)
    assert (variance > 0).all()
    standard = (received.double() - signal) / variance.sqrt()[:, None]
    # N = 160,000 squares of standard normals: mean 1, standard deviation sqrt(2/N); six of them. Zero noise gives 0.
    bound = 6 * math.sqrt(2 / standard.numel())
    assert abs(standard.square().mean().item() - 1) < bound
    assert abs(standard.mean().item()) < 6 / math.sqrt(standard.numel())


def test_slot_noise_is_right_in_every_slot_and_not_only_on_average():
    signal = torch.tensor([[1.0], [10.0]]).expand(2, 50_000)
    sent, csi = Symbols(signal[None], power=1.0), Csi(AtDevices(1))
    noise = Awgn(0.0, "slot").carry(sent, csi, rng=seeded(0))[0] - signal
    measured = noise.square().mean(dim=1) / torch.tensor([1.0, 100.0])
    assert (measured - 1).abs().max().item() < 6 * math.sqrt(2 / 50_000)


def test_noise_is_white_over_uses_and_slots():
    noise = add_noise(torch.zeros(4000, 20), torch.ones(4000), rng=seeded(3))
    covariance = noise.T @ noise / 4000
    # off-diagonal entries are means of 4,000 products of independent normals: standard deviation 1/sqrt(4000)
    off_diagonal = covariance - torch.diag(covariance.diagonal())
    assert off_diagonal.abs().max().item() < 6 / math.sqrt(4000)
    assert abs((noise[1:] * noise[:-1]).mean().item()) < 6 / math.sqrt(noise[1:].numel())


def test_infinite_snr_returns_the_superposed_signal():
    counts, codebook, _ = make_round(slots=10, num_active=3)
    received = transmit(counts, codebook, snr_db=math.inf, rng=seeded(0))
    assert torch.equal(received, superpose(counts, codebook))


@pytest.mark.parametrize("snr_db", [-math.inf, math.nan])
def test_an_snr_without_meaning_is_refused(snr_db):
    counts, codebook, _ = make_round(slots=10, num_active=3)
    with pytest.raises(ConfigError, match="snr_db"):
        transmit(counts, codebook, snr_db=snr_db, rng=seeded(0))


@pytest.mark.parametrize("reference", ["round", "slot", "transmit"])
def test_a_round_in_which_nobody_transmits_is_received_as_silence(reference):
    _, codebook, _ = make_round(slots=1, num_active=1)
    received = transmit(torch.zeros(7, 16, dtype=torch.int64), codebook, snr_db=0.0, reference=reference, rng=seeded(0))
    assert torch.equal(received, torch.zeros(7, 8))


def test_the_number_of_devices_is_read_from_the_counts_if_not_given():
    counts, codebook, _ = make_round(slots=10, num_active=3)
    told, read, other = (
        transmit(counts, codebook, snr_db=0.0, reference="transmit", rng=seeded(0), num_active=num_active)
        for num_active in (3, None, 6)
    )
    assert torch.equal(told, read)
    assert not torch.equal(told, other)


def test_transmit_reference_measures_the_codebooks_own_power():
    counts, codebook, _ = make_round(slots=10, num_active=3)
    once = transmit(counts, codebook, snr_db=0.0, reference="transmit", rng=seeded(0))
    thrice = transmit(counts, 3 * codebook, snr_db=0.0, reference="transmit", rng=seeded(0))
    torch.testing.assert_close(thrice, 3 * once, rtol=1e-5, atol=1e-6)  # float32


def test_equal_generators_give_equal_bits_and_others_do_not():
    counts, codebook, _ = make_round(slots=10, num_active=3)
    first, again, other = (transmit(counts, codebook, snr_db=0.0, rng=seeded(seed)) for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_global_random_state_plays_no_part():
    before = torch.random.get_rng_state()
    counts, codebook, _ = make_round(slots=10, num_active=3)
    transmit(counts, codebook, snr_db=0.0, rng=seeded(5))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("uses", [1, 7, 16, 20, 64])
def test_noise_bits_do_not_depend_on_how_the_slots_are_cut_into_pieces(uses):
    signal, variance = torch.zeros(101, uses), torch.ones(101)
    whole = add_noise(signal, variance, rng=seeded(0))
    rng = seeded(0)
    pieces = [add_noise(signal[:size], variance[:size], rng=rng) for size in (1, 40, 60)]
    assert torch.equal(torch.cat(pieces), whole)


def test_noise_depends_on_neither_signal_nor_level_except_for_its_scale():
    signal = torch.randn(50, 20, generator=seeded(1), dtype=torch.float64)
    low = add_noise(signal, torch.full((50,), 1.0, dtype=torch.float64), rng=seeded(0)) - signal
    high = add_noise(0 * signal, torch.full((50,), 9.0, dtype=torch.float64), rng=seeded(0))
    torch.testing.assert_close(3 * low, high, rtol=0, atol=1e-12)  # float64 rounding of the subtraction


def test_awgn_is_a_channel_and_does_what_transmit_does():
    counts, codebook, _ = make_round(slots=10, num_active=3)
    channel: Channel = Awgn(3.0, "round")
    csi = channel.sound(3, 80, rng=seeded(0))
    sent = Symbols(superpose(counts, codebook)[None], power=1 / 8)
    received = channel.carry(sent, csi, rng=seeded(4))
    assert torch.equal(received[0], transmit(counts, codebook, snr_db=3.0, rng=seeded(4)))


def test_the_codebook_gets_the_gradient_of_the_signal_alone():
    counts, codebook, _ = make_round(slots=10, num_active=3)
    codebook.requires_grad_()
    transmit(counts, codebook, snr_db=0.0, reference="slot", rng=seeded(0)).sum().backward()
    expected = counts.sum(dim=0).to(codebook.dtype)[:, None].expand(16, 8)
    torch.testing.assert_close(codebook.grad, expected, rtol=1e-6, atol=0)


def test_dtype_follows_the_codebook():
    counts, codebook, _ = make_round(slots=10, num_active=3)
    assert transmit(counts, codebook.double(), snr_db=0.0, rng=seeded(0)).dtype == torch.float64
    small = transmit(counts.to(torch.uint8), codebook, snr_db=0.0, rng=seeded(0))
    assert torch.equal(small, transmit(counts, codebook, snr_db=0.0, rng=seeded(0)))


@pytest.mark.usefixtures("as_in_production")
def test_counts_that_do_not_fit_the_codebook_are_refused():
    counts, codebook, _ = make_round(slots=10, num_active=3)
    with pytest.raises(ShapeError, match=r"counts has shape \(10, 15\)"):
        transmit(counts[:, 1:], codebook, snr_db=0.0, rng=seeded(0))


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_counts_that_no_devices_can_have_sent_are_refused(value):
    _, codebook, _ = make_round(slots=10, num_active=3)
    with pytest.raises(ShapeError, match=r"counts .*(holds negative|not finite)"):
        transmit(torch.full((2, 16), value), codebook, snr_db=0.0, rng=seeded(0))


def test_a_codebook_that_is_not_finite_is_refused():
    counts, codebook, _ = make_round(slots=10, num_active=3)
    with pytest.raises(ShapeError, match=r"codebook is .* with values that are not finite"):
        transmit(counts, codebook * math.nan, snr_db=0.0, rng=seeded(0))


def test_noise_power_over_the_round_is_that_of_the_definition_used_by_decoders():
    counts, codebook, _ = make_round(slots=5000, num_active=10)
    signal = superpose(counts, codebook)
    expected = noise_variance(signal, 5.0, "round", num_active=10)[0].item()
    noise = transmit(counts, codebook, snr_db=5.0, rng=seeded(1)) - signal
    assert noise.square().mean().item() == pytest.approx(expected, rel=6 * math.sqrt(2 / noise.numel()))
