"""Who holds which training samples: the base station's own set, then those of all devices (Sec. II, Sec. IV)."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.common.rng import as_global
from aircomp.data.settings import Dirichlet, PartitionSettings, PowerLaw, Quantity, Shards
from aircomp.errors import ConfigError, ShapeError


@dataclass(frozen=True)
class Partition:
    """Indices into the training set; no sample has two holders."""

    base_station: Int[Tensor, " bs_samples"]
    """The base station's own set (paper: D_0)."""
    devices: tuple[Int[Tensor, " _"], ...]
    """Of each device (paper: D_k, all of the same size)."""

    def class_counts(self, labels: Int[Tensor, " dataset"], num_classes: int) -> Int[Tensor, "holders classes"]:
        """Count each holder's samples of each class; row 0 is the base station.

        Raises:
            ShapeError: If a held label is not in `0 … num_classes - 1`.
        """
        holders = [self.base_station, *self.devices]
        sizes = torch.tensor([len(rows) for rows in holders], device=labels.device)
        held = labels[torch.cat(holders)].long()
        if held.min() < 0 or held.max() >= num_classes:
            raise ShapeError(
                f"labels run from {int(held.min())} to {int(held.max())}; "
                f"expected 0 to {num_classes - 1} for {num_classes} classes"
            )
        rows = torch.arange(len(holders), device=labels.device).repeat_interleave(sizes)
        return torch.bincount(rows * num_classes + held, minlength=len(holders) * num_classes).view(-1, num_classes)


