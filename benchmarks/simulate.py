"""How fast is a federated round? Local training beside a bare PyTorch loop, workers beside one process, Ray beside both.

The data is random noise of CIFAR-10's shape: speed does not depend on what the pixels show.
"""

import copy
import resource
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F

from aircomp.common import rng as rngs
from aircomp.common.results import Row
from aircomp.common.threads import one_thread
from aircomp.data.images import ImageData
from aircomp.device.settings import LocalSettings
from aircomp.engines import Engine
from aircomp.engines.ray import has_ray
from aircomp.engines.trainer import BASE_STATION, Executor, Task, Trainer, make_executor
from aircomp.federation.experiment import Experiment
from aircomp.federation.models import Normalize
from aircomp.federation.simulate import build_model, holders_of, partition_of, simulate
from benchmarks.timing import interleaved

STEPS = 4
"""SGD steps of one task."""


def random_images(num_train: int) -> ImageData:
    """Return noise of CIFAR-10's shape with random labels: so many images to train with, and 500 to test with."""
    rng = rngs.generator(0, "bench images")

    def draw(number: int) -> tuple[torch.Tensor, torch.Tensor]:
        images = torch.randint(0, 256, (number, 3, 32, 32), generator=rng, dtype=torch.uint8)
        return images, torch.randint(0, 10, (number,), generator=rng)

    half = torch.full((3,), 0.5)
    return ImageData("noise", "noise", *draw(num_train), *draw(500), 10, half, half)


def bench_simulate(repeats: int, workers: int) -> list[Row]:
    """Compare local training with a bare loop, and `workers` processes with one, on the paper's ResNet."""
    settings = LocalSettings(steps=STEPS, batch_size=20)
    module, data, trainer = resnet_trainer(settings)
    tasks = [Task(0, device) for device in range(2 * workers)]
    weights, buffers = trainer.model.weights.clone(), trainer.model.read_buffers()
    with _executor(trainer, "processes", workers) as many, _executor(trainer, "serial", 1) as one:
        seconds = interleaved(
            {
                "bare PyTorch loop": bare_loop(module, data, settings, len(tasks)),
                "one process": lambda: one.map(tasks, weights, buffers),
                f"{workers} workers": lambda: many.map(tasks, weights, buffers),
            },
            repeats,
        )
    samples = len(tasks) * STEPS * settings.batch_size
    bare = seconds["bare PyTorch loop"]
    return [
        {"contender": name, "samples_per_second": samples / s, "times_bare_loop": bare / s, "seconds": s}
        for name, s in seconds.items()
    ]


def resnet_trainer(settings: LocalSettings) -> tuple[torch.nn.Module, ImageData, Trainer]:
    """Return the paper's ResNet, noise of CIFAR-10's shape, and the trainer of twenty devices that share it."""
    data = random_images(4_000)
    experiment = Experiment.parse({"model": {"name": "resnet"}, "devices": {"total": 20}, "partition": {"kind": "iid"}})
    module = build_model(experiment, data)
    holders = holders_of(experiment, data, partition_of(experiment, data))
    return module, data, Trainer(module, holders, settings, seed=0)


def bench_engines(repeats: int, workers: int, ray_address: str = "") -> list[Row]:
    """Compare Ray, where it is installed, with local processes on a round's training: ten devices, ten steps of 20.

    Only training and its traffic are timed, because the other stages of a round are the same on every engine.

    Args:
        repeats: Interleaved repeats; the median counts.
        workers: Of every engine.
        ray_address: A running cluster; by default Ray is started on this machine.
    """
    steps = 10
    settings = LocalSettings(steps=steps, batch_size=20)
    _, _, trainer = resnet_trainer(settings)
    tasks = [Task(0, BASE_STATION), *(Task(0, device) for device in range(10))]
    weights, buffers = trainer.model.weights.clone(), trainer.model.read_buffers()
    with ExitStack() as stack:
        # processes first: they are forked, which Ray's threads forbid
        names: list[Engine] = ["processes", "ray"] if has_ray() else ["processes"]
        opened = {n: stack.enter_context(_executor(trainer, n, workers, ray_address)) for n in names}
        seconds = interleaved({n: lambda e=e: e.map(tasks, weights, buffers) for n, e in opened.items()}, repeats)
    samples = len(tasks) * steps * settings.batch_size
    local = seconds["processes"]
    return [
        {"contender": f"engine {n}", "samples_per_second": samples / s, "times_processes": s / local, "seconds": s}
        for n, s in seconds.items()
    ]


@contextmanager
def _executor(trainer: Trainer, engine: Engine, workers: int, ray_address: str = "") -> Iterator[Executor]:
    executor = make_executor(trainer, engine, workers, ray_address)
    try:
        yield executor
    finally:
        executor.close()


def bare_loop(module: torch.nn.Module, data: ImageData, settings: LocalSettings, num_tasks: int) -> Callable[[], None]:
    """Return the loop anybody would write: nn.Module, torch.optim.SGD, batches ready as channels-last floats."""
    model: Any = copy.deepcopy(module)  # Any: its first layer goes, because the batches are normalised already
    model.normalize = torch.nn.Identity()
    normalize = Normalize(data.pixel_mean, data.pixel_std)
    size = settings.batch_size
    batches = [
        (normalize(images).detach(), labels)
        for images, labels in zip(data.train_images.split(size)[:STEPS], data.train_labels.split(size), strict=False)
    ]

    def run() -> None:
        with one_thread():
            for _ in range(num_tasks):
                optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
                model.train()
                for images, labels in batches:
                    optimizer.zero_grad()
                    F.cross_entropy(model(images), labels).backward()
                    optimizer.step()

    return run


def bench_round(rounds: int, workers: int) -> list[Row]:
    """Share of each stage in a round of the paper's ResNet over the ideal uplink: ten devices, ten steps each."""
    experiment = Experiment.parse(
        {
            "uplink": "ideal",
            "rounds": rounds,
            "workers": workers,
            "model": {"name": "resnet"},
            "local": {"steps": 10},
            "participation": {"kind": "fixed", "number": 10},
            "partition": {"kind": "iid"},
        }
    )
    run = simulate(experiment, dataset=random_images(4_100))
    totals: dict[str, float] = {}
    for record in run.metrics[1:]:  # the first round warms up
        for stage, seconds in record["seconds"].items():
            totals[stage] = totals.get(stage, 0.0) + seconds
    whole = sum(totals.values())
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 2**20  # kilobytes on Linux
    return [
        {"contender": f"stage {stage}", "share_of_round": s / whole, "seconds": s, "peak_gib": peak}
        for stage, s in totals.items()
    ]
