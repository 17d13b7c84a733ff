import importlib
import sys
from pathlib import Path

import pytest
import torch

from aircomp.federation.simulate import simulate

EXAMPLE = Path(__file__).with_name("parity_app")


@pytest.fixture(scope="session")
def example():
    """Return the example app as a module."""
    sys.path.insert(0, str(EXAMPLE))
    yield importlib.import_module("air_digits")
    sys.path.remove(str(EXAMPLE))


@pytest.fixture(scope="session")
def by_simulate():
    """Return what gives the aggregated update and the test accuracy of each round of the example's experiment."""

    def run(uplink="gamp", rounds=3, **settings):
        updates, accuracies = [], []

        def look(record, happened):
            updates.append(happened.exchange.update)
            accuracies.append(record["test_accuracy"])

        two = {"devices.total": 2, "participation.kind": "fixed", "participation.number": 2, "engine": "serial"}
        simulate("digits", uplink=uplink, rounds=rounds, on_round=look, **two, **settings)
        return updates, accuracies

    return run


@pytest.fixture(scope="session")
def assert_same_updates():
    """Return what checks the differences of successive models against the aggregated updates."""

    def check(models, updates):
        for before, after, update in zip(models[:-1], models[1:], updates, strict=True):
            assert update.abs().max() > 1e-3  # zero would agree with anything that stands still
            torch.testing.assert_close(after - before, update, rtol=0, atol=1e-6)

    return check
