"""The random-access codebook as something to learn (Sec. III-E, Codebook Representation)."""

import math
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from aircomp.common.settings import Settings
from aircomp.encode.codebook import CodebookKind, make_codebook


class CodebookSettings(Settings):
    """Where the codebook starts and how it is learned."""

    start: CodebookKind = "two-bases"
    """Codebook before the first step (paper: gaussian; two orthonormal bases are better before and after training)."""
    form: Literal["product", "single", "fixed"] = "product"
    """What training moves. product: base codewords and a transform, as in SimVQ (the paper's). single: one matrix. fixed:
    nothing."""
    noise_follows: bool = False
    """Whether gradients tell it that noise follows the power that arrives, as under the `slot` and `round` SNR it does.
    Codewords then learn to cancel in the mean over devices, which costs power and tells nothing of the counts (paper: no)."""
    common: float = Field(default=0.0, ge=0, lt=1)
    """Share of each codeword's energy in one direction that all have in common and nothing else has (paper: 0). Whatever
    devices choose, it adds up to their number, which training would otherwise hide."""

    @model_validator(mode="after")
    def _check(self) -> "CodebookSettings":
        if self.noise_follows and self.form == "fixed":
            raise ValueError(
                "noise_follows is on, but form = 'fixed' has no gradients; turn it off, or learn the codebook"
            )
        return self


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
