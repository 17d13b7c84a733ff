"""Small collections of rounds, as `aircomp collect` writes them."""

from pathlib import Path

import torch

from aircomp.train.fragments import FragmentRound, save_round
from helpers.draws import seeded


def save_small_rounds(directory: Path, *, raw: bool = False) -> Path:
    """Write four rounds of three devices, twenty slots and sixteen codewords; return the directory.

    Args:
        directory: Where to write them.
        raw: Also write all that a round may hold: the base station's own choices, layers, unquantised fragments.
    """
    for index in range(4):
        rng = seeded(index)
        saved = [torch.randint(0, 16, (3, 20), generator=rng), torch.full((16,), 1 / 16)]
        saved.append(torch.randn(16, 4, generator=rng))
        if raw:
            own = torch.randint(0, 16, (20,), generator=rng)
            fragments, base = torch.randn(3, 20, 4, generator=rng), torch.randn(20, 4, generator=rng)
            saved += [own, own // 4, fragments, base]
        save_round(directory, index, FragmentRound(*saved))
    return directory
