"""The random-access codebook as something to learn (Sec. III-E, Codebook Representation)."""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aircomp.common.settings import NeedsTable, Settings, needs
from aircomp.encode.codebook import CodebookKind, make_codebook


class CodebookSettings(Settings):
    """Where the codebook starts and how it is learned."""

    NEEDS: ClassVar[NeedsTable] = {"form": needs("learned", True)}

    start: CodebookKind = "two-bases"
    """Codebook before the first step (paper: gaussian; two orthonormal bases are better before and after training)."""
    form: Literal["product", "single"] = "product"
    """The product of base codewords and a transform, as in SimVQ (the paper's), or a single matrix."""
    learned: bool = True
    """Whether training moves it."""


class LearnedCodebook(nn.Module):
    r"""Unit-norm codewords $C \propto DW$: base codewords $D$ and a transform $W$ that starts as the identity.

    Each row of $W$ gets a gradient from every codeword, so that rarely used ones move with the others. The paper
    renormalises the rows after every step; here the norm is divided out in `forward`, which is the same codebook and
    leaves no step in which codewords have unequal power.

    Args:
        settings: Start, form, and whether it is learned.
        num_codewords: Number of rows.
        codeword_length: Channel uses of one codeword.
        rng: Where the start comes from.
    """

    def __init__(self, settings: CodebookSettings, num_codewords: int, codeword_length: int, *, rng: torch.Generator):
        super().__init__()
        start = make_codebook(settings.start, num_codewords, codeword_length, rng=rng)
        self.base = nn.Parameter(start, requires_grad=settings.learned)
        self.transform: nn.Parameter | None = None
        if settings.form == "product":
            identity = torch.eye(codeword_length, device=start.device)
            self.transform = nn.Parameter(identity, requires_grad=settings.learned)

    def forward(self) -> Float[Tensor, "codewords uses"]:
        """Return the codebook, one unit-norm codeword a row."""
        rows = self.base if self.transform is None else self.base @ self.transform
        return nn.functional.normalize(rows, dim=1)

    def orthogonality(self) -> Float[Tensor, ""]:
        r"""Return $\lVert W^\top W - I\rVert_F^2$, zero for a single matrix (Sec. III-E, Loss Function)."""
        if self.transform is None:
            return self.base.new_zeros(())
        gram = self.transform.mT @ self.transform
        return (gram - torch.eye(len(gram), device=gram.device, dtype=gram.dtype)).square().sum()
