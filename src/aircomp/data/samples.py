"""What a holder trains on: any map-style dataset, as batches of samples chosen by number.

Tensors are indexed whole; other datasets are read item by item and collated as `torch.utils.data` does. Nothing is changed.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import Subset, TensorDataset, default_collate

from aircomp.common.checks import describe
from aircomp.errors import ArtefactError, ConfigError

Batch = Any
"""Whatever the collation of samples gives: usually a pair (inputs, targets)."""
Collate = Callable[[list[Any]], Batch]
Augment = Callable[..., Tensor]
"""A function of (inputs, rng=) that changes a batch's inputs at random."""


@dataclass(frozen=True)
class TensorSamples:
    """Samples that lie in tensors which many holders share."""

    tensors: tuple[Any, ...]
    """Arrays where they travel between processes."""
    indices: Int[Tensor, " samples"]
    """The rows that this holder has."""
    augment: Augment | None = None
    """Applied to the first tensor of every batch that is drawn for training."""

    def __len__(self) -> int:
        return len(self.indices)

    def batch(self, places: Int[Tensor, " batch"], rng: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """Return the samples at some places; with a generator they are for training."""
        rows = self.indices[places]
        found = tuple(tensor[rows] for tensor in self.tensors)
        return found if self.augment is None or rng is None else (self.augment(found[0], rng=rng), *found[1:])

    def with_tensors(self, tensors: tuple[Any, ...]) -> "TensorSamples":
        """Return the same rows of the same tensors that lie elsewhere."""
        return replace(self, tensors=tensors)


@dataclass(frozen=True)
class ItemSamples:
    """Samples of any map-style dataset."""

    dataset: Any  # map-style is a matter of methods
    collate: Collate = default_collate

    def __len__(self) -> int:
        return len(self.dataset)

    def batch(self, places: Int[Tensor, " batch"], rng: torch.Generator | None = None) -> Batch:
        """Return the samples at some places."""
        return self.collate([self.dataset[place] for place in places.tolist()])


Samples = TensorSamples | ItemSamples


def as_samples(name: str, dataset: Any, collate: Collate | None = None) -> Samples:
    """Read a dataset as samples.

    Args:
        name: What to call it in an error, say `client 3`.
        dataset: Map-style: with a length and items by number.
        collate: Makes a batch of a list of items; `torch.utils.data.default_collate` if not given.

    Raises:
        ConfigError: If it has no length or no items, or nothing is in it.
    """
    size = _length(name, dataset)
    if size == 0:
        raise ConfigError(f"{name} has no samples; expected at least one, so leave it out")
    if collate is None:
        inner, rows = (dataset.dataset, dataset.indices) if type(dataset) is Subset else (dataset, range(size))
        if type(inner) is TensorDataset:
            return TensorSamples(inner.tensors, torch.as_tensor(rows, dtype=torch.int64))
    return ItemSamples(dataset, collate or default_collate)


def _length(name: str, dataset: Any) -> int:
    if isinstance(dataset, Tensor) or not hasattr(dataset, "__getitem__"):
        raise ConfigError(
            f"{name} is {describe(dataset)}; expected a map-style dataset, with a length and items by number"
        )
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        raise ConfigError(
            f"{name} has no length; expected a map-style dataset, with len() and items by number"
        ) from None


def distinct_tensors(holders: Iterable[Samples]) -> list[Tensor]:
    """Return the tensors that holders share, each once."""
    found = {id(t): t for samples in holders if isinstance(samples, TensorSamples) for t in samples.tensors}
    return list(found.values())


def first_batch(samples: Samples, size: int) -> Batch:
    """Return the first samples, as they are tested."""
    return samples.batch(torch.arange(min(size, len(samples))))


def all_batches(samples: Samples, size: int) -> Iterator[Batch]:
    """Yield all samples in order, so many at a time."""
    for places in torch.arange(len(samples)).split(size):
        yield samples.batch(places)


def share_memory(tensors: Iterable[Tensor]) -> None:
    """Move tensors to shared memory, so that worker processes map them instead of copying.

    Raises:
        ArtefactError: If the system does not have that much shared memory.
    """
    unshared = [tensor for tensor in tensors if not tensor.is_shared()]
    _check_shared_memory(sum(tensor.nbytes for tensor in unshared))
    for tensor in unshared:
        tensor.share_memory_()


def _check_shared_memory(needed: int) -> None:
    # asked beforehand: a container's small /dev/shm kills the process on first touch instead of raising
    shared = Path("/dev/shm")
    if not shared.is_dir():
        return
    status = os.statvfs(shared)
    free = status.f_bavail * status.f_frsize
    if free < needed:
        raise ArtefactError(
            f"{shared} has {free / 1e6:.0f} MB free but the dataset needs {needed / 1e6:.0f} MB of shared memory; "
            "enlarge it or run without worker processes"
        )
