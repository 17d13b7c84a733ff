import pytest

from aircomp.data.partition import PartitionSettings, split
from aircomp.device.local import LocalSettings
from aircomp.engines.trainer import Trainer
from aircomp.fl import models
from helpers.draws import seeded


@pytest.fixture
def trainer(digits):
    """Return what trains eight devices on digits."""
    module = models.build(models.ModelSettings(name="digits-cnn"), 10, 1, rng=seeded())
    partition = split(digits.train_labels, 8, PartitionSettings(), rng=seeded())
    return Trainer(module, digits, partition, LocalSettings(batch_size=16), seed=0)
