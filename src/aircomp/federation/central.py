"""Central training: a model trained on all data in one place, as a start for federated runs.

Federated training from scratch takes hundreds of rounds before its model is worth comparing. A run that begins from a
trained model (`start = DIRECTORY`) shows within a dozen rounds what an uplink does to it.
"""

import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from aircomp.common import results
from aircomp.common import rng as rngs
from aircomp.common.threads import one_thread
from aircomp.data.augment import random_crop_flip
from aircomp.data.images import ImageData
from aircomp.errors import ConfigError
from aircomp.federation.evaluate import evaluate
from aircomp.federation.settings import CentralSettings
from aircomp.federation.start import save_model

OnEpoch = Callable[[int, float], None]


def train_centrally(
    module: nn.Module,
    data: ImageData,
    settings: CentralSettings,
    *,
    seed: int,
    out: Path | None = None,
    on_epoch: OnEpoch | None = None,
) -> results.Row:
    """Train a module in place on all training images; it computes with one thread, so the bits do not depend on cores.

    Args:
        module: Trained in place, on the device where its parameters are.
        data: Training and test images.
        settings: How to train.
        seed: Orders and mirrors the images.
        out: Gets `model.safetensors`, if given.
        on_epoch: Called with the number of epochs done and the test accuracy.

    Returns:
        One row: test accuracy and loss after the last epoch.

    Raises:
        ConfigError: If a batch is larger than the training set.
    """
    begun = time.perf_counter()
    rng = rngs.generator(seed, "central")
    per_epoch = len(data.train_labels) // settings.batch_size
    if not per_epoch:
        raise ConfigError(
            f"central.batch_size = {settings.batch_size}, but there are only {len(data.train_labels)} training images; "
            "lower it"
        )
    optimizer = torch.optim.SGD(
        module.parameters(),
        lr=settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        nesterov=settings.momentum > 0,
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, settings.learning_rate, total_steps=settings.epochs * per_epoch, cycle_momentum=False
    )
    accuracy, loss = 0.0, 0.0
    with one_thread():
        for epoch in range(settings.epochs):
            _train_epoch(module, data, settings.batch_size, optimizer, schedule, rng=rng)
            accuracy, loss = evaluate(module, data)
            if on_epoch:
                on_epoch(epoch + 1, accuracy)
    if out is not None:
        save_model(out, module)
    seconds = round(time.perf_counter() - begun, 1)
    return {"test_accuracy": accuracy, "test_loss": loss, "epochs": settings.epochs, "seconds": seconds}


def _train_epoch(
    module: nn.Module,
    data: ImageData,
    batch_size: int,
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
    *,
    rng: torch.Generator,
) -> None:
    """Pass once over the images in a random order, each mirrored with probability one half; leave out a last odd batch."""
    device = next(module.parameters()).device
    module.train()
    order = torch.randperm(len(data.train_labels), generator=rng)
    for batch in order[: len(order) // batch_size * batch_size].split(batch_size):
        images = random_crop_flip(data.train_images[batch], rng=rng, padding=0)
        loss = F.cross_entropy(module(images.to(device)), data.train_labels[batch].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
