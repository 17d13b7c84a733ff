"""From soft counts to integers as the authors' federated script does: keep, refit, round greedily."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

RIDGE = 1e-6  # of the least squares, the authors'
_CHUNK = 512  # slots solved at a time: bounds the matrices


def authors_counts(
    mean: Float[Tensor, "slots codewords"],
    received: Float[Tensor, "slots uses"],
    codebook: Float[Tensor, "codewords uses"],
    total: int,
) -> Int[Tensor, "slots codewords"]:
    """Return the authors' integers: the `total` largest soft counts, refitted to the signal, rounded greedily to the total.

    A row may sum to more than the total: greedy rounding lowers each entry at most once.
    """
    rows = range(0, len(mean), _CHUNK)
    parts = [refit(mean[i : i + _CHUNK], received[i : i + _CHUNK], codebook, total) for i in rows]
    return greedy_counts(torch.cat(parts), total) if parts else torch.zeros_like(mean, dtype=torch.int64)


def refit(
    mean: Float[Tensor, "slots codewords"],
    received: Float[Tensor, "slots uses"],
    codebook: Float[Tensor, "codewords uses"],
    total: int,
) -> Float[Tensor, "slots codewords"]:
    r"""Keep the `total` largest counts of every slot and fit them to the signal, none below zero.

    $$\hat x = \max\bigl(0,\ (AA^\top + \epsilon I)^{-1} A y\bigr)$$

    The rows of $A$ are the codewords of the counts that are kept and above zero. In double precision: a support of nearly
    dependent codewords has a matrix that float32 cannot solve.
    """
    kept, support = mean.clamp(min=0).topk(min(total, mean.shape[1]), dim=1)
    present = (kept > 0).double()
    A = codebook.double()[support] * present[:, :, None]
    gram = A @ A.mT + torch.diag_embed(RIDGE * present + (1 - present))
    fitted = torch.linalg.solve(gram, A @ received.double()[:, :, None])[:, :, 0] * present
    return torch.zeros_like(mean, dtype=torch.float64).scatter(1, support, fitted.clamp(min=0)).to(mean)


def greedy_counts(x: Float[Tensor, "slots codewords"], total: int) -> Int[Tensor, "slots codewords"]:
    """Round every row to whole numbers of a sum, as the authors do; rows of non-negative entries.

    Whole parts first. If they sum to too little, the largest fractions go up by one, each entry once. If they sum to too
    much, the smallest fractions of entries with a whole part go down by one, each once, so that the sum may stay too large.
    """
    whole = x.floor()
    fraction, short = x - whole, total - whole.sum(1, keepdim=True)
    raised = _rank(-fraction) < short
    lowered = (_rank(torch.where(whole > 0, fraction, torch.inf)) < -short) & (whole > 0)
    return (whole + raised.to(whole) - lowered.to(whole)).to(torch.int64)


def _rank(values: Float[Tensor, "slots codewords"]) -> Int[Tensor, "slots codewords"]:
    """Return the place of every entry in its sorted row; equal entries in the order of their index."""
    return values.argsort(dim=1, stable=True).argsort(dim=1)
