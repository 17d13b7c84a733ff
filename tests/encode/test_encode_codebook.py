import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aircomp.common.packing import pack
from aircomp.encode.codebook import _STEP, _adam, codebook_kinds, count, make_codebook
from aircomp.errors import ConfigError, ShapeError
from aircomp.schemes.settings import SchemeSettings

EPS = torch.finfo(torch.float32).eps


DRAWN = [kind for kind in codebook_kinds() if kind != "low-coherence"]
"""The kinds that take no descent."""


@pytest.mark.parametrize("kind", codebook_kinds())
@pytest.mark.parametrize(("num_codewords", "codeword_length"), [(128, 64), (5, 8), (16, 8), (1, 2)])
def test_rows_have_unit_norm(kind: str, num_codewords: int, codeword_length: int, rng: torch.Generator):
    codebook = make_codebook(kind, num_codewords, codeword_length, rng=rng)
    assert codebook.shape == (num_codewords, codeword_length)
    assert codebook.dtype == torch.float32
    # drawn in float64 and rounded once: the norm is off by half an eps at most, measured here in float64
    norms = codebook.double().norm(dim=1)
    torch.testing.assert_close(norms, torch.ones_like(norms), rtol=0, atol=EPS)


@pytest.mark.parametrize("kind", codebook_kinds())
def test_the_same_generator_gives_the_same_codebook_and_another_does_not(kind: str):
    books = [make_codebook(kind, 128, 64, rng=torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert torch.equal(books[0], books[1])
    assert not torch.equal(books[0], books[2])


@pytest.mark.parametrize("length", [2, 16, 64])
def test_two_bases_are_orthonormal_and_flat_to_each_other(length: int, rng: torch.Generator):
    codebook = make_codebook("two-bases", 2 * length, length, rng=rng)
    first, second = codebook[:length], codebook[length:]
    # a product of unit rows of float32 entries sums `length` roundings of at most eps each, on a scale of 1
    tolerance = {"rtol": 0.0, "atol": math.sqrt(length) * EPS}
    torch.testing.assert_close(first @ first.T, torch.eye(length), **tolerance)
    torch.testing.assert_close(second @ second.T, torch.eye(length), **tolerance)
    flat = torch.full((length, length), 1 / math.sqrt(length))
    torch.testing.assert_close((first @ second.T).abs(), flat, **tolerance)


@pytest.mark.parametrize(("codewords", "length"), [(144, 16), (128, 32), (256, 64), (256, 128)])
def test_several_bases_are_orthonormal_and_as_far_from_each_other_as_quadratic_forms_allow(codewords: int, length: int):
    codebook = make_codebook("bases", codewords, length, rng=torch.Generator().manual_seed(3)).double()
    overlaps = (codebook @ codebook.T).abs()
    odd = length.bit_length() % 2 == 0  # 32 = 2⁵
    for basis in range(codewords // length):
        own = overlaps[basis * length :][:length, basis * length :][:, :length]
        torch.testing.assert_close(own, torch.eye(length, dtype=torch.float64), atol=1e-6, rtol=0)
    assert float((overlaps - torch.eye(codewords)).max()) <= ((2 if odd else 1) / length) ** 0.5 + 1e-6


def test_the_first_two_of_several_bases_are_two_bases():
    kinds = [make_codebook(kind, 20, 16, rng=torch.Generator().manual_seed(3)) for kind in ("two-bases", "bases")]
    assert torch.equal(*kinds)


def test_fewer_codewords_are_the_first_rows_of_two_bases():
    full = make_codebook("two-bases", 32, 16, rng=torch.Generator().manual_seed(3))
    part = make_codebook("two-bases", 20, 16, rng=torch.Generator().manual_seed(3))
    assert torch.equal(part, full[:20])


def test_the_rotation_of_two_bases_is_uniform_in_sign():
    corners = [make_codebook("two-bases", 2, 2, rng=torch.Generator().manual_seed(s))[0] for s in range(400)]
    # a uniform direction has mean zero and variance 1/2 in each entry: four deviations of a mean of 400
    assert torch.stack(corners).mean(dim=0).abs().max() < 4 * math.sqrt(0.5 / 400)


def test_bernoulli_entries_have_one_magnitude_and_both_signs(rng: torch.Generator):
    codebook = make_codebook("bernoulli", 128, 64, rng=rng)
    torch.testing.assert_close(codebook.abs(), torch.full((128, 64), 1 / 8), rtol=0, atol=0)
    # 8192 fair signs: four deviations of their mean
    assert codebook.sign().mean().abs() < 4 / math.sqrt(128 * 64)


@pytest.mark.parametrize("seed", range(5))
def test_bernoulli_rows_are_distinct_even_when_all_are_needed(seed: int):
    codebook = make_codebook("bernoulli", 32, 5, rng=torch.Generator().manual_seed(seed))
    assert len(codebook.unique(dim=0)) == 32


def test_gaussian_rows_point_in_random_directions(rng: torch.Generator):
    codebook = make_codebook("gaussian", 128, 64, rng=rng)
    gram = codebook @ codebook.T - torch.eye(128)
    # inner products of random directions have variance 1/l; 8128 different pairs make the mean square sharp
    assert gram.square().sum() / (128 * 127) == pytest.approx(1 / 64, rel=0.1)


@settings(deadline=None, max_examples=50)
@given(devices=st.integers(0, 6), slots=st.integers(0, 5), kind=st.sampled_from(DRAWN), seed=st.integers(0, 99))
def test_summed_codewords_are_counts_times_codebook(devices: int, slots: int, kind: str, seed: int):
    rng = torch.Generator().manual_seed(seed)
    codebook = make_codebook(kind, 16, 8, rng=rng)
    indices = torch.randint(16, (devices, slots), generator=rng)
    counts = count(indices, 16)
    assert counts.dtype == torch.int64
    assert counts.shape == (slots, 16)
    assert (counts.sum(dim=1) == devices).all()
    # two orders of summing at most six entries of at most 1
    torch.testing.assert_close(codebook[indices].sum(dim=0), counts.float() @ codebook, rtol=0, atol=12 * EPS)


def test_counts_add_devices_that_agree():
    assert count(torch.tensor([[0, 2], [0, 1], [3, 2]]), 4).tolist() == [[2, 0, 0, 1], [0, 1, 2, 0]]


def test_counts_do_not_depend_on_the_order_of_devices(rng: torch.Generator):
    indices = torch.randint(128, (10, 50), generator=rng)
    assert torch.equal(count(indices, 128), count(indices.flip(0), 128))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_stored_integer_types_count_as_int64_does(dtype: torch.dtype, rng: torch.Generator):
    indices = torch.randint(128, (10, 50), generator=rng)
    assert torch.equal(count(indices.to(dtype), 128), count(indices, 128))


@pytest.mark.parametrize("index", [-1, 16])
def test_indices_out_of_range_are_refused(index: int):
    indices = torch.tensor([[3, index]])
    message = f"indices run from {min(3, index)} to {max(3, index)}; expected 0 to 15"
    with pytest.raises(ShapeError, match=message):
        count(indices, 16)


@pytest.mark.usefixtures("as_in_production")
def test_bad_shapes_and_types_are_refused():
    with pytest.raises(ShapeError, match=r"indices has shape \(3,\); expected \[devices, slots\]"):
        count(torch.tensor([1, 2, 3]), 16)
    with pytest.raises(ShapeError, match=r"indices holds torch\.float32; expected integers"):
        count(torch.zeros(2, 2), 16)


@pytest.mark.parametrize(
    ("kind", "num_codewords", "codeword_length", "message"),
    [
        ("two-bases", 8, 12, "codeword_length = 12: two-bases needs a power of two"),
        ("two-bases", 2, 1, "codeword_length = 1: two-bases needs a power of two"),
        ("bases", 5, 2, "the codebook bases has at most 4 codewords of length 2, not 5"),
        (
            "two-bases",
            129,
            64,
            "the codebook two-bases has at most 128 codewords of length 64, not 129; lengthen the codewords",
        ),
        ("bernoulli", 9, 3, "only 8 different rows of 3 signs exist, not 9"),
        ("gaussian", 0, 3, "num_codewords is 0; expected an integer of at least 1"),
        ("gausian", 8, 8, "there is no codebook 'gausian': did you mean 'gaussian'?"),
    ],
)
def test_impossible_codebooks_are_refused(
    kind: str, num_codewords: int, codeword_length: int, message: str, rng: torch.Generator
):
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        make_codebook(kind, num_codewords, codeword_length, rng=rng)


def test_settings_know_the_kinds_that_can_be_made():
    kinds = [SchemeSettings(name="gamp", codebook=kind).codebook for kind in codebook_kinds()]
    assert kinds == codebook_kinds()
    with pytest.raises(ConfigError, match="codebook = 'hadamard'"):
        SchemeSettings.parse({"name": "gamp", "codebook": "hadamard"})
    with pytest.raises(ConfigError, match="codeword_length = 0"):
        SchemeSettings.parse({"name": "gamp", "codeword_length": 0})


def test_codewords_of_low_coherence_hardly_overlap_whatever_their_phases(rng):
    words = pack(make_codebook("low-coherence", 128, 64, rng=rng))
    overlap = float(((words @ words.mH).abs() - torch.eye(128)).max())
    assert 0.1537 <= overlap < 0.2  # Welch's bound, and what was reached before; random QPSK has .5


def test_low_coherence_of_odd_length_is_refused_in_one_sentence(rng):
    with pytest.raises(ConfigError, match="codeword_length = 7: low-coherence takes two uses"):
        make_codebook("low-coherence", 4, 7, rng=rng)


def test_the_step_of_adam_is_that_of_torch():
    values, other = (torch.randn(5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) for _ in range(2))
    mean, square, optimizer = torch.zeros_like(values), torch.zeros_like(values), torch.optim.Adam([other], lr=_STEP)
    for step in (1, 2, 3):
        other.grad = torch.linspace(-1, step, 5, dtype=torch.float64)
        optimizer.step()
        _adam(values, other.grad, mean, square, step)
    assert torch.equal(values, other)
