"""MD-AirComp's multi-antenna receiver as it is written down: a loop over antennas and slots, a weight for every count."""

import math

import torch
from jaxtyping import Complex, Float
from torch import Tensor


def md_aircomp(
    received: Complex[Tensor, "antennas slots uses"],
    codebook: Complex[Tensor, "codewords uses"],
    *,
    largest: int,
    start_activity: float,
    damping: float = 0.3,
    max_iterations: int = 50,
) -> Float[Tensor, "slots codewords"]:
    """Return the soft counts of `aircomp.decoders.fading.md_aircomp.MdAirComp`, without its rounding and its choice of M."""
    (antennas, slots, uses), n = received.shape, len(codebook)
    power = codebook.abs().square()
    alpha = power.new_full((slots, n), start_activity)
    x = received.new_full((antennas, slots, n), start_activity * (largest + 1) / 2 * (1 + 1j))
    nu, z, v = torch.ones_like(x.real), received.clone(), torch.ones_like(received.real)
    sigma2 = 100.0 / uses
    mean, variance = 0j, (float(received.abs().square().sum()) - uses * sigma2) / (slots * start_activity * n)
    last_residual = math.inf
    for t in range(1, max_iterations + 1):
        x_new, nu_new, alphas = torch.empty_like(x), torch.empty_like(nu), torch.empty_like(nu)
        means, variances, energies, residual = [], [], [], 0.0
        for a in range(antennas):
            for i in range(slots):
                y = received[a, i]
                v_tmp = nu[a, i] @ power
                z_tmp = x[a, i] @ codebook - (y - z[a, i]) / (sigma2 + v[a, i]) * v_tmp
                z[a, i] = damping * z[a, i] + (1 - damping) * z_tmp
                v[a, i] = damping * v[a, i] + (1 - damping) * v_tmp
                V = 1 / (power @ (1 / (sigma2 + v[a, i])))
                R = x[a, i] + V * (codebook.conj() @ ((y - z[a, i]) / (sigma2 + v[a, i])))
                gain = 1 + v[a, i] / sigma2
                energies.append((y - z[a, i]).abs() ** 2 / gain**2 + v[a, i] * sigma2 / (v[a, i] + sigma2))
                if a == 0:
                    x_new[a, i], nu_new[a, i], alphas[a, i] = _counts(R, V, alpha[i], largest)
                else:
                    B, A = (variance * R + V * mean) / (V + variance), variance * V / (V + variance)
                    ratio = torch.log(V / (V + variance)) + R.abs() ** 2 / V - (R - mean).abs() ** 2 / (V + variance)
                    pi = (alpha[i] / (alpha[i] + (1 - alpha[i]) * torch.exp(-ratio / 2))).clamp(1e-10, 1 - 1e-10)
                    x_new[a, i], alphas[a, i] = pi * B, pi
                    nu_new[a, i] = (pi * (B.abs() ** 2 + A) - (pi * B).abs() ** 2).clamp_min(1e-12)
                    means.append((pi * B).sum() / pi.sum())
                    variances.append((pi * ((mean - B).abs() ** 2 + V)).sum() / pi.sum())
                residual += float((y - x_new[a, i] @ codebook).abs().square().sum())
        if t > 15 and residual >= last_residual:
            return x[0].real
        x, nu, alpha, last_residual = x_new, nu_new, alphas.mean(0), residual
        sigma2 = max(float(torch.stack(energies).mean()), 1e-12)
        if means:
            mean, variance = complex(torch.stack(means).mean()), float(torch.stack(variances).mean())
    return x[0].real


def _counts(R: Tensor, V: Tensor, alpha: Tensor, largest: int) -> tuple[Tensor, Tensor, Tensor]:
    counts = torch.arange(largest + 1, dtype=V.dtype)
    log_weights = -((R[:, None] - counts).abs() ** 2) / V[:, None]
    log_weights[:, 0] += torch.log1p(-alpha)
    log_weights[:, 1:] += torch.log(alpha[:, None] / largest)
    weights = torch.softmax(log_weights, 1)
    mean = weights @ counts
    nu = weights @ counts**2 - mean**2
    return mean.to(R), nu.clamp_min(1e-12), weights[:, 1:].sum(1).clamp(1e-10, 1 - 1e-10)
