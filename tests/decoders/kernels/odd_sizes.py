"""Call every kernel with odd sizes and odd numbers, for a library that checks accesses: LIBRARY VARIANT; print the calls."""

import itertools
import math
import sys
from pathlib import Path

import torch

from aircomp.common import arithmetic
from aircomp.common.rng import generator
from aircomp.decoders.kernels import native

SLOTS, CODEWORDS, USES = (1, 5, 19), (1, 2, 15, 16, 17, 33, 129), (1, 3, 16, 33)
ODD = (0.0, -1e9, 1e9, 1e-38, math.inf, -math.inf, math.nan)


def strewn(*shape: int, seed: int, low: float = -2.0) -> torch.Tensor:
    """Return numbers, some of them odd."""
    rng = generator(seed, "odd")
    x = torch.empty(shape).uniform_(low, 20, generator=rng)
    odd = torch.tensor(ODD)[torch.randint(len(ODD), shape, generator=rng)]
    return torch.where(torch.rand(shape, generator=rng) < 0.1, odd.clamp(min=low), x)


def main(library: Path, variant: str) -> int:
    """Return how often kernels were called."""
    kernels = arithmetic.Kernels(library, variant)
    arithmetic._kernels = lambda: kernels
    calls = 0
    for seed, (slots, uses, codewords) in enumerate(itertools.product(SLOTS, USES, CODEWORDS)):
        y, z, v = (strewn(slots, uses, seed=10 * seed + i) for i in range(3))
        x_hat, nu = (strewn(slots, codewords, seed=10 * seed + i) for i in range(3, 5))
        noise, book = strewn(slots, 1, seed=seed, low=0.01), strewn(codewords, uses, seed=seed)
        for codebook in (book, torch.ones(codewords, uses)):
            options = {"damping": 0.2, "limit": 1e9, "late": bool(seed % 2), "late_residual": bool(seed % 3)}
            native.pass_messages(codebook, y, noise, (x_hat, nu), (z, v), **options)
            options = {"iterations": 3, "patience": 1, "largest": 16, "damping": 0.3, "limit": 1e9, "least": 1e-12}
            options |= {"least_chance": 1e-10, "learn_noise": bool(seed % 2)}
            native.settle(codebook, y, (0.3, noise[:, 0]), 0.1, **options)
            rate = strewn(slots if seed % 2 else 1, codewords, seed=seed, low=0.0)
            options = {"iterations": 2, "reach": 9, "most": 1e5, "limit": 1e9}
            prior = (rate.log(), rate.clamp(min=1e-12) if seed % 3 else None)
            native.iterate(codebook, y, noise, (x_hat, nu, z, v), prior, **options)
            calls += 3
    for seed, (slots, codewords, own) in enumerate(itertools.product(SLOTS, CODEWORDS, (False, True))):
        R, V = strewn(slots, codewords, seed=seed), strewn(slots, codewords, seed=-seed, low=1e-8)
        rate = strewn(slots if own else 1, codewords, seed=3 * seed, low=0.0)
        for reach in (1, 9, 256):
            for shape in (None, rate.clamp(min=1e-12)):
                native.poisson_moments(R, V, rate.log(), shape, reach=reach, most=1e5)
                calls += 1
            for kernel, filters in ((1, 1), (3, 8), (5, 13), (1, 0)):
                weights = [strewn(filters, kernel, 6, seed=1), strewn(filters, seed=2)]
                weights += [strewn(filters, kernel, filters, seed=3), strewn(filters, seed=4)]
                weights += [strewn(1, kernel, filters, seed=5), strewn(1, seed=6)]
                table = torch.lgamma(torch.arange(1.0, 30.0))
                if filters:
                    options = {"gate": 0.5, "limit": 1e9, "weights": weights[::2]}
                    native.estimate(R, V, (R, V), (rate, rate), **options)
                y, z, v = (strewn(slots, 19, seed=seed + i) for i in range(3))
                net = native.NetLayer(1.1, 0.2, 0.9, 1e9, 1.1, reach, table, 0.5, weights if filters else ())
                native.layer(strewn(codewords, 19, seed=7), y, V[:, :1], (R, V, z, v), (rate.log(), rate), net)
                calls += 2
            native.count_moments(R, V, rate.log(), rate, temperature=1.1, largest=reach)
            calls += 1
    return calls


if __name__ == "__main__":
    torch.set_num_threads(1)
    with torch.no_grad():
        print(main(Path(sys.argv[1]), sys.argv[2]))
