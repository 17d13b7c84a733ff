import pytest

from aircomp.data.partition import PartitionSettings, split
from aircomp.data.samples import TensorSamples
from aircomp.device.local import LocalSettings
from aircomp.engines.trainer import BASE_STATION, Trainer
from aircomp.federation import models
from helpers.draws import seeded


@pytest.fixture
def trainer(digits):
    """Return what trains eight devices on digits."""
    module = models.build(models.ModelSettings(name="digits-cnn"), 10, 1, rng=seeded())
    partition = split(digits.train_labels, 8, PartitionSettings(), rng=seeded())
    held = dict(enumerate(partition.devices)) | {BASE_STATION: partition.base_station}
    tensors = (digits.train_images, digits.train_labels)
    holders = {holder: TensorSamples(tensors, rows) for holder, rows in held.items()}
    return Trainer(module, holders, LocalSettings(batch_size=16), seed=0)
