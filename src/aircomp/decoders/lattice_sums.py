r"""What a noisy sum of points of a lattice tells of the sum modulo a prime.

$K$ devices send whole numbers, and the receiver hears $y = \sum_k x_k + n$. Sums $s$ have the probability
$P(s) e^{-(y - s)^2 / 2\sigma^2}$ but for a factor, and a residue $v$ has that of all sums $s \equiv v \bmod p$. The prior
$P$ is the $K$-fold convolution of what a device sends; it does what scaling what is heard does in compute-and-forward.
"""

import torch
from jaxtyping import Float
from torch import Tensor

CHUNK = 1 << 22
"""Pairs of a sum and a value that are compared at a time: 16 MB a copy."""
CERTAIN = 1e-6
"""The least variance of the noise: without noise the nearest value has all of the posterior."""
MOST_POINTS = 2048
"""Of a quadrature, which has three for every deviation of the noise: the trapezoid rule is then exact to six digits."""


def residues(
    heard: Float[Tensor, " numbers"], noise_var: float, prior: Float[Tensor, " values"], prime: int
) -> Float[Tensor, "numbers prime"]:
    """Return the distribution of every sum modulo a prime.

    Args:
        heard: Sums with noise.
        noise_var: The variance of the noise.
        prior: The probability of the sums 0, 1, 2 and so on.
        prime: What residues are taken of.
    """
    values = torch.arange(len(prior), dtype=heard.dtype, device=heard.device)
    log_prior = prior.clamp(min=1e-30).log().to(heard)
    found = heard.new_empty(len(heard), prime)
    size = max(CHUNK // len(prior), 1)
    for some, out in zip(heard.split(size), found.split(size), strict=True):
        score = log_prior - (some[:, None] - values).square() / (2 * max(noise_var, CERTAIN))
        whole = torch.nn.functional.pad(score.softmax(dim=1), (0, -len(prior) % prime))
        torch.sum(whole.unflatten(1, (-1, prime)), dim=1, out=out)
    return found


def uncertainty(noise_var: float, prior: Float[Tensor, " values"], prime: int) -> tuple[float, float]:
    """Return what is left open of a residue on average: its entropy in symbols, one at most, and its variance.

    Args:
        noise_var: The variance of the noise.
        prior: The probability of the sums 0, 1, 2 and so on.
        prime: What residues are taken of.
    """
    # ends of the quadrature: five deviations beyond the values that occur
    likely = (prior > 1e-6).nonzero()[:, 0]
    reach = 5 * noise_var**0.5
    wide = float(likely[-1] - likely[0]) + 2 * reach
    points = int(min(max(3 * wide / max(noise_var, CERTAIN) ** 0.5, 64), MOST_POINTS))
    y = torch.linspace(float(likely[0]) - reach, float(likely[-1]) + reach, points, dtype=torch.float64)
    apart = y[:, None] - torch.arange(len(prior), dtype=torch.float64)
    weight = (prior.double() * (-apart.square() / (2 * max(noise_var, CERTAIN))).exp()).sum(dim=1)
    weight = weight / weight.sum().clamp(min=1e-300)
    told = residues(y, noise_var, prior.double(), prime)
    entropy = -(told * told.clamp(min=1e-300).log()).sum(dim=1) / torch.log(torch.tensor(prime))
    values = torch.arange(prime, dtype=torch.float64)
    variance = told @ values.square() - (told @ values).square()
    return float(weight @ entropy), float(weight @ variance)
