"""Multisource AMP as it is written down: double precision, a loop over slots, codewords, rows and access points."""

import math

import torch
from jaxtyping import Complex, Float
from torch import Tensor


def multisource_amp(
    received: Complex[Tensor, "slots access_points antennas uses"],
    codebook: Complex[Tensor, "words uses"],
    log_prior: Float[Tensor, "zones rows codewords"],
    counts: Float[Tensor, " rows"],
    power: Float[Tensor, "zones rows access_points"],
    *,
    iterations: int,
    damping: float,
) -> Float[Tensor, "slots words"]:
    """Return the posterior means of `aircomp.decoders.fading.multisource.multisource_amp`, every slot with the same prior."""
    C, means = codebook.to(torch.complex128), []
    prior, powers, numbers = log_prior.double().tolist(), power.double().tolist(), counts.tolist()
    per_zone = log_prior.shape[2]
    for Y in received.to(torch.complex128):
        sites, antennas, uses = Y.shape
        Z, X = Y, torch.zeros(sites, antennas, len(C), dtype=torch.complex128)
        mean = [0.0] * len(C)
        for step in range(iterations):
            T = [float(z.abs().square().mean()) for z in Z]
            R = Z @ C.mH + X
            new, onsager = torch.zeros_like(X), [0.0] * sites
            for j in range(len(C)):
                zone, place = divmod(j, per_zone)
                u = R[:, :, j].abs().square().sum(1).tolist()
                logs = [
                    row[place] - sum(antennas * math.log(T[b] + p[b]) + u[b] / (T[b] + p[b]) for b in range(sites))
                    for row, p in zip(prior[zone], powers[zone], strict=True)
                ]
                weights = [math.exp(x - max(logs)) for x in logs]
                posterior = [w / sum(weights) for w in weights]
                mean[j] = sum(q * m for q, m in zip(posterior, numbers, strict=True))
                for b in range(sites):
                    phis = [p[b] / (T[b] + p[b]) for p in powers[zone]]
                    first = sum(q * phi for q, phi in zip(posterior, phis, strict=True))
                    second = sum(q * phi**2 for q, phi in zip(posterior, phis, strict=True))
                    new[b, :, j] = first * R[b, :, j]
                    onsager[b] += first + u[b] / (antennas * T[b]) * (second - first**2)
            X = new if step == 0 else (1 - damping) * new + damping * X
            Z = torch.stack([Y[b] - X[b] @ C + onsager[b] / uses * Z[b] for b in range(sites)])
        means.append(torch.tensor(mean, dtype=torch.float64))
    return torch.stack(means)
