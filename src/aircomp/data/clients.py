"""Clients of one dataset: divided as a partition says, by index lists, or by anybody's `load_partition`."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset

from aircomp.common import rng as rngs
from aircomp.common.checks import check_number, describe
from aircomp.data.partition import split as split_rows
from aircomp.data.samples import as_samples
from aircomp.data.settings import PartitionSettings
from aircomp.errors import ConfigError, ShapeError

BY_LABEL = ("shards", "dirichlet")
"""The partitions that need labels."""


def split(
    dataset: Dataset,
    clients: int | Sequence[Sequence[int]],
    kind: str = "iid",
    *,
    base: bool = True,
    labels: Int[Tensor, " samples"] | None = None,
    seed: int = 0,
    **settings: Any,  # Any: pydantic checks the types
) -> tuple[list[Subset], Subset | None]:
    """Divide a dataset among clients and the base station.

        clients, base = aircomp.split(train, 40, "dirichlet", alpha=0.3)

    Args:
        dataset: Map-style.
        clients: How many, or which samples each of them holds.
        kind: `shards` (the paper's), `iid`, `dirichlet`, `quantity` or `power-law`.
        base: Whether the base station holds samples of its own: as many as a client on average.
        labels: Of every sample, for `shards` and `dirichlet`; by default those of the dataset's items.
        seed: Everything random derives from it.
        **settings: Of the kind: `alpha`, `iid_fraction`, `exponent`, `base_station_samples`.

    Returns:
        A subset for each client, and that of the base station or None.

    Raises:
        ConfigError: If the dataset is too small, or an index is none of its own.
    """
    size = len(as_samples("dataset", dataset))
    if not isinstance(clients, int):
        return [Subset(dataset, _checked(rows, i, size)) for i, rows in enumerate(clients)], None
    check_number("clients", clients, low=1, integer=True)
    chosen = PartitionSettings(kind=kind, **settings)
    if labels is None:
        labels = _labels(dataset, size) if kind in BY_LABEL else torch.zeros(size, dtype=torch.int64)
    if labels.shape != (size,):
        raise ShapeError(f"labels is {describe(labels)}; expected one for each of {size} samples")
    rows = split_rows(labels, clients, chosen, rng=rngs.generator(seed, "partition"), base_station=base)
    own = Subset(dataset, rows.base_station.tolist()) if base else None
    return [Subset(dataset, held.tolist()) for held in rows.devices], own


def _checked(rows: Sequence[int], client: int, size: int) -> list[int]:
    found = [int(row) for row in rows]
    if wrong := [row for row in found if not 0 <= row < size]:
        raise ConfigError(f"client {client} has the sample {wrong[0]}; expected numbers from 0 to {size - 1}")
    return found


def _labels(dataset: Any, size: int) -> Tensor:
    held = dataset.tensors[1] if type(dataset) is TensorDataset and len(dataset.tensors) > 1 else None
    found = held if held is not None else getattr(dataset, "targets", None)
    try:
        labels = torch.as_tensor(found if found is not None else [int(dataset[i][1]) for i in range(size)])
    except (TypeError, ValueError, IndexError, KeyError, RuntimeError) as error:
        raise ConfigError(
            f"the labels of the dataset cannot be read ({error}); give labels=, or kind='iid', which needs none"
        ) from None
    if labels.is_floating_point() or labels.shape != (size,):
        raise ConfigError(
            f"the dataset's labels are {describe(labels)}; expected one integer a sample: give labels=, or kind='iid'"
        )
    return labels.to(torch.int64)


def clients_of(clients: Any) -> list[Any]:
    """Return the clients' datasets: a list of them, or what an object with `load_partition` gives for each number.

    Raises:
        ConfigError: If it is neither, or empty.
    """
    if hasattr(clients, "load_partition"):
        return [clients.load_partition(number) for number in range(_num_partitions(clients))]
    if isinstance(clients, Mapping):
        clients = list(clients.values())
    if not isinstance(clients, list | tuple):
        raise ConfigError(
            f"clients is {describe(clients)}; expected a list of datasets, one a client, say aircomp.split(dataset, 40)[0]"
        )
    if not clients:
        raise ConfigError("clients is empty; expected a dataset for each client")
    return list(clients)


def _num_partitions(source: Any) -> int:
    partitioners = getattr(source, "partitioners", None) or {}
    partitioner = partitioners.get("train", source) if isinstance(partitioners, Mapping) else source
    number = getattr(partitioner, "num_partitions", None)
    if not isinstance(number, int) or number < 1:
        raise ConfigError(
            f"clients is {describe(source)}, which does not say its num_partitions; give a list: "
            "[source.load_partition(i) for i in range(n)]"
        )
    return number
