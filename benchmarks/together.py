"""How much faster do devices train together? The paper's ResNet at half resolution, on one core, in processor time."""

import statistics
import time

from aircomp.common.results import Row
from aircomp.common.threads import one_thread
from aircomp.device.settings import LocalSettings, Precision
from aircomp.engines.trainer import SerialExecutor, Task, Trainer
from aircomp.federation.experiment import Experiment
from aircomp.federation.simulate import build_model, holders_of, partition_of
from benchmarks.simulate import random_images

PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
CONTENDERS: list[tuple[int, Precision]] = [(number, precision) for precision in PRECISIONS for number in (1, 2, 4, 8)]


def milliseconds(repeats: int, devices: int, steps: int) -> list[float]:
    """Return the processor time of one step of one device for each of the contenders."""
    data = random_images(4_000)
    experiment = Experiment.parse(
        {
            "model": {"name": "resnet", "stem_stride": 2},
            "data": {"augment": True},
            "devices": {"total": 15},
            "partition": {"kind": "iid"},
        }
    )
    module = build_model(experiment, data)
    holders = holders_of(experiment, data, partition_of(experiment, data))
    tasks = [Task(0, device) for device in range(devices)]
    settings = [LocalSettings(steps=steps, batch_size=20, together=t, precision=p) for t, p in CONTENDERS]
    trainers = [Trainer(module, holders, own, seed=0) for own in settings]
    weights, buffers = trainers[0].model.weights.clone(), trainers[0].model.read_buffers()
    times: list[list[float]] = [[] for _ in trainers]
    for _ in range(1 + repeats):
        for trainer, own in zip(trainers, times, strict=True):
            start = time.process_time()
            SerialExecutor(trainer).map(tasks, weights, buffers)
            own.append(1e3 * (time.process_time() - start) / devices / steps)
    return [statistics.median(own[1:]) for own in times]  # the first one warms up


def bench_together(repeats: int, devices: int, steps: int) -> list[Row]:
    """Return the processor time of a step for each number of devices and each precision, and the gain over one alone."""
    with one_thread():
        found = milliseconds(repeats, devices, steps)
    return [
        {"contender": f"{together} together, {precision}", "milliseconds": own, "times_alone": found[0] / own}
        for (together, precision), own in zip(CONTENDERS, found, strict=True)
    ]
