"""How much faster devices train together: the paper's ResNet at half resolution, on one core (a minute of an idle one).

    OMP_NUM_THREADS=1 python examples/measurements/devices_together.py

Prints milliseconds of processor time for one step of one device, the medians of interleaved repeats.
"""

import statistics
import time

from aircomp.bench.simulate import random_images
from aircomp.common import rng as rngs
from aircomp.data.partition import PartitionSettings, split
from aircomp.device.local import LocalSettings
from aircomp.engines.local import SerialExecutor
from aircomp.engines.trainer import Task, Trainer
from aircomp.fl import models

CONTENDERS = [(together, precision) for precision in ("float32", "bfloat16") for together in (1, 2, 4, 8)]


def milliseconds(repeats: int, devices: int, steps: int) -> list[float]:
    """Return the processor time of one step of one device for each of the contenders."""
    data = random_images(4_000)
    module = models.build(models.ModelSettings(name="resnet", stem_stride=2), 10, 3, rng=rngs.generator(0, "model"))
    partition = split(data.train_labels, 15, PartitionSettings(kind="iid"), rng=rngs.generator(0, "partition"))
    tasks = [Task(0, device) for device in range(devices)]
    settings = [LocalSettings(steps=steps, batch_size=20, together=t, precision=p) for t, p in CONTENDERS]
    trainers = [Trainer(module, data, partition, own, seed=0, augment=True) for own in settings]
    weights, buffers = trainers[0].model.weights.clone(), trainers[0].model.read_buffers()
    times: list[list[float]] = [[] for _ in trainers]
    for _ in range(1 + repeats):
        for trainer, own in zip(trainers, times, strict=True):
            start = time.process_time()
            SerialExecutor(trainer).map(tasks, weights, buffers)
            own.append(1e3 * (time.process_time() - start) / devices / steps)
    return [statistics.median(own[1:]) for own in times]  # the first one warms up


if __name__ == "__main__":
    found = milliseconds(repeats=5, devices=8, steps=5)
    for (together, precision), own in zip(CONTENDERS, found, strict=True):
        print(f"together = {together}, {precision}: {own:.1f} ms a step, {found[0] / own:.2f} times as fast")
