import os
from collections.abc import Iterator

# one thread a worker: two pytest workers on two cores, and the same bits everywhere
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from jaxtyping import config

torch.set_num_threads(1)


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def as_in_production() -> Iterator[None]:
    """Switch the shape checks of the test run off, so that bad shapes meet our own errors as they do for users."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
