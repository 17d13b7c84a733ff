"""Settings of runs and trainings that take seconds."""

from collections.abc import Mapping
from typing import Any

QUICK = {
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
"""A federated run of a second: few devices, little training."""

SMALL = {"devices.total": 4, "participation.low": 2, "participation.high": 2, "model.width": 4}
"""The fewest devices of which some stay away."""

RECIPE = {
    "epochs": 1,
    "schedule.kind": "halving",
    "codeword_length": 8,
    "net.num_layers": 1,
    "net.filters": 2,
    "data.batch_slots": 20,
    "data.validation_samples": 20,
    "data.test_samples": 20,
}
"""A training of a second on `helpers.fragments.save_small_rounds`, beside the preset `short`."""

TRAINING = {
    "epochs": 2,
    "learning_rate": 1e-2,
    "codeword_length": 8,
    "net": {"num_layers": 2, "filters": 4},
    "data": {"batch_slots": 30, "validation_samples": 30, "test_samples": 20, "snr_db_low": 5, "snr_db_high": 15},
}
"""A training of seconds that learns something."""


def flags(settings: Mapping[str, Any]) -> list[str]:
    """Write settings as a command line does.

    >>> flags({"devices.total": 4, "checkpoint_seconds": 0})
    ['--devices.total', '4', '--checkpoint-seconds', '0']
    """
    return [word for name, value in settings.items() for word in ("--" + name.replace("_", "-"), str(value))]
