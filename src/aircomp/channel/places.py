r"""Where antennas stand: in the middle of the disc, or at access points that are spread over it.

Distances are in radii of the disc. A device at distance $d_b$ of access point $b$ has the mean gain
$\beta_b = \max(d_b, 1/30)^{-\alpha}$ to its antennas, whatever their number: as to one site, gain one is that at a distance
of one radius.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.channel.settings import BlockFadingSettings
from aircomp.errors import ConfigError

NEAREST = 1 / 30
"""Nearest that a device comes, in radii of the disc."""
_GOLDEN = math.pi * (3 - math.sqrt(5))
_FINE = 16_384
"""Places that stand for the whole disc in a mean over it."""


def places(number: int) -> Float[Tensor, "places 2"]:
    """Return points that share the disc about evenly: one in the middle, or several on a spiral, as seeds of a sunflower."""
    if number == 1:
        return torch.zeros(1, 2, dtype=torch.float64)
    step = torch.arange(number, dtype=torch.float64)
    return on_disc(((step + 0.5) / number).sqrt(), _GOLDEN * step)


def on_disc(distance: Float[Tensor, " places"], angle: Float[Tensor, " places"]) -> Float[Tensor, "places 2"]:
    """Return points at a distance from the middle, in a direction in radians."""
    return distance[:, None] * torch.stack([angle.cos(), angle.sin()], 1)


@dataclass(frozen=True)
class Layout:
    """What is known of mean gains from where devices and antennas are."""

    access_points: int = 1
    path_loss: float = 0.0
    equalised: bool = False
    """Whether devices undo their mean gain, so that all arrive with the same power in sum."""

    def gains(self, positions: Float[Tensor, "places 2"]) -> Float[Tensor, "places access_points"]:
        """Return the mean gain from each place to each access point."""
        middle = places(self.access_points).to(positions)
        return torch.cdist(positions, middle).clamp(min=NEAREST) ** -self.path_loss

    def arriving(self, positions: Float[Tensor, "places 2"]) -> Float[Tensor, "places access_points"]:
        """Return the mean power with which each access point hears a device at each place, behind power control."""
        gains = self.gains(positions)
        return gains / gains.mean(dim=1, keepdim=True) if self.equalised else gains

    @property
    def mean_inverse(self) -> float:
        r"""Return $E[1/\bar\beta]$ over the disc, $\bar\beta$ the mean over access points."""
        if self.access_points > 1:
            return float(self.gains(places(_FINE)).mean(dim=1).reciprocal().mean())
        a = self.path_loss
        return NEAREST ** (a + 2) + (1 - NEAREST ** (a + 2)) * 2 / (a + 2)


def check_places(settings: BlockFadingSettings, control: str, coherent: tuple[str, ...]) -> None:
    """Refuse access points that cannot be.

    Raises:
        ConfigError: If antennas do not divide evenly, or something is asked for that knows one site alone.
    """
    number = settings.places
    if settings.antennas % number:
        raise ConfigError(
            f"channel.access_points = {number} do not divide channel.antennas = {settings.antennas} evenly; "
            "make the number of antennas a multiple of them"
        )
    if number > 1 and control in coherent:
        raise ConfigError(
            f"power.control = {control!r} lets signals arrive in phase at one site, but channel.access_points = {number}; "
            "use 'none' or 'statistical', or one access point"
        )
    if number > 1 and settings.direct > 0:
        raise ConfigError(
            f"channel.rician_factor = {settings.direct:g} is a direct path to one site, but channel.access_points = "
            f"{number}; leave it out, or use one access point"
        )
