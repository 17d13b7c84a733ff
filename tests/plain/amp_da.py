"""AMP-DA as it is written down: a loop over batches and slots, an exponential for every count."""

import math

import torch


def amp_da(
    received: torch.Tensor,
    codebook: torch.Tensor,
    *,
    batch_slots: int = 64,
    noise_var: torch.Tensor | None = None,
    damping: float = 0.3,
    max_iterations: int = 50,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the soft counts and the noise variance of every slot; see `aircomp.decoders.amp.amp_da.AmpDa`."""
    mean, noise = [], []
    for first in range(0, len(received), batch_slots):
        y = received[first : first + batch_slots]
        given = None if noise_var is None else noise_var[first : first + batch_slots]
        x_hat, sigma2 = decode_batch(y, codebook, given, damping, max_iterations)
        mean.append(x_hat)
        noise.append(sigma2)
    return torch.cat(mean), torch.cat(noise)


def decode_batch(y, codebook, noise_var, damping, max_iterations, largest=16):
    slots, (n, _) = len(y), codebook.shape
    alpha_0 = start_activity(codebook)
    alpha = y.new_full((n,), alpha_0)
    x_hat, nu = y.new_full((slots, n), alpha_0 * largest / 2), y.new_ones(slots, n)
    z, v = y.clone(), torch.ones_like(y)
    sigma2 = y.new_full((slots,), 100.0) if noise_var is None else noise_var
    last = math.inf
    for t in range(1, max_iterations + 1):
        x_new, active, energy, residual = torch.empty_like(x_hat), torch.empty_like(x_hat), 0.0, 0.0
        for i in range(slots):
            v_tmp = codebook.square().T @ nu[i]
            z_tmp = codebook.T @ x_hat[i] - (y[i] - z[i]) / (sigma2[i] + v[i]) * v_tmp
            z[i] = damping * z[i] + (1 - damping) * z_tmp
            v[i] = damping * v[i] + (1 - damping) * v_tmp
            psi = codebook.square() @ (1 / (sigma2[i] + v[i]))
            R = x_hat[i] + codebook @ ((y[i] - z[i]) / (sigma2[i] + v[i])) / psi
            x_new[i], nu[i], active[i] = denoise(R, psi, alpha, largest)
            e = ((y[i] - z[i]) / (1 + v[i] / (sigma2[i] + 1e-12))) ** 2 + sigma2[i] * v[i] / (v[i] + sigma2[i] + 1e-12)
            energy += e.mean().item() / slots
            residual += (y[i] - codebook.T @ x_new[i]).square().mean().item() / slots
        alpha = active.mean(0)
        if noise_var is None:
            sigma2 = torch.full_like(sigma2, max(1e-12, energy))
        if t > 15 and residual >= last:
            return x_hat, sigma2
        x_hat, last = x_new, residual
    return x_hat, sigma2


def denoise(R, psi, alpha, largest):
    counts = torch.arange(largest + 1, dtype=R.dtype)
    log_weights = -((R[:, None] - counts) ** 2) * psi[:, None] / 2
    log_weights[:, 0] += torch.log1p(-alpha)
    log_weights[:, 1:] += torch.log(alpha)[:, None] - math.log(largest)
    weights = torch.softmax(log_weights, 1)
    mean = weights @ counts
    nu = weights @ counts**2 - mean**2
    return mean, nu.clamp_min(1e-12), weights[:, 1:].sum(1).clamp(1e-10, 1 - 1e-10)


def start_activity(codebook):
    n, uses = codebook.shape
    best = 0.0
    for i in range(1024):
        c = 0.01 + (10 - 0.01) * i / 1023
        tail, density = math.erfc(c / math.sqrt(2)) / 2, math.exp(-(c**2) / 2) / math.sqrt(2 * math.pi)
        f = (1 + c**2) * tail - c * density
        best = max(best, (1 - 2 * n / uses * f) / (1 + c**2 - 2 * f))
    return min(max(uses / n * best, 1e-10), 1 - 1e-10)
