import pytest

from aircomp.fl.data import ImageData, load
from aircomp.fl.experiment import Experiment, load_experiment


@pytest.fixture(scope="session")
def digits() -> ImageData:
    return load("digits")


@pytest.fixture
def quick() -> Experiment:
    """A federated run of a second: few devices, little training."""
    return load_experiment("digits").changed(
        **{
            "rounds": 3,
            "engine": "serial",
            "devices.total": 6,
            "participation.low": 2,
            "participation.high": 4,
            "local.epochs": 1,
            "local.batch_size": 64,
            "model.width": 4,
            "checkpoint_seconds": 0,
        }
    )
