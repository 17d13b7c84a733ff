"""How good a constellation is."""

import torch

from aircomp.encode.constellation import differences


def least_distance(points: torch.Tensor, devices: int, function: str = "type") -> torch.Tensor:
    """Return how near the sums of two types come to each other, over how much the function changes between them."""
    apart, change = differences(points.shape[-2], devices, function)
    return ((apart.to(points) @ points).norm(dim=-1) / change.to(points)).amin(dim=-1)
