import pytest

from aircomp.data.partition import split
from aircomp.data.samples import TensorSamples
from aircomp.data.settings import PartitionSettings
from aircomp.device.settings import LocalSettings
from aircomp.engines.trainer import BASE_STATION, Trainer
from aircomp.federation import models
from aircomp.federation.settings import ModelSettings
from helpers.draws import seeded


@pytest.fixture
def trainer(digits):
    """Return what trains eight devices on digits."""
    module = models.build(ModelSettings(name="digits-cnn"), 10, 1, rng=seeded())
    partition = split(digits.train_labels, 8, PartitionSettings(), rng=seeded())
    held = dict(enumerate(partition.devices)) | {BASE_STATION: partition.base_station}
    tensors = (digits.train_images, digits.train_labels)
    holders = {holder: TensorSamples(tensors, rows) for holder, rows in held.items()}
    return Trainer(module, holders, LocalSettings(batch_size=16), seed=0)
