"""Types: how many of some devices have each of some levels."""

import torch
from jaxtyping import Int
from torch import Tensor


def types(levels: int, devices: int) -> Int[Tensor, "types levels"]:
    """Return how many devices may have each level.

    >>> types(2, 2).tolist()
    [[0, 2], [1, 1], [2, 0]]
    """
    if levels == 1:
        return torch.tensor([[devices]])
    return torch.cat(
        [
            torch.nn.functional.pad(types(levels - 1, devices - first), (1, 0), value=first)
            for first in range(devices + 1)
        ]
    )
