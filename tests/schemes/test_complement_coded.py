"""Complement coded modulation: the bits, the closed form of linear estimates, and the energies that follow from it."""

import itertools

import pytest
import torch

from aircomp.channel.awgn import Awgn
from aircomp.decoders.digit_sums import estimate_sums, sum_prior
from aircomp.errors import ConfigError
from aircomp.link import Link, communicate
from aircomp.schemes.complement_coded import ComplementCoded, fill
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import ComplementSettings
from aircomp.testing import check_uplink

WEIGHTS = torch.tensor([4.0, 2.0, 1.0], dtype=torch.float64)


def made(**options):
    return make_scheme(ComplementSettings(name="complement-coded", **options))


def second_round(snr_db, *, params=8000, **options):
    """The same updates, of uniform values, sent twice: in the second round the base station knows the noise."""
    given = 2 * torch.rand(11, params, generator=torch.Generator().manual_seed(0)) - 1
    link = Link(made(clip=3**0.5, **options), Awgn(snr_db, "transmit"))
    memory = communicate(link, given[0], given[1:], {}, 0).memory
    return communicate(link, given[0], given[1:], memory, 1)


def squared_error(done):
    return float((done.update - done.sent.reconstruction.mean(dim=0)).double().square().mean())


@pytest.mark.parametrize("options", [{}, {"estimate": "lmmse"}, {"bits": 1}, {"bits": 5, "interleave": True}])
def test_it_passes_as_every_scheme_does(options):
    check_uplink(lambda: made(**options))


@pytest.mark.parametrize("bits", [1, 3, 8])
def test_parts_are_the_bits_of_the_twos_complement(bits):
    scheme, half = made(bits=bits), 2 ** (bits - 1)
    assert isinstance(scheme, ComplementCoded)
    whole = torch.arange(2**bits)
    found = scheme.parts(whole)
    for number, of_number in zip(range(-half, half), found.T.tolist(), strict=True):
        word = int.from_bytes(number.to_bytes(2, "big", signed=True), "big") & (2**bits - 1)
        assert "".join(map(str, of_number)) == f"{word:0{bits}b}"
    torch.testing.assert_close(scheme.weights @ found.double() + half, whole.double())


def test_the_other_sign_complements_every_bit():
    """Values lie between the numbers, symmetric about zero."""
    scheme, whole = made(bits=4), torch.arange(16)
    assert torch.equal(scheme.parts(15 - whole), 1 - scheme.parts(whole))


def test_nothing_of_the_base_stations_update_but_its_scale_is_announced():
    scheme, update = made(), torch.randn(400, generator=torch.Generator().manual_seed(0))
    update[:200].abs_()
    announced = scheme.broadcast(update, {}, rng=torch.Generator())[0].values
    assert announced["means"].eq(0.5).all()
    assert set(announced) == {"scales", "means", "amplitudes", "seed"}


@pytest.mark.parametrize("bits", [1, 2, 3, 6])
@pytest.mark.parametrize("estimate", ["mean", "lmmse"])
def test_without_noise_the_mean_is_exact(bits, estimate):
    done = second_round(float("inf"), bits=bits, params=2000, estimate=estimate)
    torch.testing.assert_close(done.update, done.sent.reconstruction.mean(dim=0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("snr_db", [-5.0, 5.0, 15.0])
def test_linear_estimates_err_by_their_closed_form(snr_db):
    """Six bits: with fewer the dither, which devices share, makes their bits agree. Of bits without energy nobody tells."""
    done = second_round(snr_db, params=20_000, bits=6, estimate="lmmse", codeword_length=128)
    shares = (done.broadcast.values["amplitudes"].double() / 2).square()
    assert float(shares.sum()) == pytest.approx(1, rel=1e-5)
    data_slots = (done.broadcast.num_uses - done.sent.pilot_uses) / 128
    noise = 10 * 10 ** (-snr_db / 10) / 128 * 20_000 / data_slots
    weights = 2.0 ** torch.arange(5, -1, -1, dtype=torch.float64)
    # they are for the noise as pilots tell it, at most 10 % off here
    torch.testing.assert_close(shares, fill(weights, noise, 10), rtol=0, atol=0.015)
    in_half_steps = (weights.square() * 10 * noise / (10 * shares + noise))[shares > 0].sum()
    expected = float(in_half_steps) * (float(done.broadcast.values["scales"][0]) / 63 / 10) ** 2
    # 20,000 squares: 1 % of standard deviation
    assert squared_error(done) == pytest.approx(expected, rel=0.04)


@pytest.mark.parametrize("noise_var", [0.0, 0.3, 3.0, 6.0, 30.0])
def test_no_other_division_of_the_energy_has_less_error(noise_var):
    def error(shares):
        return float((WEIGHTS.square() * 10 * noise_var / (10 * shares + noise_var).clamp(min=1e-12)).sum())

    shares = fill(WEIGHTS, noise_var, 10)
    assert float(shares.sum()) == pytest.approx(1)
    assert (shares >= 0).all()
    for first, second in itertools.product(torch.linspace(0, 1, 41).tolist(), repeat=2):
        if first + second <= 1:
            other = torch.tensor([first, second, 1 - first - second], dtype=torch.float64)
            assert error(shares) <= error(other) * (1 + 1e-9)


def test_bits_have_half_the_energy_of_those_before_and_in_much_noise_the_sign_has_all():
    torch.testing.assert_close(fill(WEIGHTS, 0.0, 10), WEIGHTS / 7)
    assert fill(WEIGHTS, 50.0, 10).tolist() == [1, 0, 0]
    first = communicate(Link(made(), Awgn(0.0)), torch.randn(400), torch.randn(3, 400), {}, 0)
    torch.testing.assert_close(first.broadcast.values["amplitudes"], 2 * (WEIGHTS / 7).sqrt().float())


@pytest.mark.parametrize("noise_var", [0.05, 1.0, 20.0])
def test_posterior_means_err_no_more_than_linear_estimates(noise_var, rng):
    of_sum = sum_prior(torch.tensor([0.5, 0.5]), 10)
    sums = torch.multinomial(of_sum, 40_000, replacement=True, generator=rng).float()
    heard = sums + noise_var**0.5 * torch.randn(40_000, generator=rng)
    found = {e: float((estimate_sums(heard, noise_var, of_sum, e) - sums).square().mean()) for e in ("mean", "lmmse")}
    assert found["lmmse"] == pytest.approx(2.5 * noise_var / (2.5 + noise_var), rel=0.03)
    assert found["mean"] < found["lmmse"] * 1.001


def test_a_round_without_room_for_its_bits_is_refused():
    with pytest.raises(ConfigError, match="complement-coded has 8 numbers for a parameter, but the round room for 2"):
        made(bits=8, codeword_length=2).broadcast(torch.ones(20), {}, rng=torch.Generator())
