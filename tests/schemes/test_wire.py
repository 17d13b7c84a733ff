"""The wire form of a broadcast: values come back as they were, and cost what their bytes cost."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aircomp.errors import ConfigError
from aircomp.schemes.base import SIZES, Broadcast
from aircomp.schemes.wire import LONGEST_NAME, TYPES, from_wire, to_wire

SHAPES = st.lists(st.integers(0, 5), max_size=3)


@given(st.lists(st.tuples(st.sampled_from(TYPES), SHAPES), max_size=4), st.integers(0, 99))
@settings(deadline=None, max_examples=50)
def test_values_come_back_with_their_type_shape_and_bits(kinds, seed):
    rng = torch.Generator().manual_seed(seed)
    values = {
        f"value {i}": (200 * torch.rand(shape, generator=rng, dtype=torch.float64) - 100).to(kind)
        for i, (kind, shape) in enumerate(kinds)
    }
    again = from_wire(to_wire(values, "it sends"))
    assert list(again) == list(values)
    for name, value in values.items():
        assert (again[name].dtype, again[name].shape) == (value.dtype, value.shape)
        assert torch.equal(again[name], value)


def test_numbers_that_are_not_finite_travel():
    given = {"odd": torch.tensor([float("nan"), float("inf"), -0.0])}
    assert from_wire(to_wire(given, "it sends"))["odd"].view(torch.int32).equal(given["odd"].view(torch.int32))


def test_what_is_read_shares_no_memory_with_what_was_sent():
    value = torch.ones(3)
    heard = Broadcast(3, 3, {"value": value}).at_devices()
    value.zero_()
    assert heard.values["value"].tolist() == [1.0, 1.0, 1.0]


def test_a_view_travels_as_what_it_shows():
    value = torch.arange(12).view(3, 4).T[::2]
    assert torch.equal(from_wire(to_wire({"v": value}, "it sends"))["v"], value)


def test_a_value_costs_its_bytes_and_a_few_for_its_name_and_shape():
    # count, name's length and two letters, type, number of axes, 1000 in two bytes of seven bits, 4,000 bytes
    assert len(to_wire({"ab": torch.zeros(1000)}, "it sends")) == 1 + 3 + 2 + 2 + 4000


def test_devices_read_both_sizes_and_no_more_than_was_sent():
    sent = Broadcast(12_345, 678, {"unit": torch.ones(())}, agreed={"secret": torch.ones(1)})
    heard = Broadcast.read(sent.wire)
    assert (heard.num_params, heard.num_uses, list(heard.values), dict(heard.agreed)) == (12_345, 678, ["unit"], {})


@pytest.mark.parametrize("name", ["", "x" * (LONGEST_NAME + 1)])
def test_a_name_that_does_not_fit_is_refused(name):
    with pytest.raises(ConfigError, match="broadcasts a value named"):
        _ = Broadcast(1, 1, {name: torch.ones(1)}).wire


def test_a_value_cannot_take_the_place_of_the_sizes():
    with pytest.raises(ConfigError, match="'sizes', which every broadcast has; rename it"):
        _ = Broadcast(1, 1, {SIZES: torch.ones(2)}).wire
