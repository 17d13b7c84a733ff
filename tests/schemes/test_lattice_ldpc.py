"""Lattice codes as a scheme: exact sums, rates that follow the noise, soft values, and who is refused."""

import pytest
import torch

from aircomp.channel.awgn import Awgn
from aircomp.encode.ldpc import GRAPHS, LENGTH, make_code
from aircomp.errors import ConfigError
from aircomp.link import Link, communicate
from aircomp.schemes.lattice_ldpc import LatticeLdpc, _decoded
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import LatticeLdpcSettings
from aircomp.testing import check_uplink

SETTINGS = LatticeLdpcSettings(name="lattice-ldpc")


def rounds(snr_db, number, *, devices=10, params=3000, settings=SETTINGS):
    """The last of so many rounds with the same updates; after the first one the noise is known."""
    given = torch.randn(devices + 1, params, generator=torch.Generator().manual_seed(0))
    done, memory = None, {}
    for index in range(number):
        done = communicate(Link(make_scheme(settings), Awgn(snr_db, "transmit")), given[0], given[1:], memory, index)
        memory = done.memory
    return given, done


def error(done):
    truth = done.sent.reconstruction.mean(dim=0)
    return float((done.update - truth).square().sum() / truth.square().sum())


@pytest.mark.seconds
def test_it_passes_as_every_scheme_does():
    check_uplink(lambda: make_scheme(SETTINGS))


@pytest.mark.parametrize("snr_db", [100.0, 20.0])
def test_decoded_words_are_the_exact_mean_of_what_was_quantised(snr_db):
    _, done = rounds(snr_db, 2)
    assert done.output.diagnostics["words_lost"] == 0
    assert error(done) < 1e-10


def test_levels_and_rate_rise_with_the_signal():
    plans = [rounds(snr_db, 2)[1].broadcast.values["rate"].tolist() for snr_db in (15.0, 20.0)]
    levels = [plan[0] for plan in plans]
    assert levels == sorted(levels)
    assert levels[0] < levels[-1]


def test_ten_devices_are_decoded_below_the_rate_of_equally_likely_sums():
    """Two levels in 3.2 uses need 16.4 dB as elements of a field; the prior of their sum lets 15 dB do."""
    _, done = rounds(15.0, 1)
    assert done.output.diagnostics["words_lost"] < 0.1


def test_where_words_are_lost_soft_values_remain():
    _, done = rounds(5.0, 2)
    assert done.output.diagnostics["words_lost"] == 1
    assert error(done) < 0.2  # one: nothing arrived


@pytest.mark.parametrize(("snr_db", "most"), [(-20.0, 1.0), (-10.0, 0.85), (0.0, 0.3)])
def test_soft_values_behind_much_noise_are_those_that_are_usual(snr_db, most):
    """A dither, of which the prior knows nothing, left errors of 2.8, 2.0 and .43."""
    _, done = rounds(snr_db, 2)
    assert error(done) < most  # one: nothing arrived


def test_few_levels_of_heavy_tailed_updates_leave_less_than_they_send():
    """Most parameters are nearly zero. With a dither each of them had the error of a whole step: 1.5 of the mean's energy."""
    given = torch.randn(11, 6000, generator=torch.Generator().manual_seed(0)) ** 3
    memory, done = {}, None
    for index in range(2):
        done = communicate(Link(make_scheme(SETTINGS), Awgn(20.0, "transmit")), given[0], given[1:], memory, index)
        memory = done.memory
    assert done is not None
    truth = given[1:].mean(dim=0)
    assert float((done.update - truth).square().sum() / truth.square().sum()) < 0.5


def test_words_in_two_coherence_blocks_keep_what_the_channel_tells():
    """A device may be silent in a part of such a word; the sum is then no codeword, and checks would tell what is wrong."""
    code = make_code(17, GRAPHS[0])
    channel = torch.full((2, LENGTH, 17), 0.1 / 16)
    channel[:, :, 0] = 0.9  # the word of zeros, but for one symbol
    channel[:, 5] = channel[:, 5].roll(3, dims=-1)
    words, right, beliefs = _decoded(channel, code, torch.tensor([True, False]))
    assert right.tolist() == [True, False]
    assert not words[0].any()
    torch.testing.assert_close(beliefs[1], channel[1])


def test_a_plan_counts_on_words_that_leave_few_enough_symbols_open():
    scheme = make_scheme(SETTINGS)
    assert isinstance(scheme, LatticeLdpc)
    own = torch.randn(3000, generator=torch.Generator().manual_seed(0)).double()
    quiet, loud = (scheme.plan(own, 9000, noise_var, 10) for noise_var in (1e-6, 6e-3))
    assert quiet.levels > loud.levels


def test_more_devices_than_the_field_holds_and_rounds_shorter_than_a_word_are_refused():
    with pytest.raises(
        ConfigError, match=r"17 devices may send at once, but .*'lattice-ldpc' is for 16 at most; raise"
    ):
        rounds(20.0, 1, devices=17)
    with pytest.raises(ConfigError, match="a codeword of lattice-ldpc has 360 symbols, but the round has 192"):
        rounds(20.0, 1, params=100)
    with pytest.raises(ConfigError, match="has 360 symbols"):
        make_scheme(SETTINGS).check_round(5, 10)
