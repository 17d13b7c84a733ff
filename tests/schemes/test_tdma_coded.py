"""Turns behind a convolutional code: a code as good as is known, blocks that fail when they must, nothing unnoticed."""

import itertools

import pytest
import torch

from aircomp.channel.awgn import Awgn
from aircomp.decoders.viterbi import viterbi
from aircomp.encode.convolutional import MEMORY, PARITY, encode, num_symbols, parity, taps
from aircomp.errors import ConfigError
from aircomp.link import Link, communicate
from aircomp.schemes.registry import make_scheme


def drawn(blocks, bits, seed=0):
    return torch.randint(2, (blocks, bits), generator=torch.Generator().manual_seed(seed)).bool()


def noisy(symbols, ratio_db, seed=1):
    """Add noise at a ratio of energy a bit to the density of noise: of rate one half, the variance is its inverse."""
    noise = torch.randn(symbols.shape, generator=torch.Generator().manual_seed(seed))
    return symbols + 10 ** (-ratio_db / 20) * noise


def found(symbols, blocks):
    return viterbi(symbols.reshape(blocks, -1, 2), taps())[:, : -MEMORY - PARITY]


def plain_encode(bits):
    """Walk the shift register bit by bit."""
    register, out = [0] * 7, []
    for bit in [*bits, *parity(torch.tensor(bits).bool()).int().tolist(), *[0] * MEMORY]:
        register = [bit, *register[:-1]]
        for generator in ("1011011", "1111001"):
            total = sum(int(tap) * value for tap, value in zip(generator, register, strict=True))
            out.append(1 - 2 * (total % 2))
    return out


def test_the_encoder_walks_its_register():
    bits = drawn(1, 20)[0]
    assert encode(bits).tolist() == plain_encode(bits.int().tolist())
    assert num_symbols(20) == len(encode(bits))


def test_the_decoder_finds_the_most_probable_block():
    """Beside all blocks of seven bits, without parity in the way: the nearest one."""
    received = noisy(encode(drawn(8, 7)), -1.0)
    candidates = torch.tensor(list(itertools.product([0, 1], repeat=7))).bool()
    distance = torch.cdist(received, encode(candidates))
    nearest = candidates[distance.argmin(dim=1)]
    decided = viterbi(received.reshape(8, -1, 2), taps())
    right = (parity(decided[:, :7]) == decided[:, 7:-MEMORY]).all(dim=1)
    assert right.any()
    assert torch.equal(decided[right, :7], nearest[right])


@pytest.mark.parametrize(("ratio_db", "low", "high"), [(1.0, 0.015, 0.06), (3.0, 1e-5, 2e-3), (5.0, 0.0, 2e-5)])
def test_bits_err_as_this_code_is_known_to(ratio_db, low, high):
    """Textbooks have about 1e-3 at 3 dB and 1e-5 at 4.3 dB."""
    bits = drawn(300, 224)
    wrong = float((found(noisy(encode(bits), ratio_db), 300) != bits).float().mean())
    assert low <= wrong <= high


def exchange(snr_db, devices=6, params=8000):
    given = torch.randn(devices + 1, params, generator=torch.Generator().manual_seed(0)) ** 3
    return communicate(Link(make_scheme("tdma-coded"), Awgn(snr_db)), given[0], given[1:], {}, 0)


def test_blocks_fail_at_low_snr_and_none_unnoticed():
    """Half a bit a use at SNR Γ: a ratio of Γ; at 1 dB half of the blocks are lost."""
    lost = {}
    for snr_db in (-5.0, 1.0, 10.0):
        done = exchange(snr_db)
        lost[snr_db] = done.output.diagnostics["block_error_rate"]
        sent = done.sent.reconstruction
        arrived = done.output.vectors
        for vector in arrived[arrived.any(dim=1)]:  # what arrived of a device is what it sent, or nothing
            assert any(torch.allclose(vector[vector != 0], own[vector != 0], atol=1e-6) for own in sent)
    assert lost[-5.0] > 0.95
    assert 0.2 < lost[1.0] < 0.8
    assert lost[10.0] == 0


def test_a_round_without_room_for_a_block_is_refused():
    with pytest.raises(ConfigError, match="needs 492 channel uses for a block, but the turn of a device has 384"):
        exchange(10.0, devices=6, params=800)


@pytest.mark.parametrize(("devices", "params"), [(5, 760), (64, 400), (3, 20)])
def test_a_round_in_which_one_turn_has_no_room_is_refused(devices, params):
    with pytest.raises(ConfigError, match="channel uses for a block, but the turn of a device has"):
        exchange(10.0, devices=devices, params=params)
