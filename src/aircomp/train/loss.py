"""What training minimises (Sec. III-E, Loss Function), term by term."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.train.recipe import LossSettings

Scalar = Float[Tensor, ""]


@dataclass(frozen=True)
class Terms:
    """The terms of a batch, unweighted, and their weighted sum."""

    total: Scalar
    counts: Scalar
    sparsity: Scalar
    orthogonality: Scalar
    activity: Scalar
    quantization: Scalar
    update: Scalar


def count_error(mean: Float[Tensor, "slots codewords"], counts: Float[Tensor, "slots codewords"]) -> Float[Tensor, ""]:
    r"""Return $\lVert\hat x - x\rVert^2$, mean over slots."""
    return (mean - counts).square().sum(dim=1).mean()


def sparsity(mean: Float[Tensor, "slots codewords"], counts: Float[Tensor, "slots codewords"]) -> Float[Tensor, ""]:
    r"""Return $\lVert\hat x\rVert_1 / \lVert x\rVert_1$, mean over slots; one where nothing is over- or underestimated."""
    scale = counts.sum(dim=1).clamp(min=1)  # a slot in which nobody sent has no scale; every other has at least one
    return (mean.abs().sum(dim=1) / scale).mean()


def activity_error(num_active_hat: Float[Tensor, ""], num_active: float) -> Float[Tensor, ""]:
    r"""Return $(\hat K_a - K_a)^2$."""
    return (num_active_hat - num_active).square()


def quantization_error(
    mean: Float[Tensor, "slots codewords"],
    quant_codebook: Float[Tensor, "codewords fragment"],
    num_active: float,
    mean_fragments: Float[Tensor, "slots fragment"],
) -> Float[Tensor, ""]:
    r"""Return $\lVert\hat xQ/K - \bar s\rVert^2 / \lVert\bar s\rVert^2$ over the batch, $\bar s$ the devices' mean fragment.

    The paper compares each device before and after quantisation, through which no gradient passes; on the aggregate
    the same error reaches decoder and codebook.
    """
    error = mean @ quant_codebook / num_active - mean_fragments
    energy = mean_fragments.square().sum().clamp(min=torch.finfo(mean.dtype).tiny)  # fragments may all be zero
    return error.square().sum() / energy


def update_error(
    mean: Float[Tensor, "slots codewords"],
    counts: Float[Tensor, "slots codewords"],
    quant_codebook: Float[Tensor, "codewords fragment"],
) -> Float[Tensor, ""]:
    r"""Return $\lVert(\hat x - x)Q\rVert^2 / \lVert xQ\rVert^2$ over the batch."""
    energy = (counts @ quant_codebook).square().sum().clamp(min=torch.finfo(mean.dtype).tiny)
    return ((mean - counts) @ quant_codebook).square().sum() / energy


def combine(
    weights: LossSettings,
    counts: Float[Tensor, ""],
    sparsity: Float[Tensor, ""],
    orthogonality: Float[Tensor, ""],
    activity: Float[Tensor, ""],
    quantization: Float[Tensor, ""],
    update: Float[Tensor, ""],
) -> Terms:
    """Weigh the terms and add them up."""
    total = counts + weights.sparsity * sparsity + weights.orthogonality * orthogonality
    total = total + weights.activity * activity + weights.quantization * quantization + weights.update * update
    return Terms(total, counts, sparsity, orthogonality, activity, quantization, update)
