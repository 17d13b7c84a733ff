"""What puts numbers into slots: the interleaver."""

import pytest
import torch

from aircomp.channel.awgn import Awgn
from aircomp.encode.carrier import Carrier, make_rotation, plan_air
from aircomp.link import Link, communicate
from aircomp.schemes.registry import make_scheme, scheme_class


def carriers():
    air, rotation = plan_air(40, 16, pilots=4), make_rotation(16, 0, "cpu")
    return Carrier(air, 200, rotation), Carrier(air, 200, rotation, mixed_by=3)


def test_an_interleaver_only_changes_where_numbers_go():
    values = torch.randn(2, 200, generator=torch.Generator().manual_seed(0))
    plain, mixed = carriers()
    assert torch.equal(mixed.numbers_of(mixed.slots_of(values)), values)
    assert torch.equal(mixed.slots_of(values).flatten(1).sort().values, plain.slots_of(values).flatten(1).sort().values)
    assert not torch.equal(mixed.slots_of(values), plain.slots_of(values))


def test_numbers_that_make_a_value_stay_side_by_side():
    air, rotation = plan_air(40, 16, pilots=4), make_rotation(16, 0, "cpu")
    mixed = Carrier(air, 201, rotation, mixed_by=3, together=3)
    values = torch.arange(1.0, 202.0)
    assert torch.equal(mixed.numbers_of(mixed.slots_of(values)), values)
    places = mixed.slots_of(values).flatten()
    first = ((places - 1) % 3 == 0) & (places > 0)
    at = first.nonzero()[:, 0]
    assert len(at) == 67
    assert torch.equal(places[at + 2], places[at] + 2)
    assert not torch.equal(places[at], places[at].sort().values)


def test_values_of_slots_belong_to_the_numbers_in_them():
    mixed = carriers()[1]
    of_slots = torch.arange(36.0)
    filled = mixed.slots_of(torch.ones(200)).bool()
    assert torch.equal(mixed.slots_of(mixed.of_slots(of_slots))[filled], of_slots[:, None].expand_as(filled)[filled])


@pytest.mark.parametrize("name", ["analog", "hybrid", "a-dsgd", "refined-analog"])
def test_interleaving_lowers_the_peak_and_leaves_the_update(name):
    sizes = torch.cat([torch.full((1900,), 0.1), torch.full((100,), 5.0)])
    given = torch.randn(7, 2000, generator=torch.Generator().manual_seed(0)) * sizes
    done = {}
    for interleave in (False, True):
        scheme = make_scheme(scheme_class(name).settings_class(name=name, interleave=interleave))
        done[interleave] = communicate(Link(scheme, Awgn(60.0, "transmit")), given[0], given[1:], {}, 0)
    # sums of a-dsgd mix parameters already
    assert done[True].air.peak_power < (1.01 if name == "a-dsgd" else 0.5) * done[False].air.peak_power
    before = done[False].update
    torch.testing.assert_close(done[True].update, before, atol=0.02 * float(before.abs().max()), rtol=0)
