r"""Gains from a file: of a ray tracer, a data set, or a measurement.

    file [users, blocks, antennas] ──► over the root of their mean power ──► a round's devices are users drawn at random

The mean power over the whole file becomes one, so that an SNR means what it means elsewhere. What differs between users,
blocks and antennas stays. User $u$ has the mean gain $\beta_u$, the mean power over its blocks and antennas. A round begins
at a block of the file drawn at random, and after the last one goes on with the first.
"""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Complex, Float
from torch import Tensor

from aircomp.channel.settings import RecordedSettings
from aircomp.common.artefact import check_file
from aircomp.common.rng import generator
from aircomp.errors import ArtefactError, ConfigError

MOST_BYTES = 4 * 2**30
"""What a file may have."""


@dataclass(frozen=True)
class RecordedGains:
    """What a file holds, at mean power one."""

    path_gain: Float[Tensor, " users"]
    small: Complex[Tensor, "users blocks antennas"]
    """The gain beside it: a user's has mean power one."""

    def mean_inverse(self, threshold: float) -> float:
        r"""Return $E[1/(\beta|h|^2);\, |h|^2 \ge g] / E[1/\beta]$ of the first antenna."""
        power = self.small[:, :, 0].abs().square()
        # together, because a strong user of a file may have other gains beside its mean than a weak one
        inverse = torch.where(power >= threshold, power.reciprocal(), 0.0) / self.path_gain[:, None]
        return float(inverse.mean()) / self.mean_inverse_path

    @property
    def mean_inverse_path(self) -> float:
        r"""Return $E[1/\beta]$ over the users."""
        return float(self.path_gain.reciprocal().mean())


def load_gains(settings: RecordedSettings) -> RecordedGains:
    """Read the gains that settings name.

    Raises:
        ArtefactError: If the file cannot be used.
        ConfigError: If it has fewer antennas than are asked for.
    """
    check_file(settings.gains, MOST_BYTES)
    seen = os.stat(settings.gains)
    values = _read(settings.gains, seen.st_mtime_ns, seen.st_size)
    if values.shape[2] < settings.antennas:
        raise ConfigError(
            f"channel.antennas = {settings.antennas}, but {settings.gains} has gains of {values.shape[2]}; ask for at most "
            "those"
        )
    values = values[:, :, : settings.antennas]
    path_gain = values.abs().square().mean(dim=(1, 2))
    silent = (values == 0).any(dim=2).any(dim=1).nonzero().flatten().tolist()
    if silent:
        raise ArtefactError(
            f"{settings.gains}: {len(silent)} users have gains of exactly zero, the first one user {silent[0]}; leave them "
            "out"
        )
    return RecordedGains(path_gain / path_gain.mean(), values / path_gain.sqrt()[:, None, None])


@lru_cache(maxsize=2)
def _read(path: Path, modified: int, size: int) -> Complex[Tensor, "users blocks antennas"]:
    try:
        values = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ArtefactError(f"{path} is damaged or no .npy file ({error}); write it with numpy.save") from None
    if not isinstance(values, np.ndarray) or values.ndim not in (2, 3) or values.dtype.kind != "c" or not values.size:
        what = f"{values.dtype} {list(values.shape)}" if isinstance(values, np.ndarray) else "an archive"
        raise ArtefactError(
            f"{path} holds {what}; expected complex numbers [users, blocks, antennas], or [users, antennas]"
        )
    if not np.isfinite(values).all():
        raise ArtefactError(f"{path} holds gains that are no finite numbers; make it anew")
    found = torch.from_numpy(values.astype(np.complex128))
    return found[:, None] if found.ndim == 2 else found


def draw_recorded(
    settings: RecordedSettings, num_devices: int, blocks: int, *, seed: int
) -> tuple[Float[Tensor, " devices"], Complex[Tensor, "devices blocks antennas"]]:
    """Return mean gains and the gains beside them of users drawn at random, each at most once.

    Raises:
        ConfigError: If more devices send than the file has users.
    """
    known = load_gains(settings)
    users, recorded, _ = known.small.shape
    if num_devices > users:
        raise ConfigError(
            f"{num_devices} devices send, but {settings.gains} has gains of {users} users; give a larger file"
        )
    rng = generator(seed, "recorded gains")
    first = int(torch.randint(recorded, (1,), generator=rng))
    chosen = torch.randperm(users, generator=rng)[:num_devices]
    which = (first + torch.arange(blocks)) % recorded
    return known.path_gain[chosen], known.small[chosen][:, which]
