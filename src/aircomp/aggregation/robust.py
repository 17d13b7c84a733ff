"""The standard robust statistics, computed from counts: coordinate-wise by value, and the geometric median.

All are exact for each fragment: a slot's counts are the multiset of its messages.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Real
from torch import Tensor

from aircomp.aggregation.trimmed import ROUNDING, check_keep, most_counted
from aircomp.common.checks import check_number

# entries worked on at a time: a megabyte in float32, which stays in the cache
BLOCK = 2**18


def coordinate_median(
    counts: Real[Tensor, "slots codewords"], codewords: Float[Tensor, "codewords fragment"]
) -> Float[Tensor, "slots fragment"]:
    """Take the median device in every coordinate, the midpoint of the two middle ones if their number is even."""
    mass = counts.sum(dim=1)
    # dropping all but the middle one or two values of each end is what a median is
    return _mean_between(counts, codewords, ((mass - 1) // 2).clamp(min=0))


def coordinate_trimmed_mean(
    counts: Real[Tensor, "slots codewords"], codewords: Float[Tensor, "codewords fragment"], *, keep: float = 0.8
) -> Float[Tensor, "slots fragment"]:
    r"""Average each coordinate without its largest and smallest values: the usual trimmed mean.

    Of $\hat K$ devices, $f = \lfloor (1 - \mathrm{keep})\hat K / 2 \rfloor$ are dropped at either end. With fewer than
    2 / (1 - keep) devices (10 by default) nothing is dropped and the result is the mean.

    Args:
        counts: How many devices chose each codeword, whole numbers.
        codewords: What each codeword stands for.
        keep: Share of the devices to keep; where that is no whole number, more are kept.
    """
    check_keep(keep)
    mass = counts.sum(dim=1)
    dropped = ((1 - keep) / 2 * mass.double() + ROUNDING).floor().to(mass.dtype)
    # a share next to zero would drop everybody; the median is as far as it goes
    return _mean_between(counts, codewords, dropped.minimum((mass - 1) // 2).clamp(min=0))


def geometric_median(
    counts: Real[Tensor, "slots codewords"],
    codewords: Float[Tensor, "codewords fragment"],
    *,
    iterations: int = 16,
) -> Float[Tensor, "slots fragment"]:
    r"""Find the point with the least summed distance to the messages of a slot, by Weiszfeld's iteration.

    $$z \leftarrow \sum_j b_j q_j \Big/ \sum_j b_j,\qquad b_j = x_j / \max(\nu, \lVert z - q_j\rVert)$$

    from the mean, with $\nu$ a millionth of the messages' mean distance to it, so that a point at a codeword stays
    finite. A codeword that more than half of the devices chose is the median, exactly, and is returned as such.

    Args:
        counts: How many devices chose each codeword, whole numbers.
        codewords: What each codeword stands for.
        iterations: Steps for every slot, fixed so that a slot's result does not depend on the others. With ten
            devices and heavy-tailed codewords, 16 leave the summed distance 5e-5 above its minimum on average.
    """
    check_number("iterations", iterations, low=1, integer=True)
    x, index = most_counted(counts)
    x = x.to(codewords.dtype)
    slots_at_once = max(1, BLOCK // max(1, index.shape[1] * codewords.shape[1]))
    blocks = zip(x.split(slots_at_once), index.split(slots_at_once), strict=True)
    return torch.cat([_weiszfeld(x_block, codewords[i_block], iterations) for x_block, i_block in blocks])


def _weiszfeld(
    x: Float[Tensor, "slots members"], q: Float[Tensor, "slots members fragment"], iterations: int
) -> Float[Tensor, "slots fragment"]:
    mass = x.sum(dim=1, keepdim=True)
    share = x / mass.clamp(min=1)  # an empty slot has zero weights and ends at zero
    z = torch.einsum("sm,smd->sd", share, q)
    spread = (share * (q - z[:, None]).norm(dim=2)).sum(dim=1, keepdim=True)
    nu = (1e-6 * spread).clamp(min=torch.finfo(q.dtype).tiny ** 0.5)  # all messages equal: weights must not overflow
    for _ in range(iterations):
        b = share / (q - z[:, None]).norm(dim=2).maximum(nu)
        b = b / b.sum(dim=1, keepdim=True).clamp(min=torch.finfo(q.dtype).tiny)
        z = torch.einsum("sm,smd->sd", b, q)
    return torch.where(2 * x[:, :1] > mass, q[:, 0], z)  # members come in descending order of counts


def _mean_between(
    counts: Real[Tensor, "slots codewords"],
    codewords: Float[Tensor, "codewords fragment"],
    dropped: Real[Tensor, " slots"],
) -> Float[Tensor, "slots fragment"]:
    """Average, in every coordinate, the sorted values of a slot's devices without `dropped` at either end.

    The codebook is sorted once. Along it, the cumulative counts say how many devices lie at or below each value;
    clamped to what is kept, their increments are the weights.
    """
    values, order = codewords.T.sort(dim=1)  # [fragment, codewords]
    counts = counts.to(codewords.dtype)
    low = dropped.to(codewords.dtype)[:, None, None]
    high = counts.sum(dim=1)[:, None, None] - low
    result = codewords.new_empty(counts.shape[0], codewords.shape[1])
    for rows, columns in _blocks(*result.shape, depth=codewords.shape[0]):
        below = counts[rows][:, order[columns]].cumsum(dim=2).clamp(low[rows], high[rows])
        weights = below.diff(dim=2, prepend=low[rows].expand(*below.shape[:2], 1))
        result[rows, columns] = (weights * values[columns]).sum(dim=2)
    return result / (high - low)[:, :, 0].clamp(min=1)  # an empty slot has zero weights


def _blocks(num_rows: int, num_columns: int, *, depth: int) -> Iterator[tuple[slice, slice]]:
    """Cut a result of this size into pieces whose working memory, `depth` entries each, is about one block."""
    width = max(1, min(num_columns, BLOCK // max(1, depth)))
    height = max(1, BLOCK // (max(1, depth) * width))
    for row in range(0, num_rows, height):
        for column in range(0, num_columns, width):
            yield slice(row, row + height), slice(column, column + width)
