r"""What the counts of a slot hold and what the channel can carry, in bits: limits that no decoder passes.

    shares, K ──────────────────────► entropy_bits    what the counts hold
    SNR, uses ──────────────────────► capacity_bits   the most that any codebook brings across
    codebook, shares, K, noise ─────► signal_bits     the most that this codebook brings across
    bits, shares, K ────────────────► AccuracyLimit   the highest count accuracy that so many bits allow
                                      exact_limit     the largest share of slots that they allow to be exact

All hold for a slot of $K$ devices that choose their codewords independently with known shares $p$, and for slots that
say nothing of each other. Real devices agree more than that, and differ by layer. Their counts hold less, so a
decoder that knows this may exceed these limits.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.errors import ConfigError, ShapeError

SLOPES = tuple(0.25 * 2 ** (step / 2) for step in range(11))
"""Tangents of the rate–distortion function, in nats for one device: from where half the devices err to almost none."""
ROUNDS = 50
"""Of Blahut and Arimoto; more change a limit by less than 0.001, and fewer only raise it."""
MOST_DEVICES = 128
"""Up to so many an `AccuracyLimit` takes about a second; its work grows with their square."""


def capacity_bits(snr_db: float, uses: int) -> float:
    r"""Return $\tfrac l2\log_2(1+\mathrm{SNR})$, the most that a slot of `uses` real channel uses carries.

    Where it is below the entropy of the counts, no decoder is right in all slots. It does not bound the count accuracy,
    which forgives part of the errors; see `AccuracyLimit`. The SNR is the mean over the round: slots that have more
    than that cannot make up for those that have less, as the logarithm is concave. Under `slot` SNR every slot has the
    same, but the level of its noise tells its power as well, which `signal_bits` counts and this does not.
    """
    if uses < 1 or math.isnan(snr_db):
        raise ConfigError(f"snr_db = {snr_db}, uses = {uses}: expected decibels and at least one channel use")
    return uses / 2 * math.log2(1 + 10 ** (snr_db / 10))


def entropy_bits(shares: Float[Tensor, " codewords"], num_active: int) -> float:
    r"""Return the entropy of the multinomial counts of a slot.

    $$H(x) = -\log_2 K! - K\sum_j p_j\log_2 p_j + \sum_j \mathrm E\log_2 x_j!, \quad x_j \sim \mathrm{Bin}(K, p_j):$$

    the entropy of all labels, less the order of the devices, which superposition forgets.
    """
    p = _checked(shares, num_active)
    x = torch.arange(num_active + 1, dtype=p.dtype, device=p.device)
    orders = math.lgamma(num_active + 1) - (_marginals(p, num_active) * torch.lgamma(x + 1)).sum().item()
    return (-num_active * torch.xlogy(p, p).sum().item() - orders) / math.log(2)


def signal_covariance(
    codebook: Float[Tensor, "codewords uses"], shares: Float[Tensor, " codewords"], num_active: int
) -> Float[Tensor, "uses uses"]:
    r"""Return the covariance of the superposed signal, $K\,C^\top(\mathrm{diag}(p) - pp^\top)C$."""
    p, rows = _checked(shares, num_active), codebook.double()
    if rows.ndim != 2 or len(rows) != len(p):
        raise ShapeError(
            f"codebook has shape {tuple(codebook.shape)}; expected [{len(p)}, uses], one row for each share"
        )
    mean = p @ rows
    return num_active * ((p[:, None] * rows).T @ rows - mean[:, None] * mean)


def signal_bits(covariance: Float[Tensor, "uses uses"], noise_var: Float[Tensor, " slots"]) -> float:
    r"""Return the most that a received slot can tell of its counts, for a signal with this covariance.

    $$I(x;y) \le \tfrac12\sum_m\log_2\Bigl(1+\frac{\mu_m}{\overline{\sigma^2}}\Bigr)
                 + \tfrac l2\bigl(\log_2\overline{\sigma^2} - \overline{\log_2\sigma^2}\bigr),$$

    $\mu$ the eigenvalues: no $y$ of that covariance has more entropy than a Gaussian one, and given the counts $y$ is
    Gaussian. Below `capacity_bits`, because the mean of the signal is known beforehand and its power is spent on
    nothing. The second term is what the level of the noise tells where it follows the slot's power (`slot` SNR).

    Args:
        covariance: Of the signal without noise, from `signal_covariance`.
        noise_var: Noise variance of many slots that were drawn from the same shares.
    """
    noise_var = noise_var.double()
    if not len(noise_var) or not (noise_var > 0).all():
        return math.inf
    mean = noise_var.mean()
    spectrum = torch.linalg.eigvalsh(covariance).clamp(min=0)  # rounding may leave an eigenvalue of zero below it
    level = (mean.log() - noise_var.log().mean()).clamp(min=0) * len(covariance)  # equal variances may round below 0
    return (torch.log1p(spectrum / mean).sum() + level).item() / (2 * math.log(2))


def draw_counts(
    shares: Float[Tensor, " codewords"], num_active: int, num_slots: int, *, rng: torch.Generator
) -> Int[Tensor, "slots codewords"]:
    """Draw the counts of slots whose devices choose independently."""
    p = _checked(shares, num_active).to(rng.device)
    labels = torch.multinomial(p, num_active * num_slots, replacement=True, generator=rng).reshape(num_slots, -1)
    counts = torch.zeros(num_slots, len(p), dtype=torch.int64, device=labels.device)
    return counts.scatter_add_(1, labels, torch.ones_like(labels)).to(shares.device)


def exact_limit(bits: float, shares: Float[Tensor, " codewords"], num_active: int) -> float:
    r"""Return the largest share of slots whose counts can all be right, for `bits` about each slot on average.

    Fano's inequality: whoever knows what was decoded still lacks one answer, right or wrong, and if it is wrong, which of
    the $M - 1$ other counts was sent. So a share $q$ of exact slots needs

    $$H(x) - \text{bits} \le H(x \mid \hat x) \le h(q) + (1-q)\log_2(M-1), \qquad M = \binom{K+n-1}{K}.$$

    The right side is concave in $q$ and falls from $q = 1/M$ on; the limit is where it meets the left side. The share over
    slots with different bits is bounded by that of their mean, because the right side is concave.
    """
    lacking, codewords = entropy_bits(shares, num_active) - bits, int((shares > 0).sum())
    outcomes = math.comb(num_active + codewords - 1, num_active)
    if lacking <= 0 or outcomes == 1:
        return 1.0

    def unknown(q: float) -> float:
        answer = -sum(p * math.log2(p) for p in (q, 1 - q) if p > 0)
        return answer + (1 - q) * math.log2(outcomes - 1)

    low, high = 1 / outcomes, 1.0
    for _ in range(60):  # halves: to the precision of a float
        middle = (low + high) / 2
        low, high = (middle, high) if unknown(middle) >= lacking else (low, middle)
    return high


@dataclass(frozen=True)
class AccuracyLimit:
    r"""The highest count accuracy that a number of bits about each slot allows, whoever decodes.

    Let $\hat x$ be decoded from what tells `bits` of $x$, and $D = \mathrm E\lVert x-\hat x\rVert_1$. Then for $s > 0$

    $$\text{bits} \ge I(x;\hat x) \ge H(x) - \sum_j H(x_j) + \sum_j I(x_j;\hat x_j),\qquad
      \sum_j I(x_j;\hat x_j) \ge V(s) - sD,$$

    the first because errors of all codewords together are no less sure than one by one, the second with $V(s)$ the
    tangents of the rate–distortion functions of the binomial counts. So $D \ge (V(s) - \text{spare} - \text{bits})/s$.
    The metric forgives what is worse than wrong (a slot counts no less than 0): one further bit for each slot would tell
    the decoder where to answer nothing instead, which scores the same without that pardon.
    """

    num_active: int
    tangents: tuple[float, ...]
    """V at each of SLOPES, in nats."""
    spare: float
    """Bits that the bound gives away: what the counts of a slot tell of each other, and the one for the pardon."""

    @classmethod
    def of(cls, shares: Float[Tensor, " codewords"], num_active: int) -> "AccuracyLimit":
        """Return the limit for devices that choose with these shares; at most MOST_DEVICES of them."""
        p = _checked(shares, num_active)
        if not 1 <= num_active <= MOST_DEVICES:
            raise ConfigError(f"num_active is {num_active}; expected 1 to {MOST_DEVICES} devices")
        marginals = _marginals(p[p > 0], num_active)
        apart = -torch.xlogy(marginals, marginals).sum().item() / math.log(2)
        tangents = tuple(_tangent(marginals, slope) for slope in SLOPES)
        return cls(num_active, tangents, apart - entropy_bits(shares, num_active) + 1)

    def at(self, bits: float) -> float:
        """Return the highest mean accuracy over many slots, for `bits` about each of them on average."""
        nats = (bits + self.spare) * math.log(2)
        errors = max((v - nats) / slope for v, slope in zip(self.tangents, SLOPES, strict=True))
        return 1 - min(max(errors / self.num_active, 0.0), 1.0)


def _tangent(marginals: Float[Tensor, "codewords levels"], slope: float) -> float:
    r"""Return a lower bound on $\min \sum_j I(x_j;\hat x_j) + sD$ in nats, the least one after a few rounds.

    Blahut–Arimoto improves the distribution $q$ of what is decoded. For every positive $m(x)$, here $qe^{-s|x-\hat x|}$,
    $I + sD \ge -\mathrm E\log m(x) - \log\max_{\hat x}\mathrm E[e^{-s|x-\hat x|}/m(x)]$: it is a bound after any round.
    """
    levels = torch.arange(marginals.shape[1], dtype=marginals.dtype, device=marginals.device)
    kernel = torch.exp(-slope * (levels[:, None] - levels).abs())
    q = marginals
    for _ in range(ROUNDS):
        q = q * ((marginals / _smoothed(q, kernel)) @ kernel)
    m = _smoothed(q, kernel)
    worst = ((marginals / m) @ kernel).amax(1)
    return (-(marginals * m.log()).sum(1) - worst.log()).sum().item()


def _smoothed(q: Tensor, kernel: Tensor) -> Tensor:
    """Return m(x), kept above zero where the kernel underflows (counts far above what is ever sent)."""
    return (q @ kernel).clamp(min=1e-300)


def _marginals(p: Float[Tensor, " codewords"], num_active: int) -> Float[Tensor, "codewords levels"]:
    """Return how likely each codeword is chosen by 0, 1, …, K devices."""
    x = torch.arange(num_active + 1, dtype=p.dtype, device=p.device)
    ways = math.lgamma(num_active + 1) - torch.lgamma(x + 1) - torch.lgamma(num_active - x + 1)
    return torch.exp(ways + torch.xlogy(x, p[:, None]) + torch.xlogy(num_active - x, 1 - p[:, None]))


def _checked(shares: Tensor, num_active: int) -> Tensor:
    """Return the shares in float64 with sum one."""
    if shares.ndim != 1 or not len(shares):
        raise ShapeError(f"shares has shape {tuple(shares.shape)}; expected [codewords]")
    p = shares.double()
    if num_active < 0 or not (p >= 0).all() or not 0 < p.sum() < math.inf:
        raise ConfigError(f"num_active = {num_active}: expected no negative number, and finite shares, not all zero")
    return (p / p.sum()).clamp(max=1)
