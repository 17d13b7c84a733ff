"""Multisource AMP as it is written down: double precision, a loop over slots, codewords and counts."""

import math

import torch
from jaxtyping import Complex, Float
from torch import Tensor


def multisource_amp(
    received: Complex[Tensor, "slots antennas uses"],
    codebook: Complex[Tensor, "codewords uses"],
    rate: Float[Tensor, " codewords"],
    *,
    iterations: int,
    damping: float,
    max_count: int,
) -> Float[Tensor, "slots codewords"]:
    """Return the posterior means of `aircomp.decode.blind.multisource_amp` with a Poisson prior."""
    C, rates = codebook.to(torch.complex128), rate.double().tolist()
    means = []
    for Y in received.to(torch.complex128):
        antennas, uses = Y.shape
        Z, X = Y, torch.zeros(antennas, len(C), dtype=torch.complex128)
        mean = [0.0] * len(C)
        for step in range(iterations):
            T = float(Z.abs().square().mean())
            R = Z @ C.mH + X
            phis, onsager = [], 0.0
            for j, lam in enumerate(rates):
                u = float(R[:, j].abs().square().sum())
                logs = [
                    m * math.log(lam) - math.lgamma(m + 1) - antennas * math.log(T + m) - u / (T + m)
                    for m in range(max_count + 1)
                ]
                weights = [math.exp(x - max(logs)) for x in logs]
                p = [w / sum(weights) for w in weights]
                first = sum(q / (T + m) for m, q in enumerate(p))
                second = sum(q / (T + m) ** 2 for m, q in enumerate(p))
                phis.append(sum(q * m / (T + m) for m, q in enumerate(p)))
                onsager += phis[-1] + u / antennas * T * (second - first**2)
                mean[j] = sum(q * m for m, q in enumerate(p))
            new = torch.tensor(phis, dtype=torch.float64) * R
            X = new if step == 0 else (1 - damping) * new + damping * X
            Z = Y - X @ C + onsager / uses * Z
        means.append(torch.tensor(mean, dtype=torch.float64))
    return torch.stack(means)
