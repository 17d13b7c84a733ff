r"""What of a device's signal arrives as expected: what imperfections cost schemes that are taken to reach capacity.

Schemes that send bits in turns draw no symbols that a wrong phase could turn. What imperfections cost them is derived here.
The base station takes a device's symbol $x$, Gaussian and of power $\gamma$ over the noise, to arrive at the gain that was
agreed, in phase, in time and in tune. What it hears is $y = g x + i + n$: the gain is off, and $i$ are symbols that are late.
Let $P$ be the power of $gx + i$ over that of $x$, and $c = |E g|$ what is expected of it. The rest is uncorrelated with $x$,
and noise of that power does the most harm where it is Gaussian. With the share $\kappa = c^2/P$ a device that is heard with
$\gamma$ therefore has the SNR and the rate

$$\gamma' = \frac{\kappa\gamma}{1 + (1 - \kappa)\gamma}, \qquad \tfrac12\log_2(1 + \gamma').$$

A decoder that takes the nearest codeword reaches it (Lapidoth and Shamai 2002). More power does not help beyond
$\kappa/(1 - \kappa)$. The factors of $c$ and $P$:

| error                                     | $c$                                | $P$                          |
|-------------------------------------------|------------------------------------|------------------------------|
| phase, of deviation $s$                   | $e^{-s^2/2}$                       | $1$                          |
| belief $\hat h$ of correlation $\rho$     | $\rho|\hat h|$                     | $\rho^2|\hat h|^2 + 1-\rho^2$ |
| late by $\delta$ of a use                 | $1 - \delta$                       | $(1-\delta)^2 + \delta^2$    |
| $f$ turns a use off, in blocks of $B$     | $\frac1B\sum_{m<B}\cos 2\pi f m$   | $1$                          |

The first two change from block to block, so that a device and the base station know their law alone. They cost nothing
where signals need not arrive in phase: the base station then learns the gain of every block with the SNR, errors included.
The last two stay for the round, and count as they are.
"""

import math

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from aircomp.channel.base import Offsets
from aircomp.channel.settings import ErrorSettings


def share_in_phase(
    errors: ErrorSettings, believed: Complex[Tensor, "devices blocks"]
) -> Float[Tensor, "devices blocks"]:
    """Return the share that wrong phases and beliefs leave, where control aims at a phase.

    Args:
        errors: How large they are.
        believed: What devices believe of the gains, of mean power one.
    """
    known, unknown = errors.csi_correlation**2 * believed.abs().square(), 1 - errors.csi_correlation**2
    share = known / (known + unknown) if unknown else torch.ones_like(known)
    return math.exp(-(math.radians(errors.phase_deg) ** 2)) * share


def share_in_time(offsets: Offsets, block_pairs: int) -> Float[Tensor, " devices"]:
    """Return the share that late and detuned devices keep.

    Args:
        offsets: How late and how far off each is.
        block_pairs: Complex channel uses of a block, at whose start carriers are right.
    """
    half = math.pi * offsets.frequency.double()
    # the sum of cosines in closed form; a carrier that is right has one throughout
    mean = torch.cos(half * (block_pairs - 1)) * torch.sin(half * block_pairs) / (block_pairs * torch.sin(half))
    tuned = mean.where(half != 0, 1.0).clamp(min=0.0)  # a signal that arrives upside down is not what is expected
    return ((1 - offsets.timing.double()) * tuned).square() / power_in_time(offsets)


def power_in_time(offsets: Offsets) -> Float[Tensor, " devices"]:
    """Return the power that late devices arrive with."""
    late = offsets.timing.double()
    return (1 - late).square() + late.square()


def effective_snr(
    snr: Float[Tensor, "devices slots"], share: Float[Tensor, "devices slots"]
) -> Float[Tensor, "devices slots"]:
    """Return what an SNR is worth where so much of the signal arrives as it is expected.

    >>> effective_snr(torch.tensor([[3.0]]), torch.tensor([[0.5]]))
    tensor([[0.6000]])
    """
    return share * snr / (1 + (1 - share) * snr)
