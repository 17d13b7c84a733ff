"""The hybrid of whole numbers and remainders; `test_rivals.py` and the conformance suite have what it shares with others."""

import math

import pytest
import torch

from aircomp.channel.awgn import Awgn
from aircomp.errors import ConfigError
from aircomp.link import Link, communicate
from aircomp.measure.metrics import vector_nmse
from aircomp.quantize.remainder import choose_step, divided
from aircomp.schemes.base import SchemeContext
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import SchemeSettings

LAYERS = torch.arange(100) // 40


def messages(devices=10, longer=1.0):
    rng = torch.Generator().manual_seed(0)
    sizes = torch.tensor([1.0, 0.05, 5.0])[LAYERS].repeat_interleave(20)
    given = (torch.randn(1, 2000, generator=rng) + torch.randn(devices + 1, 2000, generator=rng)) * sizes
    given[1:] *= longer
    return given


def rounds(given, snr_db, name="hybrid", number=2, context=None, **settings):
    context = context or SchemeContext(slot_layers=LAYERS)
    link, memory, done = (
        Link(make_scheme(SchemeSettings(name=name, **settings), context), Awgn(snr_db, "transmit")),
        {},
        [],
    )
    for index in range(number):
        done.append(communicate(link, given[0], given[1:], memory, index))
        memory = done[-1].memory
    return done


def error(exchange, given):
    return vector_nmse(given[1:].mean(0), exchange.update)


def test_whole_numbers_and_remainders_add_up():
    values = torch.randn(100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole, rest = divided(values, 0.3)
    assert torch.equal(whole, whole.round())
    assert float(rest.abs().max()) <= 0.15 + 1e-12
    torch.testing.assert_close(0.3 * whole + rest, values)


def test_the_first_round_is_that_of_analog():
    given = messages()
    ours, theirs = rounds(given, 20.0)[0], rounds(given, 20.0, "analog")[0]
    torch.testing.assert_close(ours.update, theirs.update, rtol=1e-4, atol=1e-5)


def test_in_much_noise_every_round_is_that_of_analog():
    given = messages()
    ours, theirs = rounds(given, -5.0)[1], rounds(given, -5.0, "analog")[1]
    torch.testing.assert_close(ours.update, theirs.update, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("snr_db", "share"), [(20.0, 0.6), (30.0, 0.1)])
@pytest.mark.parametrize("longer", [0.3, 1.0, 4.0])
def test_in_little_noise_the_error_is_a_fraction_of_that_of_analog(snr_db, share, longer):
    given = messages(longer=longer)
    ours, theirs = rounds(given, snr_db)[1], rounds(given, snr_db, "analog")[1]
    assert error(ours, given) < share * error(theirs, given)


def test_without_noise_the_mean_is_exact():
    given = messages()
    for done in rounds(given, math.inf):
        torch.testing.assert_close(done.update, given[1:].mean(0), atol=1e-4, rtol=1e-4)


def test_both_parts_have_the_nominal_energy_and_leave_nothing_to_error_feedback():
    given = messages()
    done = rounds(given, 20.0)[1]
    assert float(done.broadcast.values["step"][0]) < math.inf
    assert float(done.air.energy.mean()) == pytest.approx(done.air.nominal_energy, rel=1e-5)
    assert torch.equal(done.sent.reconstruction, given[1:])


def test_devices_that_suddenly_have_longer_updates_still_spend_the_nominal_energy():
    given = messages()
    link = Link(make_scheme("hybrid", SchemeContext(slot_layers=LAYERS)), Awgn(20.0, "transmit"))
    memory = communicate(link, given[0], given[1:], {}, 0).memory
    done = communicate(link, given[0], 30 * given[1:], memory, 1)
    assert float(done.air.energy.mean()) == pytest.approx(done.air.nominal_energy, rel=1e-5)
    assert done.update.isfinite().all()


def test_no_step_is_chosen_in_much_noise_without_noise_and_for_nothing():
    own = torch.randn(2000, generator=torch.Generator().manual_seed(0))
    assert choose_step(own, 10.0, 100) == (math.inf, 0.0)
    assert choose_step(own, 0.0, 100) == (math.inf, 0.0)
    assert choose_step(torch.zeros(2000), 1e-3, 100) == (math.inf, 0.0)
    assert choose_step(own, 1e-4, 100)[0] < choose_step(own, 1e-3, 100)[0] < math.inf


def test_with_fewer_than_two_uses_a_parameter_and_in_fading_it_is_analog():
    given = messages()
    assert float(rounds(given, 20.0, codeword_length=32)[1].broadcast.values["step"][0]) == math.inf
    uplink = make_scheme("hybrid", SchemeContext(slot_layers=LAYERS, block_uses=640))
    memory = {name: torch.tensor(1e-3, dtype=torch.float64) for name in ("noise_var", "length")}
    announced, _ = uplink.broadcast(given[0], memory, rng=torch.Generator().manual_seed(0))
    assert float(announced.values["step"][0]) == math.inf


def test_the_base_station_joins_the_mean():
    given = messages()
    done = rounds(given, 60.0, context=SchemeContext(slot_layers=LAYERS, include_base_station=True))[1]
    torch.testing.assert_close(done.update, given.mean(0), atol=0.01, rtol=0.01)


def test_it_needs_pilots():
    with pytest.raises(ConfigError, match="pilots = 0: expected 1 to 1,000,000"):
        rounds(messages(), 5.0, pilots=0)
