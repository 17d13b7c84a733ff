import os
import resource
import signal
import threading
import time
from dataclasses import replace

import pytest
import torch

from aircomp.device.settings import LocalSettings
from aircomp.engines.local import ProcessExecutor
from aircomp.engines.trainer import BASE_STATION, SerialExecutor, Task
from aircomp.errors import AirCompError, TrainingDiverged

pytestmark = pytest.mark.engines

TASKS = [Task(0, BASE_STATION), *(Task(0, device) for device in range(5))]


def run(executor, trainer, tasks):
    try:
        return executor.map(tasks, trainer.model.weights.clone(), trainer.model.read_buffers())
    finally:
        executor.close()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_processes_give_the_bits_of_one_process_in_any_order(trainer, workers):
    weights, buffers = trainer.model.weights.clone(), trainer.model.read_buffers()
    serial = SerialExecutor(trainer).map(TASKS, weights, buffers)
    executor = ProcessExecutor(trainer, workers)
    parallel = executor.map(TASKS, weights, buffers)
    backwards = executor.map(TASKS[::-1], weights, buffers)[::-1]
    executor.close()
    for one, two, three in zip(serial, parallel, backwards, strict=True):
        assert torch.equal(one.update, two.update)
        assert torch.equal(one.update, three.update)
        assert one.loss == two.loss
    assert not torch.equal(serial[0].update, serial[1].update)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_groups_of_devices_give_the_same_bits_in_any_number_of_processes(trainer, workers):
    trainer.settings = LocalSettings(steps=3, batch_size=16, together=2)
    assert [len(group) for group in trainer.groups(TASKS)] == [2, 2, 2]
    weights = trainer.model.weights.clone()
    serial = run(SerialExecutor(trainer), trainer, TASKS)
    parallel = run(ProcessExecutor(trainer, workers), trainer, TASKS)
    for task, one, two in zip(TASKS, serial, parallel, strict=True):
        assert torch.equal(one.update, two.update)
        alone = trainer.run(task, weights, trainer.model.read_buffers())
        # rounding of three steps; the update of another device would be as far off as it is long
        assert (one.update - alone.update).norm() < 1e-2 * alone.update.norm()


def test_only_devices_with_equal_batches_are_grouped(trainer):
    trainer.settings = LocalSettings(epochs=1, batch_size=16, together=4)
    for device in range(8):
        trainer.holders[device] = replace(trainer.holders[device], indices=trainer.holders[device].indices[:40])
    tasks = [Task(0, 0), Task(0, BASE_STATION), *(Task(0, device) for device in range(1, 6))]
    assert trainer.groups(tasks) == [(0, 2, 3, 4), (1,), (5, 6)]
    found = SerialExecutor(trainer).map(tasks, trainer.model.weights.clone(), trainer.model.read_buffers())
    assert [result.num_samples for result in found] == [40, len(trainer.holders[BASE_STATION]), *[40] * 5]


def test_buffers_of_many_devices_hold_no_file_descriptors(trainer):
    trainer.settings = LocalSettings(steps=1, batch_size=4)
    tasks = [Task(0, index % 8, torch.zeros(3)) for index in range(200)]
    executor = ProcessExecutor(trainer, 2)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 60, hard))
    try:
        assert len(run(executor, trainer, tasks)) == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_diverging_device_is_named_with_round_and_layer(trainer):
    weights = trainer.model.weights.clone()
    weights[5] = float("nan")
    for executor in (SerialExecutor(trainer), ProcessExecutor(trainer, 2)):
        with pytest.raises(TrainingDiverged, match=r"device 3 in round 8 is not finite, first in layer conv1.weight"):
            executor.map([Task(7, 3)], weights, trainer.model.read_buffers())
        executor.close()


def test_a_killed_worker_raises_instead_of_hanging(trainer):
    trainer.settings = LocalSettings(steps=100_000, batch_size=16)
    executor = ProcessExecutor(trainer, 2)

    def kill_one():
        time.sleep(0.5)
        os.kill(next(iter(executor._pool._processes)), signal.SIGKILL)

    threading.Thread(target=kill_one).start()
    with pytest.raises(AirCompError, match="worker process died"):
        run(executor, trainer, TASKS[:2])
