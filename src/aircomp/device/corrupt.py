"""Devices that fail: a part of the active ones sends something else than its update (Sec. V-C)."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aircomp.device.settings import Corrupted, CorruptionSettings, Replaced, Scaled


def corrupted_devices(
    num_active: int, settings: CorruptionSettings, *, rng: torch.Generator
) -> Bool[Tensor, " devices"]:
    """Choose this round's corrupted devices among the active ones; the base station is not one of them.

    Exactly `fraction · num_active` of them, rounded to the nearest integer, halves up; none if the kind is "none".
    """
    bad = torch.zeros(num_active, dtype=torch.bool, device=rng.device)
    if not isinstance(settings, Corrupted):
        return bad
    number = math.floor(settings.fraction * num_active + 0.5)  # Python's round takes halves to the even neighbour
    bad[torch.randperm(num_active, generator=rng, device=rng.device)[:number]] = True
    return bad


def corrupt(
    messages: Float[Tensor, "devices params"],
    bad: Bool[Tensor, " devices"],
    settings: CorruptionSettings,
    *,
    rng: torch.Generator,
) -> Float[Tensor, "devices params"]:
    """Replace the rows of the corrupted devices; the other rows keep their bits, and the input is left alone.

    The noise and the constant have the norm of the row they replace, times `length`: at one the receiver cannot tell
    them by their size.
    A silent device transmits nothing: `messages` comes back as it is, and the caller removes the rows in `bad`
    before they are encoded. Who jams or lies leaves messages as they are, too; `schemes/attack.py` says what it does.
    """
    if settings.kind in ("none", "silent", "jam", "lie"):
        return messages
    bad = bad.to(messages.device)
    result = messages.clone()
    result[bad] = _replacement(messages[bad], settings, rng)
    return result


def _replacement(
    rows: Float[Tensor, "bad params"], settings: CorruptionSettings, rng: torch.Generator
) -> Float[Tensor, "bad params"]:
    match settings:
        case Scaled():
            return settings.factor * rows
        case Replaced(kind="constant"):
            direction = torch.ones_like(rows)
        case Replaced():
            # drawn where the generator lives, then moved: the same noise whatever the device
            direction = torch.randn(rows.shape, dtype=rows.dtype, device=rng.device, generator=rng).to(rows.device)
        case _:
            return -rows
    return torch.nn.functional.normalize(direction, dim=1) * (settings.length * rows.norm(dim=1, keepdim=True))
