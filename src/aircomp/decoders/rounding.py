"""From soft counts to integers that sum to the number of devices (Sec. III-E, post-processing)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.common.tensors import all_finite
from aircomp.common.threads import spread
from aircomp.decoders.base import Decoded, check_num_active
from aircomp.errors import DecodeDiverged, ShapeError

_CHUNK = 512  # slots at a time: a few [chunk, codewords] temporaries then stay in cache
_HALVINGS = 8  # of the threshold's bracket; what is left over after them is a count or two a slot


def round_to_sum(mean: Float[Tensor, "slots codewords"], total: int) -> Int[Tensor, "slots codewords"]:
    """Return the non-negative integers of sum `total` nearest (in ℓ2) to each row of `mean`, clipped at zero.

    The clip is the paper's and matters: for (1.2, −0.9) and total 3 the nearest integers are (2, 1), unclipped they
    would be (3, 0).

    >>> round_to_sum(torch.tensor([[0.6, 1.2, 0.1]]), 2)
    tensor([[1, 1, 0]])

    Raises:
        ShapeError: If `mean` is not a finite matrix, or `total` is negative or cannot be placed.
    """
    return nearest_of_sum(mean.clamp_min(0), total)


def nearest_of_sum(values: Float[Tensor, "slots codewords"], total: int) -> Int[Tensor, "slots codewords"]:
    r"""Return the non-negative integers of sum `total` nearest (in ℓ2) to each row of `values`, which may be negative.

    Raising entry $j$ from $k$ to $k+1$ lowers the squared error by $2(x_j - k) - 1$. This gain falls with $k$, so
    taking the `total` largest gains of a row, one after the other, is exact. All gains above a threshold are taken at
    once, the rest one by one. Ties go to the lower index.

    Raises:
        ShapeError: If `values` is not a finite matrix, or `total` is negative or cannot be placed.
    """
    if values.ndim != 2 or not all_finite(values):
        raise ShapeError(f"soft counts of shape {tuple(values.shape)}: expected a finite matrix [slots, codewords]")
    if total < 0 or (total > 0 and values.shape[1] == 0):
        raise ShapeError(f"counts cannot sum to {total} over {values.shape[1]} codewords; give a total of zero or more")
    if total == 0:
        return torch.zeros_like(values, dtype=torch.int64)
    counts = torch.empty_like(values, dtype=torch.int64)

    def fill(start: int) -> None:
        rows = slice(start, start + _CHUNK)
        counts[rows] = _nearest(values[rows], total)

    spread(fill, range(0, len(values), _CHUNK))
    return counts


def _nearest(x: Float[Tensor, "slots codewords"], total: int) -> Float[Tensor, "slots codewords"]:
    # gains closer to the threshold than rounding can tell are left to the loop, which compares them exactly: ties stay ties
    margin = 4 * torch.finfo(x.dtype).eps * (x.abs().amax(1, keepdim=True) + total)
    k = _above(x, _threshold(x, total) + margin)
    short = total - k.sum(1)
    rows = torch.nonzero(short > 0).squeeze(1)
    while len(rows):
        best = (x[rows] - k[rows]).argmax(1)
        k[rows, best] += 1
        short[rows] -= 1
        rows = rows[short[rows] > 0]
    return k


def _above(x: Tensor, threshold: Tensor) -> Tensor:
    """Return how many counts of each entry have a gain (as ``x - k``) above the threshold of its row."""
    return (x - threshold).ceil_().clamp_min_(0)


def _threshold(x: Tensor, total: int) -> Tensor:
    """Return a threshold for each row that takes at most `total` counts, and nearly all of them."""
    high = x.amax(1, keepdim=True)  # takes none
    low = torch.maximum(high - total, (x.sum(1, keepdim=True) - total) / x.shape[1])  # takes `total` or more
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        too_many = _above(x, middle).sum(1, keepdim=True) > total
        low = torch.where(too_many, middle, low)
        high = torch.where(too_many, high, middle)
    return high


def conclude(
    mean: Float[Tensor, "slots codewords"], noise_var: Float[Tensor, " slots"], num_active: float | None
) -> Decoded:
    """Turn soft counts into a decoder's result: the number of devices (mean over slots if not given), then integers.

    Raises:
        ConfigError: If `num_active` is given and is no number of devices.
        DecodeDiverged: If the soft counts are not finite.
    """
    if not all_finite(mean):
        raise DecodeDiverged("the decoder's soft counts are not finite; check the codebook and the noise variance")
    if num_active is not None:
        check_num_active(num_active)
    else:
        num_active = mean.sum(1, dtype=torch.float64).mean().item() if len(mean) else 0.0
    counts = round_to_sum(mean, max(0, round(num_active)))
    return Decoded(counts=counts, mean=mean, num_active_hat=float(num_active), noise_var=noise_var)
