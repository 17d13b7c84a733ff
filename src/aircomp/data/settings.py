"""Settings of the data: who holds which samples."""

from typing import Literal

from pydantic import Field

from aircomp.common.settings import Tagged


class PartitionSettings(Tagged):
    """How the training set is divided."""

    kind: str = "shards"
    """shards: the paper's mixture of random and label-sorted samples; iid: random; dirichlet: random class shares;
    quantity: random sizes; power-law: sizes that fall as a power of the device's number. The last two deal random samples."""
    base_station_samples: int | None = Field(default=None, ge=1, le=10**9)
    """Samples of the base station's own set; by default as many as a device would get if it counted as one more
    device."""


class Shards(PartitionSettings):
    """The paper's mixture of random and label-sorted samples."""

    kind: Literal["shards"] = "shards"
    iid_fraction: float = Field(default=0.2, ge=0, le=1)
    """The part of the devices' samples that is assigned at random (paper: 0.2)."""


class Iid(PartitionSettings):
    """Random samples, equally many."""

    kind: Literal["iid"] = "iid"


class Dirichlet(PartitionSettings):
    """Random class shares, equally many samples."""

    kind: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(default=0.5, ge=1e-6, le=1e6)
    """Concentration; small gives devices of few classes, large gives devices that are alike."""


class Quantity(PartitionSettings):
    """Random samples, sizes from a Dirichlet distribution."""

    kind: Literal["quantity"] = "quantity"
    alpha: float = Field(default=0.5, ge=1e-6, le=1e6)
    """Concentration; small gives sizes that differ much. Every device has a sample at least."""


class PowerLaw(PartitionSettings):
    """Random samples, sizes that fall as a power of the device's number."""

    kind: Literal["power-law"] = "power-law"
    exponent: float = Field(default=1.0, ge=0, le=5)
    """Device k, from 1, has a share of k^-exponent. Every device has a sample at least."""
