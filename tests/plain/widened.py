"""GAMP with a widened likelihood as it is written down: double precision, a loop over slots, codewords and counts."""

import math

import torch
from jaxtyping import Complex, Float
from torch import Tensor


def widened(
    received: Complex[Tensor, "slots uses"],
    codebook: Complex[Tensor, "codewords uses"],
    noise_var: float,
    rate: Float[Tensor, " codewords"],
    *,
    mean: float,
    var_real: float,
    var_imag: float,
    iterations: int,
    max_count: int,
) -> Float[Tensor, "slots codewords"]:
    """Return the posterior means of `aircomp.decoders.fading.widened.widened_gamp` with a Poisson prior.

    Args:
        received: What the antenna heard.
        codebook: Unit-norm codewords.
        noise_var: Per complex use.
        rate: Expected counts.
        mean: Of the gains.
        var_real: Of the gains.
        var_imag: Of the gains.
        iterations: Of message passing.
        max_count: Largest count.
    """
    dictionaries = torch.cat([codebook, 1j * codebook])
    A = torch.cat([dictionaries.real, dictionaries.imag], 1).double()
    n, sigma2 = len(codebook), noise_var / 2
    means = []
    for slot in received:
        y = torch.cat([slot.real, slot.imag]).double()
        x = torch.cat([mean * rate, 0 * rate]).double()
        nu = torch.cat([mean**2 * rate + rate * var_real, rate * var_imag]).double()
        scaled, counts = torch.zeros_like(y), [0.0] * n
        for _ in range(iterations):
            v = nu @ A**2
            z = x @ A - v * scaled
            scaled = (y - z) / (sigma2 + v)
            tau = 1 / (A**2 @ (1 / (sigma2 + v)))
            R = x + tau * (A @ scaled)
            x, nu = x.clone(), nu.clone()
            for j in range(n):
                Ra, Rb, ta, tb = (float(value) for value in (R[j], R[n + j], tau[j], tau[n + j]))
                logs, parts = [], []
                for m in range(max_count + 1):
                    a, b = ta + m * var_real, tb + m * var_imag
                    away = Ra - m * mean
                    prior = m * math.log(float(rate[j])) - math.lgamma(m + 1)
                    logs.append(prior - math.log(a) / 2 - away**2 / (2 * a) - math.log(b) / 2 - Rb**2 / (2 * b))
                    fa, fb = m * var_real / a, m * var_imag / b
                    parts.append((m, m * mean + fa * away, ta * fa, fb * Rb, tb * fb))
                weights = [math.exp(value - max(logs)) for value in logs]
                p = [w / sum(weights) for w in weights]
                counts[j], za, zb = (sum(q * part[i] for q, part in zip(p, parts, strict=True)) for i in (0, 1, 3))
                x[j], x[n + j] = za, zb
                nu[j] = sum(q * (part[2] + (part[1] - za) ** 2) for q, part in zip(p, parts, strict=True))
                nu[n + j] = sum(q * (part[4] + (part[3] - zb) ** 2) for q, part in zip(p, parts, strict=True))
        means.append(torch.tensor(counts, dtype=torch.float64))
    return torch.stack(means)
