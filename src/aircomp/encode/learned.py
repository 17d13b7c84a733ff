"""The random-access codebook as something to learn (Sec. III-E, Codebook Representation)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aircomp.encode.codebook import make_codebook
from aircomp.encode.settings import CodebookSettings


class LearnedCodebook(nn.Module):
    r"""Unit-norm codewords $C \propto DW$: base codewords $D$ and a transform $W$ that starts as the identity.

    Each row of $W$ gets a gradient from every codeword, so that rarely used ones move with the others. The paper
    renormalises the rows after every step; here the norm is divided out in `forward`, which is the same codebook and
    leaves no step in which codewords have unequal power.

    Args:
        settings: Start and form.
        num_codewords: Number of rows.
        codeword_length: Channel uses of one codeword.
        rng: Where the start comes from.
    """

    def __init__(self, settings: CodebookSettings, num_codewords: int, codeword_length: int, *, rng: torch.Generator):
        super().__init__()
        self.common = settings.common
        start = make_codebook(settings.start, num_codewords, codeword_length, rng=rng)
        self.base = nn.Parameter(start, requires_grad=settings.form != "fixed")
        self.transform: nn.Parameter | None = None
        if settings.form == "product":
            identity = torch.eye(codeword_length, device=start.device)
            self.transform = nn.Parameter(identity)

    def forward(self) -> Float[Tensor, "codewords uses"]:
        """Return the codebook, one unit-norm codeword a row."""
        rows = self.base if self.transform is None else self.base @ self.transform
        return with_common(rows, self.common)

    def orthogonality(self) -> Float[Tensor, ""]:
        r"""Return $\lVert W^\top W - I\rVert_F^2$, zero for a single matrix (Sec. III-E, Loss Function)."""
        if self.transform is None:
            return self.base.new_zeros(())
        gram = self.transform.mT @ self.transform
        return (gram - torch.eye(len(gram), device=gram.device, dtype=gram.dtype)).square().sum()


def with_common(rows: Float[Tensor, "codewords uses"], share: float) -> Float[Tensor, "codewords uses"]:
    r"""Normalise rows; with a share $\rho$, give them so much of their energy in the direction $e = (1, …, 1)/\sqrt l$.

    $$c_j = \sqrt\rho\, e + \sqrt{1 - \rho}\, u_j, \qquad u_j \perp e, \quad \lVert u_j \rVert = 1$$

    Then $\langle y, e\rangle/\sqrt\rho$ is the number of devices plus noise of variance $\sigma^2/\rho$, in every slot and
    for all choices. A round of J slots tells the number with a standard error of $\sigma/\sqrt{\rho J}$, as well as
    $\rho J$ pilot slots would, for the same energy.
    """
    if share == 0:
        return nn.functional.normalize(rows, dim=1)
    others = nn.functional.normalize(rows - rows.mean(dim=1, keepdim=True), dim=1)
    return math.sqrt(1 - share) * others + math.sqrt(share / rows.shape[1])
