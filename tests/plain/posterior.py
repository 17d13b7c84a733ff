"""The posterior of a slot by enumeration, and one Gibbs sweep of one slot as it is written down, in double precision."""

import math
from itertools import combinations_with_replacement

import torch
from jaxtyping import Float, Int
from torch import Tensor


def enumerate_posterior(
    received: Float[Tensor, "slots uses"],
    codebook: Float[Tensor, "codewords uses"],
    rate: Float[Tensor, " codewords"],
    num_active: int,
    noise_var: float,
    *,
    agreement: float = 0.0,
) -> tuple[Int[Tensor, "states codewords"], Float[Tensor, "slots states"]]:
    """Return all counts that `num_active` devices can make, and their posterior probabilities in every slot."""
    n = len(codebook)
    states = [torch.tensor(c).bincount(minlength=n) for c in combinations_with_replacement(range(n), num_active)]
    counts = torch.stack(states)
    shares = (rate.double() / rate.double().sum()).tolist()
    prior = torch.tensor([_log_prior(x.tolist(), shares, agreement) for x in states], dtype=torch.float64)
    residual = received.double()[:, None, :] - counts.double() @ codebook.double()
    return counts, torch.softmax(prior - residual.square().sum(2) / (2 * noise_var), dim=1)


def _log_prior(x: list[int], shares: list[float], agreement: float) -> float:
    """Return the multinomial or Dirichlet-multinomial log-probability of counts, up to a constant."""
    total = -sum(math.lgamma(m + 1) for m in x)
    if agreement == 0:
        return total + sum(m * math.log(p) for m, p in zip(x, shares, strict=True))
    alphas = [(1 - agreement) / agreement * p for p in shares]
    return total + sum(math.lgamma(a + m) - math.lgamma(a) for m, a in zip(x, alphas, strict=True))


def gibbs_sweep(
    labels: list[int],
    received: Float[Tensor, " uses"],
    codebook: Float[Tensor, "codewords uses"],
    rate: Float[Tensor, " codewords"],
    noise_var: float,
    uniforms: list[float],
    *,
    agreement: float = 0.0,
) -> list[int]:
    """Return the labels after one `Chains.sweep` of one slot."""
    y, c = received.double(), codebook.double()
    shares, labels = (rate.double() / rate.double().sum()).tolist(), list(labels)
    for k, u in enumerate(uniforms):
        others = labels[:k] + labels[k + 1 :]
        residual = y - c[others].sum(0)
        weights = []
        for j, share in enumerate(shares):
            fit = float(c[j] @ residual - c[j] @ c[j] / 2) / noise_var
            prior = (1 - agreement) / agreement * share + others.count(j) if agreement else share
            weights.append(math.log(prior) + fit)
        reached = torch.softmax(torch.tensor(weights, dtype=torch.float64), 0).cumsum(0)
        labels[k] = int((reached <= u).sum())
    return labels
