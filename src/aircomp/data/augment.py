"""Random crops and mirror images of a batch, without a loop over samples."""

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from aircomp.errors import ShapeError


def random_crop_flip(
    images: Shaped[Tensor, "batch channels height width"], *, rng: torch.Generator, padding: int = 4
) -> Shaped[Tensor, "batch channels height width"]:
    """Shift every image by up to `padding` pixels each way and mirror it with probability one half.

    What moves in from outside is zero: black for raw pixels, the mean pixel for normalised ones.

    Args:
        images: A batch of any type.
        rng: Draws the shifts and the mirroring; it may live on another device than the images.
        padding: Largest shift in pixels.

    Returns:
        A new batch in channels-last memory format, which convolutions prefer.
    """
    if padding < 0:
        raise ShapeError(f"padding = {padding}: expected zero or more pixels")
    shifts = torch.randint(0, 2 * padding + 1, (2, len(images)), generator=rng, device=rng.device).to(images.device)
    mirrored = torch.randint(0, 2, (len(images),), generator=rng, device=rng.device).to(images.device, torch.bool)
    return crop_flip(images, shifts[0], shifts[1], mirrored, padding=padding)


def crop_flip(
    images: Shaped[Tensor, "batch channels height width"],
    top: Int[Tensor, " batch"],
    left: Int[Tensor, " batch"],
    mirrored: Bool[Tensor, " batch"],
    *,
    padding: int,
) -> Shaped[Tensor, "batch channels height width"]:
    """Cut image b at row `top[b]`, column `left[b]` out of its zero-padded self, then mirror it where told.

    Pixels are gathered as whole vectors of channels, so the result comes out channels-last for free.
    """
    batch, channels, height, width = images.shape
    tall, wide = height + 2 * padding, width + 2 * padding
    canvas = images.new_zeros(batch, tall, wide, channels)
    canvas[:, padding : padding + height, padding : padding + width] = images.permute(0, 2, 3, 1)

    across = torch.arange(width, device=images.device)
    columns = left[:, None] + torch.where(mirrored[:, None], width - 1 - across, across)
    first_row = torch.arange(batch, device=images.device) * tall + top
    rows = first_row[:, None] + torch.arange(height, device=images.device)
    pixels = (rows * wide)[:, :, None] + columns[:, None, :]  # [batch, height, width], into the flattened canvas
    picked = canvas.view(-1, channels).index_select(0, pixels.view(-1))
    return picked.view(batch, height, width, channels).permute(0, 3, 1, 2)
