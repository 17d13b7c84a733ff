r"""Power control: what devices make of what they believe of the channel.

Every device may spend power one on average. It multiplies its signal with $t$, from its own belief $\hat h$ of the first
antenna's gain, whose mean power is $\beta$, or with several access points the mean over them:

| control       | $t$                                          | silent                 | arrives at                |
|---------------|----------------------------------------------|------------------------|---------------------------|
| `none`        | $1$                                          | nobody                 | $\sqrt\beta h$            |
| `inversion`   | $\sqrt{\rho_0}/(\sqrt\beta\hat h)$           | $|\hat h|^2 < g$       | $\sqrt{\rho_0}$           |
| `phase`       | $\hat h^*/|\hat h|$                          | nobody                 | $\sqrt\beta |h|$          |
| `statistical` | $c/\sqrt\beta$                               | nobody                 | $c h$                     |
| `common`      | $\sqrt\eta/(\sqrt\beta\hat h)$, $\eta = \min_k \beta_k|\hat h_k|^2$ | nobody | $\sqrt\eta$            |
| `beamforming` | as `common`, $\hat h$ behind a beam (`beams.py`) | who is left out    | $\sqrt\eta$                |

$\rho_0 = 1/(E[1/\beta]\,E[|\hat h|^{-2};\,|\hat h|^2 \ge g])$ keeps the mean power at one; in Rayleigh fading the second
factor is the exponential integral $E_1(g)$. $c = E[1/\beta]^{-1/2}$ likewise. Under `common` the weakest device spends one
and all others less; under `beamforming` it is the weakest of those that are not left out. The base station knows the level
that control aims at and divides by it.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Complex, Float
from scipy import integrate, special
from torch import Tensor

from aircomp.channel.places import Layout
from aircomp.channel.recorded import RecordedGains
from aircomp.channel.settings import USUAL_THRESHOLD, Inversion, PowerSettings
from aircomp.errors import ConfigError


@dataclass(frozen=True)
class Belief:
    """The law of what devices believe of their gains."""

    rician_factor: float = 0.0
    csi_correlation: float = 1.0
    path_loss: float = 0.0
    access_points: int = 1

    def mean_inverse(self, threshold: float) -> float:
        r"""Return $E[1/|\hat h|^2;\, |\hat h|^2 \ge g]$; in Rayleigh fading the exponential integral."""
        if self.rician_factor == 0:
            return float(special.exp1(threshold))
        share = self.csi_correlation**2 / (1 + self.rician_factor)
        direct, scattered = share * self.rician_factor, share + 1 - self.csi_correlation**2

        def density_over(x: float) -> float:
            apart = (math.sqrt(x) - math.sqrt(direct)) ** 2 / scattered
            return math.exp(-apart) * float(special.i0e(2 * math.sqrt(x * direct) / scattered)) / scattered / x

        end = (math.sqrt(direct) + 8 * math.sqrt(scattered)) ** 2  # exp(−64) beyond
        return float(integrate.quad(density_over, threshold, end, points=[direct], limit=200)[0])

    @property
    def mean_inverse_path(self) -> float:
        r"""Return $E[1/\beta]$ over the disc, $\beta = (d/R)^{-\alpha}$."""
        return Layout(self.access_points, self.path_loss).mean_inverse


def threshold_of(settings: Inversion, belief: Belief | RecordedGains) -> float:
    """Return the threshold of inversion: as set, or the smallest that keeps the peak.

    Raises:
        ConfigError: If no threshold keeps it.
    """
    if settings.peak_db is None:
        return USUAL_THRESHOLD if settings.threshold is None else settings.threshold

    def excess(log_g: float) -> float:
        g = math.exp(log_g)
        inverse = belief.mean_inverse(g) * belief.mean_inverse_path
        return -10 * math.log10(g * inverse) - peak_db if inverse else math.inf  # a file may have no gain so large

    peak_db, grid = settings.peak_db, np.linspace(math.log(1e-6), math.log(3.0), 120)
    above = [excess(x) for x in grid]
    kept = next((i for i, x in enumerate(above) if x <= 0), None)
    if kept is None:
        raise ConfigError(
            f"power.peak_db = {peak_db:g}: inversion peaks {peak_db + min(above):.1f} dB above its mean power at least; "
            "give at least that"
        )
    low, high = grid[max(kept - 1, 0)], grid[kept]
    for _ in range(50 if kept else 0):
        middle = (low + high) / 2
        low, high = (low, middle) if excess(middle) <= 0 else (middle, high)
    return math.exp(high)


def control_power(
    settings: PowerSettings,
    belief: Belief | RecordedGains,
    believed: Complex[Tensor, "devices blocks"],
    path_gain: Float[Tensor, " devices"],
    chosen: Bool[Tensor, "devices blocks"] | None = None,
) -> tuple[Complex[Tensor, "devices blocks"], Float[Tensor, " blocks"]]:
    """Return what each device multiplies its signal with in each block, and the level that all aim at.

    Args:
        settings: The kind of control.
        belief: The law of `believed`, for the mean power.
        believed: What devices believe of the small-scale gain, of mean power one.
        path_gain: The mean power of each device's gain, which it knows.
        chosen: Those that are not left out, under beamforming.
    """
    root, one = path_gain.sqrt()[:, None], torch.ones(believed.shape[1], dtype=path_gain.dtype, device=path_gain.device)
    match settings.control:
        case "none":
            return torch.ones_like(believed), one
        case "phase":
            return torch.sgn(believed).conj().resolve_conj(), one
        case "statistical":
            level = belief.mean_inverse_path**-0.5
            return (level / root).expand_as(believed).to(believed), level * one
        case "inversion":
            assert isinstance(settings, Inversion)
            threshold = threshold_of(settings, belief)
            inverse = belief.mean_inverse(threshold) * belief.mean_inverse_path
            if not inverse:
                raise ConfigError(
                    f"power.threshold = {threshold:g}: no gain of the file is so large; give a smaller one"
                )
            level = inverse**-0.5
            strong = believed.abs().square() >= threshold
            undone = (root * believed).where(strong, torch.ones_like(believed)).reciprocal()
            return level * undone * strong, level * one
        case "common":
            gain = root * believed
            level = gain.abs().amin(dim=0)
            return level / gain, level
        case _:
            assert chosen is not None  # from `choose_beams`
            gain = root * believed
            level = gain.abs().where(chosen, torch.inf).amin(dim=0)
            return level / gain * chosen, level
