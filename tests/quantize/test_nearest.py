import pytest
import torch

from aircomp.errors import ConfigError, ShapeError
from aircomp.quantize.codebook import lookup, nearest
from helpers.draws import update_like
from plain import quantize as plain


@pytest.mark.parametrize("scale", [1e-25, 1.0, 1e25])
def test_the_fast_version_differs_from_the_plain_one_only_within_rounding(scale: float):
    fragments, codebook = scale * update_like(3000), scale * update_like(128, seed=1)
    fast, slow = nearest(fragments, codebook), plain.nearest(fragments, codebook)
    u, a, b = (t.double() for t in (fragments, codebook[fast], codebook[slow]))
    excess = (u - a).square().sum(1) - (u - b).square().sum(1)
    # each score sums d products; float32 rounds each of them, and the running sum, by at most eps/2
    d, eps = fragments.shape[1], torch.finfo(torch.float32).eps
    reach = u.norm(dim=1) * (a.norm(dim=1) + b.norm(dim=1)) + a.norm(dim=1) ** 2 + b.norm(dim=1) ** 2
    assert (excess <= 2 * d * eps * reach).all()
    assert (fast == slow).float().mean() > 0.998  # measured: 1; rounding may move a few, not many


def test_double_precision_is_compared_in_double_precision():
    codebook = torch.tensor([[1.0], [1.0 + 1e-6]], dtype=torch.float64)  # the scores differ by 5e-13
    assert nearest(codebook, codebook).tolist() == [0, 1]


def test_half_precision_is_compared_in_single_precision():
    codebook = torch.tensor([[0.0], [1e-4], [2e-4]], dtype=torch.float16)  # their squares vanish in float16
    assert nearest(codebook, codebook).tolist() == [0, 1, 2]


def test_an_outlier_among_the_codewords_does_not_blur_the_small_ones():
    codebook = torch.tensor([[1e3, 0.0], [1e-4, 0.0], [0.0, 1e-4], [0.0, 0.0]])
    assert nearest(codebook, codebook).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("num_codewords", [5, 17, 64, 127])
@pytest.mark.parametrize("chunk", [1, 7, 2048])
def test_equal_codewords_give_the_lowest_index(num_codewords: int, chunk: int):
    fragments, codebook = update_like(500), update_like(num_codewords, seed=1)
    copies = codebook[torch.randperm(num_codewords, generator=torch.Generator().manual_seed(2))]
    with_copies = torch.cat([codebook, copies, codebook[:3]])
    assert nearest(fragments, with_copies, chunk=chunk).max() < num_codewords
    assert torch.equal(nearest(codebook, with_copies, chunk=chunk), torch.arange(num_codewords))


def test_equidistant_codewords_give_the_lowest_index():
    codebook = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    assert nearest(torch.zeros(3, 2), codebook).tolist() == [0, 0, 0]


@pytest.mark.parametrize("chunk", [1, 3, 64, 999, 1000, 5000])
def test_separated_fragments_give_the_same_indices_for_any_chunk(chunk: int):
    codebook = update_like(128)
    wanted = torch.randint(128, (1000,), generator=torch.Generator().manual_seed(1))
    fragments = codebook[wanted] * 1.01  # far nearer to their own codeword than to any other
    assert torch.equal(nearest(fragments, codebook, chunk=chunk), wanted)


def test_a_batch_keeps_its_shape_and_equals_the_loop():
    fragments, codebook = update_like(60).reshape(3, 4, 5, 20), update_like(16, seed=1)
    indices = nearest(fragments, codebook)
    assert indices.shape == (3, 4, 5)
    assert indices.dtype == torch.int64
    assert torch.equal(indices[1, 2], nearest(fragments[1, 2], codebook))
    assert nearest(fragments[0, 0, 0], codebook).shape == ()
    assert nearest(fragments[:0], codebook).shape == (0, 4, 5)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int64])
def test_lookup_returns_the_codewords_for_any_integer_type(dtype: torch.dtype):
    codebook = update_like(128)
    indices = torch.tensor([[0, 127], [3, 3]], dtype=dtype)
    assert torch.equal(lookup(indices, codebook), codebook[indices.long()])


def test_quantising_a_codeword_returns_it():
    codebook = update_like(128)
    assert torch.equal(lookup(nearest(codebook, codebook), codebook), codebook)


@pytest.mark.usefixtures("as_in_production")
def test_bad_input_is_named():
    codebook = update_like(4)
    with pytest.raises(ShapeError, match=r"fragments has shape \(3, 19\); expected \[\.\.\., 20\]"):
        nearest(torch.zeros(3, 19), codebook)
    with pytest.raises(ShapeError, match=r"codebook has shape \(0, 20\)"):
        nearest(torch.zeros(3, 20), codebook[:0])
    with pytest.raises(ConfigError, match="chunk = 0"):
        nearest(codebook, codebook, chunk=0)
    with pytest.raises(ShapeError, match=r"fragments holds torch\.int64"):
        nearest(torch.zeros(3, 20, dtype=torch.int64), codebook)
    for index in (-1, 4):
        with pytest.raises(ShapeError, match=f"indices run from {index} to {index}; expected 0 to 3"):
            lookup(torch.tensor([index]), codebook)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite_are_refused(bad: float):
    good, broken = update_like(4), update_like(4)
    broken[2, 7] = bad
    with pytest.raises(ShapeError, match="fragments holds values that are not finite"):
        nearest(broken, good)
    with pytest.raises(ShapeError, match="codebook holds values that are not finite"):
        nearest(good, broken)
