"""The arithmetic mean, FedAvg's rule (Appendix C)."""

from jaxtyping import Float, Real
from torch import Tensor


def mean(
    counts: Real[Tensor, "slots codewords"], codewords: Float[Tensor, "codewords fragment"]
) -> Float[Tensor, "slots fragment"]:
    r"""Average the codewords by their counts, $\hat u_i = \sum_j \hat x_{ij}\, q_j / \sum_j \hat x_{ij}$.

    Soft counts are welcome; they are divided by their own sum.
    """
    counts = counts.to(codewords.dtype)
    mass = counts.sum(dim=1, keepdim=True)
    return counts @ codewords / mass.where(mass > 0, 1)  # an empty slot has a zero numerator already
