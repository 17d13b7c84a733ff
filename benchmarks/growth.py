"""How does time grow with the sizes of a round? The slope on log axes, beside the expected one; one thread.

Time is the processor's, which other programs do not lengthen much. A slope is fitted to the sizes that are measured, so what
does not grow with them (estimates of the round, overheads) makes it smaller than expected. A larger one is a fault.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from aircomp.channel.awgn import transmit
from aircomp.common import rng as rngs
from aircomp.common.results import Row
from aircomp.common.threads import one_thread
from aircomp.decoders.amp.amp_da import AmpDa
from aircomp.decoders.amp.gamp import Gamp
from aircomp.decoders.net.amp_da_net import AmpDaNet, AmpDaNetDecoder
from aircomp.decoders.net.gamp_net import GampNet, GampNetDecoder
from aircomp.decoders.settings import AmpDaNetSettings, GampNetSettings
from aircomp.encode.codebook import count, make_codebook
from aircomp.quantize.codebook import nearest
from benchmarks.timing import interleaved

FRAGMENT = 20
MARGIN = 0.15
"""By which a measured slope may exceed the expected one: caches are left, and clocks are not exact."""


@dataclass(frozen=True)
class Sizes:
    """Of a round."""

    slots: int = 1024
    codewords: int = 128
    uses: int = 64
    devices: int = 10


AXES: dict[str, Sequence[int]] = {
    "slots": (512, 1024, 2048, 4096),
    "codewords": (64, 128, 256, 512),
    "uses": (32, 64, 128, 256),
    "devices": (5, 10, 20, 40),
}
EXPECTED: dict[str, dict[str, float]] = {
    "gamp": {"slots": 1, "codewords": 1, "uses": 1, "devices": 0.5},
    "gamp-net": {"slots": 1, "codewords": 1, "uses": 1, "devices": 0.5},
    "amp-da-net": {"slots": 1, "codewords": 1, "uses": 1, "devices": 0.5},
    "amp-da": {"slots": 1, "codewords": 1, "uses": 1, "devices": 0.5},
    "encode": {"slots": 1, "codewords": 1, "uses": 0, "devices": 1},
    "superpose": {"slots": 1, "codewords": 1, "uses": 1, "devices": 0},
}
"""Of the slope. Posteriors sum over counts near the mode, some root of the number of devices of them."""


def bench_growth(repeats: int, contenders: Sequence[str] = tuple(EXPECTED)) -> list[Row]:
    """Return the slope of every contender along every axis."""
    points = {(axis, value): replace(Sizes(), **{axis: value}) for axis, values in AXES.items() for value in values}
    rows = []
    for name in contenders:
        runs = {f"{axis} {value}": _run(name, sizes) for (axis, value), sizes in points.items()}
        with one_thread():
            seconds = interleaved(runs, repeats, time.process_time)
        for axis, values in AXES.items():
            times = [seconds[f"{axis} {value}"] for value in values]
            measured, expected = slope(values, times), EXPECTED[name][axis]
            rows.append(
                {
                    "contender": name,
                    "axis": axis,
                    "from_to": f"{values[0]} to {values[-1]}",
                    "milliseconds": " ".join(f"{1e3 * t:.3g}" for t in times),
                    "slope": measured,
                    "expected": expected,
                    "within": measured <= expected + MARGIN,
                }
            )
    return rows


def slope(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the least-squares slope of log seconds against log sizes."""
    x, y = ([math.log(value) for value in values] for values in (sizes, seconds))
    middle, level = sum(x) / len(x), sum(y) / len(y)
    return sum((a - middle) * (b - level) for a, b in zip(x, y, strict=True)) / sum((a - middle) ** 2 for a in x)


def _run(name: str, sizes: Sizes) -> Callable[[], object]:
    """Return what is timed."""
    rng = rngs.generator(0, "growth")
    popularity = 1 / torch.arange(1, sizes.codewords + 1).float()
    popularity /= popularity.sum()
    chosen = torch.multinomial(popularity, sizes.devices * sizes.slots, replacement=True, generator=rng)
    counts = count(chosen.view(sizes.devices, sizes.slots), sizes.codewords)
    kind = "bernoulli" if name == "amp-da" else "gaussian"
    codebook = make_codebook(kind, sizes.codewords, sizes.uses, rng=rng)
    if name == "encode":
        fragments = torch.randn(sizes.devices, sizes.slots, FRAGMENT, generator=rng)
        words = torch.randn(sizes.codewords, FRAGMENT, generator=rng)
        return lambda: nearest(fragments, words)
    if name == "superpose":
        return lambda: transmit(counts, codebook, snr_db=10.0, rng=rngs.generator(0, "growth noise"))
    decoder = {
        "gamp": lambda: Gamp(codebook),
        "gamp-net": lambda: GampNetDecoder(GampNet(GampNetSettings()).requires_grad_(False), codebook),
        "amp-da-net": lambda: AmpDaNetDecoder(AmpDaNet(AmpDaNetSettings()).requires_grad_(False), codebook),
        "amp-da": lambda: AmpDa(codebook),
    }[name]()
    received = transmit(counts, codebook, snr_db=10.0, rng=rng)
    return lambda: decoder.decode(received, popularity)
