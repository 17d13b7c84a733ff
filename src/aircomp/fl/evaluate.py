"""Test a model: accuracy and loss on the test set, and BatchNorm statistics recomputed for the test."""

import torch
import torch.nn.functional as F
from jaxtyping import Shaped
from torch import Tensor, nn

from aircomp.data.images import ImageData

BatchNorm = nn.modules.batchnorm._BatchNorm
TEST_BATCH, STATISTICS_BATCH = 500, 200
"""Images at a time."""


@torch.no_grad()
def evaluate(module: nn.Module, data: ImageData) -> tuple[float, float]:
    """Return accuracy and mean loss on the test set."""
    module.eval()
    device = next(module.parameters()).device
    correct, loss = 0, 0.0
    for images, labels in zip(data.test_images.split(TEST_BATCH), data.test_labels.split(TEST_BATCH), strict=True):
        inputs = data.inputs(images, module).to(device)
        logits, labels = module(inputs), labels.to(device)
        correct += int((logits.argmax(dim=1) == labels).sum())
        loss += float(F.cross_entropy(logits, labels, reduction="sum"))
    return correct / len(data.test_labels), loss / len(data.test_labels)


@torch.no_grad()
def recompute_statistics(
    module: nn.Module, data: ImageData, images: Shaped[Tensor, "batch channels height width"]
) -> None:
    """Set every BatchNorm's running mean and variance to their averages over batches of some images, weights as they are.

    One that the model keeps out of training keeps its statistics.
    """
    module.train()
    norms = [m for m in module.modules() if isinstance(m, BatchNorm) and m.training]
    momenta = [m.momentum for m in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # PyTorch's word for the plain average over all batches
    device = next(module.parameters()).device
    sizes = [len(batch) for batch in images.split(STATISTICS_BATCH)]
    if len(sizes) > 1 and sizes[-1] == 1:  # BatchNorm refuses a batch with one value of a channel
        sizes[-2:] = [STATISTICS_BATCH + 1]
    for batch in images.split(sizes):
        module(data.inputs(batch, module).to(device))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
