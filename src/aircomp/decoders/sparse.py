r"""Sparse vectors from fewer sums than entries: orthogonal AMP with soft thresholds (Ma and Ping 2017).

The rows of $A$ are orthonormal, with $\delta$ measurements per entry. The noise has the variance $\sigma^2$, and the error of
the estimate $x$ has the variance $v$. One iteration is
$$r = x + A^\top (y - A x)/\delta, \qquad \tau^2 = v (1 - \delta)/\delta + \sigma^2/\delta, \qquad
x \leftarrow c\,(\eta_\theta(r) - \overline{\eta'}\, r)$$

Stein's unbiased estimate of the error chooses the threshold θ among a few. The factor $c$ makes the error of the next $x$
uncorrelated with that of $r$. The result is $\eta_\theta(r)$ of the last iteration. With as many measurements as entries, one
iteration is exact; the threshold then only removes noise.
"""

import torch
from jaxtyping import Float
from torch import Tensor

THRESHOLDS = (0.0, 0.3, 0.6, 0.9, 1.2, 1.6, 2.0, 2.5, 3.0)
"""In units of τ; with 0 a vector that is not sparse stays as it is."""
ITERATIONS = 25


def recover(
    sums: Float[Tensor, "blocks measurements"], rows: Float[Tensor, "measurements entries"], noise_var: float
) -> Float[Tensor, "blocks entries"]:
    """Return the vectors that were measured.

    Args:
        sums: Measurements with noise.
        rows: Orthonormal rows.
        noise_var: Variance of the noise in a measurement.
    """
    share = rows.shape[0] / rows.shape[1]
    estimate, noise = torch.zeros(len(sums), rows.shape[1]).to(sums), max(noise_var, 0.0)
    found = estimate
    for _ in range(1 if share == 1 else ITERATIONS):
        left = sums - estimate @ rows.T
        var = ((left.square().mean(dim=1) - noise).clamp(min=0.0))[:, None]  # of the estimate, seen by orthonormal rows
        back = estimate + left @ rows / share
        tau = (var * (1 - share) / share + noise / share).clamp(min=1e-30).sqrt()
        threshold = _threshold(back, tau)
        found = back.sign() * (back.abs() - threshold).clamp(min=0)
        slope = (back.abs() > threshold).to(back).mean(dim=1, keepdim=True)
        corrected = (found - slope * back) / (1 - slope).clamp(min=0.02)
        estimate = torch.where(slope < 0.98, corrected, found)  # a threshold of zero leaves nothing to correct
    return found


def _threshold(values: Float[Tensor, "blocks entries"], tau: Float[Tensor, "blocks 1"]) -> Float[Tensor, "blocks 1"]:
    """Return the threshold with the least estimated error, for every block."""
    risks = []
    for ratio in THRESHOLDS:
        limit = ratio * tau
        above = (values.abs() > limit).to(values).mean(dim=1, keepdim=True)
        risks.append(
            tau.square() * (2 * above - 1) + torch.minimum(values.square(), limit.square()).mean(1, keepdim=True)
        )
    best = torch.cat(risks, dim=1).argmin(dim=1, keepdim=True)
    return tau * torch.tensor(THRESHOLDS, device=values.device, dtype=values.dtype)[best]
