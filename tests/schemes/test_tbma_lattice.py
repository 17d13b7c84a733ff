"""Type-based multiple access with rounding: how often types are wrong, exact counts without noise, and what is refused."""

import math

import pytest
import torch

from aircomp.channel.awgn import Awgn
from aircomp.errors import ConfigError
from aircomp.link import Link, communicate
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import SchemeSettings


def exchange(levels, snr_db, *, rule="mean", number=6, params=2000, **options):
    settings = SchemeSettings(name="tbma-lattice", levels=levels, **options)
    given = torch.randn(number + 1, params, generator=torch.Generator().manual_seed(0))
    return communicate(Link(make_scheme(settings), Awgn(snr_db, "transmit"), rule), given[0], given[1:], {}, 0)


def hexagon(sigma):
    """Return how often the nearest point of a triangular lattice with side √2 is another one."""
    angle = torch.linspace(0, torch.pi / 6, 10_001, dtype=torch.float64)
    return 6 / torch.pi * float(torch.trapezoid(torch.exp(-1 / (4 * sigma**2 * angle.cos() ** 2)), angle))


@pytest.mark.parametrize(
    ("levels", "wrong"), [(2, lambda sigma: math.erfc(1 / (2 * sigma))), (3, hexagon)]
)  # 2 Q(x) = erfc(x / √2)
def test_types_are_wrong_as_often_as_the_cells_of_their_lattice_say(levels, wrong):
    rng, number, params, sigma = torch.Generator().manual_seed(1), 30, 20_000, 0.42
    base = torch.ones(params)
    outermost = 1.5 * base  # levels are equally frequent, so that types are far from the edges of the simplex
    chosen = torch.randint(levels, (number, params), generator=rng)
    messages = torch.linspace(-1, 1, levels)[chosen] * outermost
    slots = 1000 - 20  # of 20 parameters, one in fifty has pilots
    # a waveform has the energy slots / params, and noise of a channel use the variance number / (64 SNR)
    snr_db = 10 * math.log10(number * params / slots / (64 * sigma**2))
    link = Link(make_scheme(SchemeSettings(name="tbma-lattice", levels=levels)), Awgn(snr_db, "transmit"))
    done = communicate(link, base, messages, {}, 0)
    truth = torch.stack([(chosen == level).sum(dim=0) for level in range(levels)], dim=1)
    found = float((done.output.counts != truth).any(dim=1).double().mean())
    # at least 1,800 errors: 2.4 % standard deviation
    assert found == pytest.approx(wrong(sigma), rel=0.08)


@pytest.mark.parametrize("levels", [2, 3, 4, 8])
@pytest.mark.parametrize("rule", ["mean", "coordinate-median"])
def test_without_noise_every_rule_is_exact(levels, rule):
    done = exchange(levels, float("inf"), rule=rule)
    sent = done.sent.reconstruction.sort(dim=0).values
    truth = sent.mean(0) if rule == "mean" else sent[2:4].mean(0)
    torch.testing.assert_close(done.update, truth, rtol=1e-5, atol=1e-6)


def test_a_slot_has_energy_one_whatever_the_levels():
    for levels in (2, 3, 7):
        done = exchange(levels, 10.0)
        torch.testing.assert_close(done.air.energy, torch.full((6,), done.air.nominal_energy).double())


def test_more_levels_than_there_are_uses_for_leave_parameters_out():
    # of 100 slots four have pilots; neither two levels nor four have one at zero
    for levels, carried in ((2, 2000), (4, 96 * 64 // 4)):
        done = exchange(levels, 10.0)
        assert int(done.sent.reconstruction.any(dim=0).sum()) == carried


def test_a_round_too_short_for_one_parameter_is_refused():
    with pytest.raises(ConfigError, match="tbma-lattice has 8 levels for a parameter, but the round room for 4; use"):
        exchange(8, 10.0, params=20, codeword_length=4)
