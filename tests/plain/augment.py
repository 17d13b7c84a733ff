"""Crops and mirror images one at a time: the obvious version of `aircomp.data.augment.crop_flip`."""

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor


def crop_flip(
    images: Shaped[Tensor, "batch channels height width"],
    top: Int[Tensor, " batch"],
    left: Int[Tensor, " batch"],
    mirrored: Bool[Tensor, " batch"],
    *,
    padding: int,
) -> Shaped[Tensor, "batch channels height width"]:
    """Pad each image with zeros, cut a window of its own size out of it, mirror it where told."""
    _, _, height, width = images.shape
    results = []
    for image, row, column, mirror in zip(images, top.tolist(), left.tolist(), mirrored.tolist(), strict=True):
        padded = torch.nn.functional.pad(image, (padding, padding, padding, padding))
        window = padded[:, row : row + height, column : column + width]
        results.append(window.flip(2) if mirror else window)
    return torch.stack(results)
