"""Quantisation with loops and float64: what `aircomp.quantize` must agree with."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def nearest(
    fragments: Float[Tensor, "slots fragment"], codebook: Float[Tensor, "codewords fragment"]
) -> Int[Tensor, " slots"]:
    """Return the nearest codeword of every fragment, one fragment at a time; ties go to the lower index."""
    codebook = codebook.double()
    chosen = [int((codebook - fragment).square().sum(dim=1).argmin()) for fragment in fragments.double()]
    return torch.tensor(chosen, dtype=torch.int64)


def kmeans_plus_plus(
    points: Float[Tensor, "slots fragment"], draws: Float[Tensor, "codewords trials"]
) -> Int[Tensor, " seeds"]:
    """Pick greedy k-means++ seeds, one candidate at a time, from the same uniform draws as the fast version."""
    points = points.double()
    seeds = [int(draws[0, 0] * len(points))]
    distance = (points - points[seeds[0]]).square().sum(dim=1)
    for draw in draws[1:].tolist():
        if distance.sum() == 0:
            break  # every point is a seed or equal to one
        trials = []
        for uniform in draw:
            candidate = _point_at(uniform * float(distance.sum()), distance.tolist())
            reached = torch.minimum(distance, (points - points[candidate]).square().sum(dim=1))
            trials.append((float(reached.sum()), candidate, reached))
        _, seed, distance = min(trials, key=lambda trial: trial[0])
        seeds.append(seed)
    return torch.tensor(seeds, dtype=torch.int64)


def _point_at(position: float, lengths: list[float]) -> int:
    """Lay the lengths end to end and return the one that covers `position`."""
    end = 0.0
    for index, length in enumerate(lengths):
        end += length
        if position < end:
            return index
    return max(index for index, length in enumerate(lengths) if length > 0)  # the sum rounded below `position`
