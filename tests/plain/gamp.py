"""GAMP as it is written down: double precision, a loop over slots, a table of counts with an exponential each."""

import torch
from jaxtyping import Float
from torch import Tensor


def gamp(
    received: Float[Tensor, "slots uses"],
    codebook: Float[Tensor, "codewords uses"],
    noise_var: Float[Tensor, " slots"],
    rate: Float[Tensor, " codewords"],
    *,
    iterations: int,
    max_count: int = 60,
) -> Float[Tensor, "slots codewords"]:
    """Return the posterior means of `aircomp.decoders.amp.steps.iterate`."""
    y, c, sigma2, lam = received.double(), codebook.double(), noise_var.double(), rate.double()
    means = []
    for i in range(len(y)):
        x_hat, nu = lam, lam
        scaled_residual = torch.zeros_like(y[i])
        for _ in range(iterations):
            v = nu @ c**2
            z = x_hat @ c - v * scaled_residual
            scaled_residual = (y[i] - z) / (sigma2[i] + v)
            variance = 1 / (c**2 @ (1 / (sigma2[i] + v)))
            observed = x_hat + variance * (c @ scaled_residual)
            x_hat, nu, _ = table_posterior(observed, variance, lam, max_count=max_count)
        means.append(x_hat)
    return torch.stack(means) if means else y.new_zeros(0, len(c))


def table_posterior(
    observed: Tensor,
    variance: Tensor,
    rate: Tensor,
    *,
    max_count: int,
    temperature: float = 1.0,
    agreement: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, variance and probability of activity over the counts 0 to `max_count`, in double precision."""
    m = torch.arange(max_count + 1, dtype=torch.float64)
    log_weight = m * rate.double().log()[..., None] - torch.lgamma(m + 1)
    if agreement:
        spread = rate.double().sum(-1, keepdim=True) * agreement / (1 - agreement)
        a = (rate.double() / spread)[..., None]
        log_weight = torch.lgamma(a + m) - torch.lgamma(a) - torch.lgamma(m + 1)
        log_weight = log_weight + m * (spread / (1 + spread)).log()[..., None]
    log_weight = log_weight - (observed.double()[..., None] - m) ** 2 / (2 * variance.double()[..., None])
    weight = torch.softmax(log_weight / temperature, -1)
    mean = weight @ m
    var = (weight * (m - mean[..., None]) ** 2).sum(-1)
    return mean, var, weight[..., 1:].sum(-1)