def split(
    labels: Int[Tensor, " dataset"],
    num_devices: int,
    settings: PartitionSettings,
    *,
    rng: torch.Generator,
    base_station: bool = True,
) -> Partition:
    """Draw the base station's set at random, then divide what remains among the devices.

    Under `shards`, `iid` and `dirichlet` all devices hold equally many samples. What cannot be divided stays unused: fewer
    than `num_devices` samples of each part. (`shards` has two parts, a random and a sorted one.)

    Args:
        labels: The class of every training sample.
        num_devices: Number of devices, active or not (paper: K_t).
        settings: How to divide.
        rng: Decides everything that is random; equal generators give equal partitions.
        base_station: Whether the base station has a set; without one, devices get all samples.

    Raises:
        ConfigError: If some device would be left without a sample.
    """
    if num_devices < 1:
        raise ConfigError(f"num_devices = {num_devices}: expected at least one device")
    num_base = (settings.base_station_samples or len(labels) // (num_devices + 1)) if base_station else 0
    if num_base + num_devices > len(labels) or (base_station and num_base == 0):
        raise ConfigError(
            f"{len(labels)} samples are too few for {num_devices} devices and {max(num_base, 1)} of the base station; "
            "use fewer devices or more data"
        )
    shuffled = _shuffle(len(labels), rng).to(labels.device)
    base, rest = shuffled[:num_base], shuffled[num_base:]
    match settings:
        case Shards():
            devices = tuple(_shards(rest, labels, num_devices, settings.iid_fraction))
        case Dirichlet():
            devices = tuple(_dirichlet(rest, labels, num_devices, settings.alpha, rng))
        case Quantity():
            shares = _log_gamma_variates(1, num_devices, settings.alpha, rng)[0].softmax(0)
            devices = rest.split(_sizes(shares, len(rest)))
        case PowerLaw():
            shares = torch.arange(1, num_devices + 1, dtype=torch.float64) ** -settings.exponent
            devices = rest.split(_sizes(shares / shares.sum(), len(rest)))
        case _:
            devices = tuple(_deal(rest, num_devices))
    if not all(len(rows) for rows in devices):
        raise ConfigError(
            f"{len(rest)} samples in two parts leave {num_devices} devices without any; "
            "use fewer devices, more data or an iid_fraction of 0 or 1"
        )
    return Partition(base_station=base, devices=devices)


def _sizes(shares: Float[Tensor, " devices"], total: int) -> list[int]:
    """Return whole numbers near the shares of a total, at least one each: the largest remainders are rounded up."""
    wanted = 1 + shares.double() * (total - len(shares))
    sizes = wanted.floor()
    sizes[(wanted - sizes).argsort(descending=True, stable=True)[: total - int(sizes.sum())]] += 1
    return [int(size) for size in sizes]


def _shuffle(count: int, rng: torch.Generator) -> Int[Tensor, " count"]:
    return torch.randperm(count, generator=rng, device=rng.device)


def _deal(samples: Int[Tensor, " rest"], num_devices: int) -> Int[Tensor, "devices samples"]:
    """Cut into equal contiguous rows, device k getting the k-th; the last few samples stay unused."""
    share = len(samples) // num_devices
    return samples[: share * num_devices].reshape(num_devices, share)


def _shards(
    rest: Int[Tensor, " rest"], labels: Int[Tensor, " dataset"], num_devices: int, iid_fraction: float
) -> Int[Tensor, "devices samples"]:
    """Deal a random part, then the remainder sorted by label, both in the order of the devices (Sec. IV)."""
    num_iid = math.floor(iid_fraction * len(rest) + 0.5)
    # Leave out the surplus before sorting: afterwards it would all be of the last class.
    sorted_part = _deal(rest[num_iid:], num_devices).flatten()
    # `rest` is in random order, so a stable sort leaves ties in random order.
    sorted_part = sorted_part[torch.sort(labels[sorted_part], stable=True).indices]
    return torch.cat([_deal(rest[:num_iid], num_devices), _deal(sorted_part, num_devices)], dim=1)


def _dirichlet(
    rest: Int[Tensor, " rest"], labels: Int[Tensor, " dataset"], num_devices: int, alpha: float, rng: torch.Generator
) -> Int[Tensor, "devices samples"]:
    """Give each device class shares from a Dirichlet distribution, as far as the classes last.

    Devices choose in turn, so the last ones hold more of what the others left than of what they would have chosen.
    """
    share = len(rest) // num_devices
    classes, members = torch.unique(labels[rest], return_inverse=True)
    available = torch.bincount(members, minlength=len(classes)).to(rng.device)
    log_shares = _log_gamma_variates(num_devices, len(classes), alpha, rng)
    counts = _choose_counts(log_shares, available, share, rng).to(rest.device)
    ids = torch.arange(num_devices, device=rest.device)
    samples = [rest[members == c][: int(counts[:, c].sum())] for c in range(len(classes))]
    owners = [torch.repeat_interleave(ids, counts[:, c]) for c in range(len(classes))]
    by_owner = torch.sort(torch.cat(owners), stable=True).indices
    return torch.cat(samples)[by_owner].reshape(num_devices, share)


def _log_gamma_variates(rows: int, columns: int, alpha: float, rng: torch.Generator) -> Float[Tensor, "rows columns"]:
    """Draw logarithms of Gamma(alpha) variates; normalised, a row is Dirichlet(alpha).

    In the logarithm, through Gamma(a) = Gamma(a + 1) · U^(1/a), because for small alpha the variates underflow.
    """
    shape = torch.full((rows, columns), alpha + 1, dtype=torch.float64, device=rng.device)
    with as_global(rng):  # torch.distributions draws from no other
        gamma = torch.distributions.Gamma(shape, torch.ones_like(shape)).sample()
    # 1 - rand lies in (0, 1]: its logarithm is finite.
    uniform = 1 - torch.rand(rows, columns, dtype=torch.float64, device=rng.device, generator=rng)
    return gamma.log() + uniform.log() / alpha


def _choose_counts(
    log_shares: Float[Tensor, "devices classes"], available: Int[Tensor, " classes"], share: int, rng: torch.Generator
) -> Int[Tensor, "devices classes"]:
    """Draw `share` samples' classes for each device in turn; a class that ran out is drawn no more."""
    available = available.clone()
    counts = torch.zeros(log_shares.shape, dtype=torch.long, device=available.device)
    for log_share, count in zip(log_shares, counts, strict=True):
        missing = share
        while missing:  # a round that leaves something missing has emptied a class, so there are few
            shares = log_share.masked_fill(available == 0, -math.inf).softmax(0)
            drawn = torch.multinomial(shares, missing, replacement=True, generator=rng)
            taken = torch.bincount(drawn, minlength=len(available)).minimum(available)
            count += taken
            available -= taken
            missing -= int(taken.sum())
    return counts
