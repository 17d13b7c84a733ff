"""Vector quantisation: the nearest codeword of every fragment, and back (Sec. III-A)."""

import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from aircomp.errors import ConfigError, ShapeError


@torch.no_grad()
def nearest(
    fragments: Float[Tensor, "*batch fragment"], codebook: Float[Tensor, "codewords fragment"], *, chunk: int = 2048
) -> Int[Tensor, "*batch"]:
    r"""Return the index (int64) of the codeword nearest to each fragment.

    $$\arg\min_j \|u - q_j\|^2 = \arg\min_j\ \tfrac12\|q_j\|^2 - u^\top q_j$$

    Equal codewords give the lowest of their indices. Other ties, and distances that agree to within rounding of
    $\|u\|\,\|q_j\|$, may fall to either side: the matrix product rounds differently for different shapes.

    Args:
        fragments: Any batch of fragments; float16 and bfloat16 are compared in float32.
        codebook: One codeword a row.
        chunk: Fragments compared at a time. It bounds the memory, and at the default the scores stay in cache.
    """
    if codebook.ndim != 2 or codebook.shape[0] < 1:
        raise ShapeError(f"codebook has shape {tuple(codebook.shape)}; expected [codewords, fragment]")
    if fragments.ndim < 1 or fragments.shape[-1] != codebook.shape[1]:
        raise ShapeError(f"fragments has shape {tuple(fragments.shape)}; expected [..., {codebook.shape[1]}]")
    if chunk < 1:
        raise ConfigError(f"chunk = {chunk}: expected at least 1")
    check_finite("fragments", fragments)
    check_finite("codebook", codebook)
    dtype = torch.promote_types(torch.promote_types(fragments.dtype, codebook.dtype), torch.float32)
    codebook = codebook.to(dtype)
    # Scaling one factor of each product scales all scores alike: squares of tiny updates do not underflow.
    scaled = codebook * power_of_two_scale(codebook)
    half_norms = 0.5 * (codebook * scaled).sum(dim=1)
    parts = fragments.reshape(-1, codebook.shape[1]).split(chunk)
    chosen = [torch.addmm(half_norms, part.to(dtype), scaled.T, alpha=-1).argmin(dim=1) for part in parts]
    return _first_of_equals(codebook)[torch.cat(chosen)].reshape(fragments.shape[:-1])


def lookup(
    indices: Integer[Tensor, "*batch"], codebook: Float[Tensor, "codewords fragment"]
) -> Float[Tensor, "*batch fragment"]:
    """Return the codeword that each index stands for."""
    if codebook.ndim != 2:
        raise ShapeError(f"codebook has shape {tuple(codebook.shape)}; expected [codewords, fragment]")
    flat = indices.reshape(-1).long()
    if flat.numel():
        low, high = (int(bound) for bound in torch.aminmax(flat))
        if low < 0 or high >= len(codebook):
            raise ShapeError(f"indices run from {low} to {high}; expected 0 to {len(codebook) - 1} for this codebook")
    return codebook.index_select(0, flat).reshape(*indices.shape, codebook.shape[1])


def check_finite(name: str, tensor: Tensor) -> None:
    """Raise ShapeError unless `tensor` is real and finite.

    The extremes show it in one pass, since both infinities and NaN reach them; `isfinite` costs twenty times that.
    """
    if not tensor.is_floating_point():
        raise ShapeError(f"{name} holds {tensor.dtype}; expected real floating-point numbers")
    if tensor.numel() and not torch.isfinite(torch.stack(torch.aminmax(tensor))).all():
        raise ShapeError(f"{name} holds values that are not finite; check the update they come from")


def power_of_two_scale(tensor: Tensor) -> Tensor:
    """Return the power of two that brings the largest magnitude into [½, 1): multiplying by it rounds nothing."""
    low, high = torch.aminmax(tensor)
    exponent = torch.frexp(torch.maximum(-low, high)).exponent
    # float32 holds no power above 2^127; only subnormal numbers ask for one
    return torch.ldexp(torch.ones_like(high), -exponent.clamp(min=-126))


def _first_of_equals(codebook: Tensor) -> Tensor:
    """Map each row to the first row equal to it.

    Equal rows need not get equal scores: where the row count is no multiple of the vector width, a matrix product
    treats its last columns with other instructions.
    """
    _, group = torch.unique(codebook, dim=0, return_inverse=True)
    rows = torch.arange(len(codebook), device=codebook.device)
    first = torch.full_like(rows, len(codebook)).scatter_reduce_(0, group, rows, reduce="amin")
    return first[group]
