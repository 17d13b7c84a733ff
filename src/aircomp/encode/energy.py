r"""How much energy each codeword gets, by what it stands for (our addition).

With equal energies a codeword that stands for nearly nothing costs as much as one that carries the update. A wrong count of
codeword $j$ costs $\|q_j\|^2$. With energy $e$ behind noise of variance $\sigma^2$ it is wrong with a probability of about
$\exp(-e/c\sigma^2)$. The least expected cost at mean energy one,

$$\min_e \sum_j \pi_j \|q_j\|^2 e^{-e_j / c\sigma^2} \quad \text{with} \quad \sum_j \pi_j e_j = 1, \qquad
e_j = c\,\sigma^2 \log\bigl(1 + \|q_j\|^2 / \theta\bigr),$$

is water-filling over codewords: θ is set by the mean. (The minimum itself has $\log^+(\|q_j\|^2/\theta)$, which silences
codewords.) With much noise energy grows with the length squared, as in analog transmission; with little noise all
energies are equal, as in the paper. Unequal error protection and hybrid digital-analog coding are the related ideas.

    codebook Q, popularity π ──► codeword_energies ──► limited and scaled to what devices choose ──► rows √e_j c_j
    noise of the last round  ──┘
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Real
from torch import Tensor

EXPONENT = 16.0
"""c: one codeword against none is told apart with exp(−e/8σ²), and other devices are as much noise again. Fitted: of 4 to 64,
16 and 32 have the least update NMSE on ResNet, VGG and digits; 16 decodes more counts (`tools/fit_constants.py energy`)."""
PEAK = 36.0
"""The most energy of a codeword where nobody says how much: six times the mean amplitude. Nine loses at −5 dB and below."""
SHORTEST = 1e-6
"""Energy of what a codeword stands for, over the mean one, that shorter ones are taken for: zero is a message too."""
QUIETEST = 1e-3
"""The least energy of a codeword: it costs little, and a base station without noise can count all of them."""
MOST_NOISE, LEAST_NOISE = 1e6, 1e-6
"""Beyond these energies are proportional to the length squared, or equal."""
STEPS = 100
"""Halvings of an interval: more than the digits of a double."""


@dataclass(frozen=True)
class Shaped:
    """Codewords of a round before devices and base station agree on their scale."""

    energies: Float[Tensor, " codewords"]
    """Mean one under the popularity, none above the peak."""
    directions: Float[Tensor, "codewords uses"]
    """Of length one."""
    leaning: bool = False
    """Whether some are alike, so that they are decoded in a basis of their own."""


def codeword_energies(
    codebook: Float[Tensor, "codewords fragment"],
    popularity: Float[Tensor, " codewords"],
    noise_var: float,
    peak: float,
) -> Float[Tensor, " codewords"]:
    """Return the energy of every codeword of a round (float64): mean one under the popularity, at most `peak`.

    Args:
        codebook: What each codeword stands for.
        popularity: How often each is chosen.
        noise_var: Noise variance per channel use, beside codewords of mean energy one.
        peak: The most that a codeword may have.
    """
    worth = codebook.double().square().sum(dim=1)
    worth = worth / worth.max().clamp(min=torch.finfo(worth.dtype).tiny)  # the unit of updates shrinks by orders
    shares = popularity.double() / popularity.double().sum()
    mean = float(shares @ worth)
    if mean == 0:  # the popular ones stand for nothing, so no length can be compared with theirs
        return torch.ones_like(worth)
    worth = (worth / mean).clamp(min=SHORTEST).log()
    strength = EXPONENT * min(max(noise_var, LEAST_NOISE), MOST_NOISE)

    def energies(level: float) -> Tensor:
        return (strength * torch.nn.functional.softplus(worth - level, threshold=40.0)).clamp(QUIETEST, peak)

    # from where every codeword has more than enough energy to where none has
    low, high = float(worth.min()) - 2 / strength - 1, float(worth.max()) + math.log(strength) + 40
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if float(shares @ energies(middle)) > 1 else (low, middle)
    found = energies(high)
    return limited(found, scale_to_one(found, shares, peak), peak)


def scale_to_one(energies: Float[Tensor, " n"], shares: Real[Tensor, " n"], peak: float) -> float:
    """Return the factor with which energies, none then above `peak`, have mean one; zero if they are all zero.

    Where too few of them are positive for that within the peak, all of those are at the peak.

    >>> import torch
    >>> scale_to_one(torch.tensor([1.0, 9.0]), torch.tensor([0.75, 0.25]), peak=2.0)
    0.6666666666666666
    """
    spending = energies[(shares > 0) & (energies > 0)].double()
    if not len(spending):
        return 0.0
    shares = shares[(shares > 0) & (energies > 0)].double() / shares.double().sum()
    order = spending.argsort(descending=True)
    spending, shares = spending[order], shares[order]
    # with the k largest at the peak, the others share what is left
    left = 1 - peak * (shares.cumsum(0) - shares)
    below = (spending * shares).flip(0).cumsum(0).flip(0)
    scales = left / below
    fits = (scales * spending <= peak * (1 + 1e-12)).nonzero()
    return float(scales[fits[0]]) if len(fits) and float(scales[fits[0]]) > 0 else peak / float(spending[-1])


def limited(energies: Float[Tensor, "*n"], scale: float, peak: float) -> Float[Tensor, "*n"]:
    """Return energies after scaling, none above the peak."""
    return (energies * scale).clamp(max=peak)
