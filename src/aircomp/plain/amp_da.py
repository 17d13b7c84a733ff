"""AMP-DA as it is written down: a loop over slots, an exponential for every count, variances for every channel use."""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor


def amp_da(
    received: Float[Tensor, "slots uses"],
    codebook: Float[Tensor, "codewords uses"],
    *,
    largest: int,
    start_activity: float,
    noise_var: float | None = None,
    activity: Literal["slot", "pooled"] = "slot",
    damping: float = 0.3,
    max_iterations: int = 50,
) -> Float[Tensor, "slots codewords"]:
    """Return the soft counts of `aircomp.decode.amp_da.AmpDa`, without its rounding and its choice of M."""
    num_slots, num_codewords = len(received), len(codebook)
    alpha = received.new_full((num_slots, num_codewords), start_activity)
    x_hat, nu = torch.ones_like(alpha), torch.ones_like(alpha)
    z, v = received.clone(), torch.ones_like(received)
    sigma2 = 100.0 if noise_var is None else noise_var
    last_residual = math.inf
    for t in range(1, max_iterations + 1):
        x_new, nu_new, alpha_new = torch.empty_like(x_hat), torch.empty_like(nu), torch.empty_like(alpha)
        energies, residual = [], 0.0
        for i in range(num_slots):
            v_tmp = codebook.square().T @ nu[i]
            z_tmp = codebook.T @ x_hat[i] - (received[i] - z[i]) / (sigma2 + v[i]) * v_tmp
            z[i] = damping * z[i] + (1 - damping) * z_tmp
            v[i] = damping * v[i] + (1 - damping) * v_tmp
            variance = 1 / (codebook.square() @ (1 / (sigma2 + v[i])))
            observed = x_hat[i] + variance * (codebook @ ((received[i] - z[i]) / (sigma2 + v[i])))
            x_new[i], nu_new[i], alpha_new[i] = _denoise(observed, variance, alpha[i], largest)
            energies.append(((received[i] - z[i]) / (1 + v[i] / sigma2)) ** 2 + v[i] * sigma2 / (v[i] + sigma2))
            residual += (received[i] - codebook.T @ x_new[i]).square().sum().item()
        if t > 15 and residual >= last_residual:
            return x_hat
        x_hat, nu, alpha, last_residual = x_new, nu_new, alpha_new, residual
        if activity == "pooled":
            alpha = alpha.mean(0, keepdim=True).expand_as(alpha)
        if noise_var is None:
            sigma2 = max(torch.stack(energies).mean().item(), 1e-12)
    return x_hat


def _denoise(observed: Tensor, variance: Tensor, alpha: Tensor, largest: int) -> tuple[Tensor, Tensor, Tensor]:
    counts = torch.arange(largest + 1, dtype=observed.dtype)
    log_weights = -((observed[:, None] - counts) ** 2) / (2 * variance[:, None])
    log_weights[:, 0] += torch.log1p(-alpha)
    log_weights[:, 1:] += torch.log(alpha[:, None] / largest)
    weights = torch.softmax(log_weights, 1)
    mean = weights @ counts
    nu = weights @ counts**2 - mean**2
    return mean, nu.clamp_min(1e-12), weights[:, 1:].sum(1).clamp(1e-10, 1 - 1e-10)
