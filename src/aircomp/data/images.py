"""Datasets: what they hold, and how to use your own. `files.py` reads those that come in files.

Images stay as they came (uint8 where possible). What normalises them is the first layer of the model that is trained on them
(`aircomp.federation.models.Normalize`).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float32, Int64, Shaped
from torch import Tensor
from torch.utils.data import Dataset

from aircomp.common import rng
from aircomp.errors import ShapeError, unknown_name

DATASETS = ("digits", "mnist", "fashion-mnist", "cifar10")
_NUM_DIGITS_TEST = 360


@dataclass(frozen=True)
class ImageData:
    """Labelled images for training and testing, all in memory."""

    name: str
    variant: str
    """Its name in results; the name says so when the files are not the official ones."""
    train_images: Shaped[Tensor, "train channels height width"]
    """uint8 in 0 … 255, or float32."""
    train_labels: Int64[Tensor, " train"]
    test_images: Shaped[Tensor, "test channels height width"]
    test_labels: Int64[Tensor, " test"]
    num_classes: int
    pixel_mean: Float32[Tensor, " channels"]
    """Over the training images, scaled to [0, 1] if they are uint8."""
    pixel_std: Float32[Tensor, " channels"]
    """Likewise; one where a channel is constant, so that dividing by it is harmless."""


def dataset_names() -> list[str]:
    """Return the names that `load` knows."""
    return list(DATASETS)


def load(name: str, directory: Path | None = None) -> ImageData:
    """Load a dataset by name.

    Args:
        name: One of `dataset_names()`.
        directory: Where datasets lie; see `aircomp.data.files.data_directory` for the default.

    Raises:
        ConfigError: If nobody knows the name.
        ArtefactError: If the files are not there or damaged; the sentence says where to get them.
    """
    check_name(name)
    if name == "digits":
        return load_digits()
    from aircomp.data.files import LOADERS  # the digits come with scikit-learn

    return LOADERS[name](directory)


def check_name(name: str) -> None:
    """Refuse a name that no dataset has."""
    if name not in DATASETS:
        raise unknown_name("dataset", name, DATASETS)


def load_digits() -> ImageData:
    """scikit-learn's 1,797 8×8 digits as float32 k/16, exactly; 360 of them, stratified, are for testing."""
    from sklearn import datasets  # slow to import

    pixels, labels = datasets.load_digits(return_X_y=True)
    images = torch.from_numpy(pixels).to(torch.float32).view(-1, 1, 8, 8) / 16
    labels = torch.from_numpy(labels).to(torch.int64)
    return split_off_test("digits", "Digits 8×8", images, labels, _NUM_DIGITS_TEST)


def split_off_test(name: str, variant: str, images: Tensor, labels: Tensor, num_test: int) -> ImageData:
    """Keep some samples for testing, from each class its share; the same ones always."""
    is_test = _stratified(labels, num_test, f"{name} split")
    return image_data(
        name, variant, images[~is_test], labels[~is_test], images[is_test], labels[is_test], num_classes=10
    )


def _stratified(labels: Tensor, num_chosen: int, purpose: str) -> Tensor:
    """Choose `num_chosen` samples at random, from each class its share up to rounding; a purpose has the same ones always."""
    shuffled = torch.randperm(len(labels), generator=rng.fixed_generator(purpose))
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    # evenly spaced over classes laid end to end: each class gives in proportion, and the sum is exact
    evenly = torch.arange(num_chosen) * len(labels) // num_chosen
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    chosen[by_class[evenly]] = True
    return chosen


def image_data(
    name: str,
    variant: str,
    train_images: Tensor,
    train_labels: Tensor,
    test_images: Tensor,
    test_labels: Tensor,
    *,
    num_classes: int,
) -> ImageData:
    """Return a dataset with the statistics of its pixels."""
    mean, std = _pixel_statistics(train_images)
    return ImageData(name, variant, train_images, train_labels, test_images, test_labels, num_classes, mean, std)


