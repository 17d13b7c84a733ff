import gc
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

# one thread a worker: two pytest workers on two cores, and the same bits everywhere
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from jaxtyping import config

torch.set_num_threads(1)

gc.disable()  # until the tests are known: imports and collection leave little garbage, and many objects to search

if TYPE_CHECKING:  # fixtures import the package: shape checks come with an import hook that is not there yet
    from aircomp.data.images import ImageData
    from aircomp.federation.experiment import Experiment


def pytest_collection_finish() -> None:
    """Leave what was imported out of every later search for garbage: most of all objects, and none of them becomes any."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def as_in_production() -> Iterator[None]:
    """Switch the shape checks of the test run off, so that bad shapes meet our own errors as they do for users."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


@pytest.fixture
def torch_alone(monkeypatch) -> Iterator[None]:
    """Compute without compiled kernels, here and in other processes: stored numbers hold where there is no compiler, too."""
    from aircomp.common.arithmetic import switched_off

    monkeypatch.setenv("AIRCOMP_NATIVE", "0")
    with switched_off():
        yield


@pytest.fixture(scope="session")
def digits() -> "ImageData":
    from aircomp.data.images import load

    return load("digits")


@pytest.fixture
def quick() -> "Experiment":
    """A federated run of a second: few devices, little training."""
    from aircomp.federation.experiment import load_experiment
    from helpers.settings import QUICK

    return load_experiment("digits").changed(**QUICK, uplink="ideal")
