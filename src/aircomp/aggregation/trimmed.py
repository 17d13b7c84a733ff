"""The paper's trimmed mean: trimmed by how often a codeword was chosen, not by its value (Appendix C)."""

import torch
from jaxtyping import Float, Real
from torch import Tensor

from aircomp.common.checks import check_number

# products like 0.28 * 25 come out a few units of the last place beside the integer they mean
ROUNDING = 1e-9


def trimmed_mean(
    counts: Real[Tensor, "slots codewords"], codewords: Float[Tensor, "codewords fragment"], *, keep: float = 0.8
) -> Float[Tensor, "slots fragment"]:
    r"""Average the most frequent codewords until they hold a share `keep` of the devices (Appendix C, trimmed mean).

    With $G_j$ the mass of all codewords counted more often than $j$, and $T_j$ the number counted as often as $j$
    (itself included), a retained mass of $M = \lceil \tau \hat K\rceil$ leaves codeword $j$ the weight

    $$w_j = \min\{\hat x_j,\ \max(0, M - G_j) / T_j\}.$$

    That is every case of the appendix at once: a codeword or a tied group that fits counts fully; a single one that
    overshoots ($T_j = 1$) counts $M - G_j$; a tied group cut by $M$ shares what is left evenly. The weights sum to $M$.
    This is not the usual trimmed mean (see `coordinate-trimmed-mean`): where no two devices agree it is the mean.

    Args:
        counts: How many devices chose each codeword, whole numbers.
        codewords: What each codeword stands for.
        keep: Share of the devices to retain; the paper's τ.
    """
    check_keep(keep)
    mass = counts.sum(dim=1, keepdim=True)
    retained = (keep * mass.double() - ROUNDING).ceil().clamp(min=1)  # one device at least, however small the share
    x, index = most_counted(counts)
    first = torch.searchsorted(-x, -x)  # negated: searchsorted wants ascending order
    tied = torch.searchsorted(-x, -x, right=True) - first
    above = (x.cumsum(dim=1) - x).gather(1, first)  # mass before the first of the tied group
    w = ((retained - above).clamp(min=0) / tied).minimum(x).to(codewords.dtype)
    weights = codewords.new_zeros(counts.shape).scatter_(1, index, w)
    return weights @ codewords / retained.to(codewords.dtype)


def most_counted(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest counts of every slot in descending order, as float64, and their codewords.

    Only zeros are left out: K devices choose at most K different codewords, far fewer than there are.
    """
    num_devices = int(counts.sum(dim=1).max().item()) if counts.shape[0] else 0
    x, index = counts.topk(max(1, min(num_devices, counts.shape[1])), dim=1)
    return x.double(), index


def check_keep(keep: float) -> None:
    """Refuse a share of devices that is not in (0, 1]."""
    check_number("keep", keep, low=0, open_low=True, high=1)
