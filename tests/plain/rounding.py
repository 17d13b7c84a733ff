"""Rounding to a sum, one slot and one count at a time."""

import heapq

import torch
from jaxtyping import Float, Int
from torch import Tensor


def round_to_sum(mean: Float[Tensor, "slots codewords"], total: int) -> Int[Tensor, "slots codewords"]:
    """Give every slot its `total` counts, each to the entry that gains most (see `aircomp.decoders.rounding`)."""
    counts = torch.zeros(mean.shape, dtype=torch.int64)
    for slot, row in enumerate(mean.tolist()):
        heap = [(-max(x, 0.0), j) for j, x in enumerate(row)]
        heapq.heapify(heap)
        for _ in range(total):
            missing, best = heap[0]
            counts[slot, best] += 1
            heapq.heapreplace(heap, (missing + 1, best))
    return counts
