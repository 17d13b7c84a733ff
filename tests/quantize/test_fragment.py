import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aircomp.errors import ConfigError, ShapeError
from aircomp.quantize.fragment import join, num_slots, split


@settings(deadline=None, max_examples=50)
@given(batch=st.lists(st.integers(0, 3), max_size=2), num_params=st.integers(0, 70), fragment_length=st.integers(1, 25))
def test_join_undoes_split_exactly(batch: list[int], num_params: int, fragment_length: int):
    update = torch.randn(*batch, num_params, generator=torch.Generator().manual_seed(num_params))
    fragments = split(update, fragment_length)
    assert fragments.shape == (*batch, num_slots(num_params, fragment_length), fragment_length)
    assert torch.equal(join(fragments, num_params), update)


def test_fragments_are_consecutive_and_the_last_is_filled_with_zeros():
    fragments = split(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]), 3)
    assert fragments.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 0.0]]


def test_the_resnet_of_the_paper_fills_13487_slots():
    assert num_slots(269_722, 20) == 13_487


def test_split_keeps_the_dtype():
    assert split(torch.zeros(7, dtype=torch.float64), 2).dtype == torch.float64


@pytest.mark.usefixtures("as_in_production")
def test_impossible_sizes_are_refused():
    with pytest.raises(ConfigError, match="fragment_length = 0"):
        split(torch.zeros(3), 0)
    with pytest.raises(ConfigError, match="num_params = -1"):
        num_slots(-1, 2)
    with pytest.raises(ShapeError, match="2 fragments of length 3 cannot hold 7 parameters; expected 3 fragments"):
        join(torch.zeros(2, 3), 7)
    with pytest.raises(ShapeError, match="cannot hold 3 parameters"):  # a whole fragment too many
        join(torch.zeros(2, 3), 3)
    with pytest.raises(ShapeError, match=r"expected \[\.\.\., slots, fragment\]"):
        join(torch.zeros(3), 3)
    with pytest.raises(ShapeError, match="single number"):
        split(torch.tensor(1.0), 3)