def _pixel_statistics(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and deviation of each channel, summed in float64 over chunks that fit the memory."""
    total = torch.zeros(images.shape[1], dtype=torch.float64)
    squares = torch.zeros_like(total)
    for chunk in images.split(1024):
        pixels = chunk.double()
        total += pixels.sum((0, 2, 3))
        squares += pixels.square().sum((0, 2, 3))
    count = images.numel() // images.shape[1]
    mean = total / count
    std = (squares / count - mean.square()).clamp(min=0).sqrt()  # rounding can put a constant channel below zero
    constant = std <= 1e-6 * mean.abs()  # or a little above; float32 pixels cannot differ by so little
    scale = 255 if images.dtype == torch.uint8 else 1
    return (mean / scale).float(), torch.where(constant, 1, std / scale).float()


def from_torch(train: Dataset, test: Dataset, *, num_classes: int | None = None, name: str = "custom") -> ImageData:
    """Read a user's own map-style datasets of (image, label) pairs into memory, once.

    Random transforms inside the datasets are therefore drawn once; augment in the training loop instead.

    Args:
        train: Images [channels, height, width] or [height, width], uint8 or real tensors or arrays; integer labels.
        test: Likewise, of the same shape.
        num_classes: Number of classes; one more than the largest label if not given.
        name: What to call it in results.

    Raises:
        ShapeError: If a dataset is empty, or its items are not such pairs of one shape.
    """
    train_images, train_labels = _read_all(train, "train")
    test_images, test_labels = _read_all(test, "test")
    if test_images.shape[1:] != train_images.shape[1:] or test_images.dtype != train_images.dtype:
        raise ShapeError(
            f"the test images are {_describe(test_images[0])} but the training images {_describe(train_images[0])}; "
            "give both datasets the same transform"
        )
    largest = int(torch.maximum(train_labels.max(), test_labels.max()))
    if num_classes is None:
        num_classes = largest + 1
    if largest >= num_classes:
        raise ShapeError(f"a label is {largest} but num_classes = {num_classes}; labels count from zero")
    return image_data(name, name, train_images, train_labels, test_images, test_labels, num_classes=num_classes)


def check_images(data: ImageData) -> None:
    """Check a user's own images in memory, as `from_torch` does what it reads.

    Raises:
        ShapeError: If a part is empty, images and labels do not belong together, or a label is out of range.
    """
    parts = {"train": (data.train_images, data.train_labels), "test": (data.test_images, data.test_labels)}
    for which, (images, labels) in parts.items():
        if images.ndim != 4 or not images.numel() or images.dtype not in (torch.uint8, torch.float32):
            raise ShapeError(
                f"{which}_images is {_describe(images)}; expected [images, channels, height, width] of uint8 or float32, "
                "at least one image"
            )
        if labels.shape != images.shape[:1] or labels.dtype != torch.int64:
            raise ShapeError(
                f"{which}_labels is {_describe(labels)}; expected [{len(images)}] of int64, one label for each image"
            )
        if images.is_floating_point() and not torch.isfinite(images).all():
            raise ShapeError(f"{which}_images holds values that are not finite; clean the dataset")
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= data.num_classes:
            raise ShapeError(
                f"{which}_labels reaches from {low} to {high}; expected 0 to {data.num_classes - 1}, as num_classes says"
            )
    if data.test_images.shape[1:] != data.train_images.shape[1:]:
        raise ShapeError(
            f"the test images are {_describe(data.test_images[0])} but the training images "
            f"{_describe(data.train_images[0])}; give both the same size"
        )
    channels = data.train_images.shape[1:2]
    if data.pixel_mean.shape != channels or data.pixel_std.shape != channels:
        raise ShapeError(
            f"pixel_mean is {_describe(data.pixel_mean)} and pixel_std {_describe(data.pixel_std)}; "
            f"expected one number for each of {channels[0]} channels"
        )


def _read_all(dataset: Any, which: str) -> tuple[Tensor, Tensor]:
    # Any: map-style is a matter of methods, and torch's Dataset does not declare __len__
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__") or len(dataset) == 0:
        raise ShapeError(
            f"the {which} dataset is empty or has no length; expected a map-style Dataset of (image, label)"
        )
    first, _ = _read_item(dataset, 0, which)
    images = first.new_empty(len(dataset), *first.shape)
    labels = torch.empty(len(dataset), dtype=torch.int64)
    for i in range(len(dataset)):
        image, label = _read_item(dataset, i, which)
        if image.shape != first.shape or image.dtype != first.dtype:
            raise ShapeError(
                f"item {i} of the {which} dataset is {_describe(image)} but item 0 {_describe(first)}; "
                "resize all images alike"
            )
        images[i] = image
        labels[i] = label
    if images.is_floating_point() and not torch.isfinite(images).all():
        raise ShapeError(f"the {which} images hold values that are not finite; clean the dataset")
    return images, labels


def _read_item(dataset: Any, i: int, which: str) -> tuple[Tensor, int]:
    try:
        image, label = dataset[i]
        image, label = torch.as_tensor(image), torch.as_tensor(label)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ShapeError(
            f"item {i} of the {which} dataset is not a pair of image tensor and label ({error}); "
            "let its transform return a tensor"
        ) from None
    if image.ndim == 2:
        image = image[None]
    if image.ndim != 3 or not (image.dtype == torch.uint8 or image.is_floating_point()):
        raise ShapeError(
            f"item {i} of the {which} dataset is {_describe(image)}; "
            "expected [channels, height, width] of uint8 or real numbers"
        )
    if label.numel() != 1 or label.is_floating_point() or label.is_complex() or label < 0:
        raise ShapeError(
            f"the label of item {i} of the {which} dataset is {label.tolist()}; expected one integer from zero"
        )
    return image if image.dtype == torch.uint8 else image.float(), int(label)


def _describe(image: Tensor) -> str:
    return f"{list(image.shape)} of {str(image.dtype).removeprefix('torch.')}"
