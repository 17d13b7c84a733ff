r"""Received slots in a basis where message passing holds though codewords are alike.

GAMP takes the entries of a codebook for independent. Codewords that lean towards what they stand for share directions, and
GAMP explodes. What they share are the leading eigenvectors of the expected signal, $C^\top \mathrm{diag}(\pi)\, C$. Turned
such that each of these is a channel use of its own, the others mixed at random, entries look independent again. Noise that
is alike in all uses stays so.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.common import rng as rngs


def leading_basis(
    codebook: Float[Tensor, "codewords uses"], popularity: Float[Tensor, " codewords"], leading: int
) -> Float[Tensor, "uses uses"]:
    """Return an orthonormal basis: first the others, mixed, then the leading eigenvectors of the expected signal.

    Args:
        codebook: One codeword a row, as devices send it.
        popularity: How often each is chosen.
        leading: How many eigenvectors stay as they are; at most all.
    """
    rows, shares = codebook.double().cpu(), popularity.double().cpu() / popularity.double().cpu().sum()
    vectors = torch.linalg.eigh(rows.T @ (shares[:, None] * rows)).eigenvectors
    others, kept = vectors.split([max(len(vectors) - leading, 0), min(leading, len(vectors))], dim=1)
    drawn = torch.randn(others.shape[1], others.shape[1], generator=rngs.generator(0, "basis"), dtype=torch.float64)
    return torch.cat([others @ torch.linalg.qr(drawn).Q, kept], dim=1).to(codebook)
