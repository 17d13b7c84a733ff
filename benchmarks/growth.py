"""How do time and memory grow with the sizes of a round? Slopes on log axes, beside the expected ones; one thread.

Time is the processor's, which other programs do not lengthen much. Memory is what a run takes beyond what the process held
before it, as Linux counts it. A slope is fitted to the sizes that are measured, so what does not grow with them (estimates of
the round, overheads, work in chunks) makes it smaller than expected. A larger one is a fault.
"""

import ctypes
import gc
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from aircomp.aggregation.rules import aggregate
from aircomp.channel.awgn import Awgn, transmit
from aircomp.channel.base import make_channel
from aircomp.channel.settings import FadingSettings, PowerSettings
from aircomp.channel.signal import Symbols
from aircomp.common import rng as rngs
from aircomp.common.results import Row
from aircomp.common.threads import one_thread
from aircomp.decoders.amp.amp_da import AmpDa
from aircomp.decoders.amp.gamp import Gamp
from aircomp.decoders.net.amp_da_net import AmpDaNet, AmpDaNetDecoder
from aircomp.decoders.net.gamp_net import GampNet, GampNetDecoder
from aircomp.decoders.settings import AmpDaNetSettings, GampNetSettings
from aircomp.encode.codebook import count, make_codebook
from aircomp.link import Link
from aircomp.quantize.codebook import nearest
from aircomp.report.figures import panels as panels_of
from aircomp.report.page import standalone_svg
from benchmarks.timing import interleaved

FRAGMENT = 20
MARGIN = 0.15
"""By which a measured slope may exceed the expected one: caches are left, and clocks are not exact."""


MEMORY_MARGIN = 0.3
"""The same of memory, which the system counts in pages, and which takes arrays of some megabytes."""


@dataclass(frozen=True)
class Sizes:
    """Of a round."""

    slots: int = 512
    codewords: int = 128
    uses: int = 64
    devices: int = 10
    antennas: int = 1


AXES: dict[str, Sequence[int]] = {
    "slots": (256, 512, 1024, 2048),
    "codewords": (64, 128, 256, 512),
    "uses": (32, 64, 128, 256),
    "devices": (5, 10, 20, 40),
    "antennas": (1, 2, 4, 8),
    "parameters": (50_000, 100_000, 200_000, 400_000),
}
Slopes = dict[str, tuple[float, float]]
"""Of time and of memory, by axis."""
DECODER: Slopes = {"slots": (1, 1), "codewords": (1, 1), "uses": (1, 1), "devices": (0.5, 0)}
"""Posteriors sum over counts near the mode, some root of the number of devices of them."""
EXPECTED: dict[str, Slopes] = {
    "gamp": DECODER,
    "gamp-net": DECODER,
    "amp-da-net": DECODER,
    "amp-da": DECODER,
    "encode": {"slots": (1, 1), "codewords": (1, 1), "devices": (1, 1)},
    "superpose": {"slots": (1, 1), "codewords": (1, 1), "uses": (1, 1), "devices": (0, 0)},
    "superpose, fading": {"slots": (1, 1), "uses": (1, 1), "devices": (1, 1), "antennas": (1, 1)},
    "mean": {"slots": (1, 1), "codewords": (1, 1), "devices": (0, 0)},
    "trimmed mean": {"slots": (1, 1), "codewords": (1, 1), "devices": (1, 1)},  # of the codewords that anybody sent
    "round of gamp": {"parameters": (1, 1), "devices": (1, 1)},
    "round of analog": {"parameters": (1, 1), "devices": (1, 1)},
    "round of blind": {"antennas": (1, 1)},
}
"""The largest slopes that are no fault."""


def bench_growth(repeats: int, contenders: Sequence[str] = tuple(EXPECTED)) -> list[Row]:
    """Return the slopes of every contender along every axis."""
    rows = []
    for name in contenders:
        axes = {axis: AXES[axis] for axis in EXPECTED[name] if axis in AXES}
        runs = {(axis, value): _run(name, _sizes(axis, value)) for axis, values in axes.items() for value in values}
        with one_thread():
            seconds = interleaved({f"{axis} {value}": run for (axis, value), run in runs.items()}, repeats, PROCESSOR)
            taken = {key: taken_bytes(run) for key, run in runs.items()}
        for axis, values in axes.items():
            times, held = [seconds[f"{axis} {value}"] for value in values], [taken[axis, value] for value in values]
            (expected, expected_memory), measured = EXPECTED[name][axis], slope(values, times)
            memory = slope(values, [max(each, PAGE) for each in held])
            rows.append(
                {
                    "contender": name,
                    "axis": axis,
                    "from_to": f"{values[0]} to {values[-1]}",
                    "milliseconds": " ".join(f"{1e3 * t:.3g}" for t in times),
                    "slope": measured,
                    "expected": expected,
                    "mib": " ".join(f"{each / 2**20:.3g}" for each in held),
                    "memory_slope": memory,
                    "memory_expected": expected_memory,
                    "within": measured <= expected + MARGIN and memory <= expected_memory + MEMORY_MARGIN,
                }
            )
    return rows


PROCESSOR = time.process_time
PAGE = 4096


def draw_growth(rows: Sequence[Row], path: Path, *, memory: bool = False) -> None:
    """Draw how time or memory grows: a panel for each axis, on log axes, with the slopes in the names."""
    kind, numbers = ("memory", "mib") if memory else ("time", "milliseconds")
    found, expected = ("memory_slope", "memory_expected") if memory else ("slope", "expected")
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    grey: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in rows:
        values = [max(float(word), 1e-3) for word in row[numbers].split()]
        name = f"{row['contender']}: {row[found]:.2f} of {row[expected]:g}"
        panel = f"{row['axis']}, {row['from_to']}"
        panels.setdefault(panel, {})[name] = [(k, value / values[0]) for k, value in enumerate(values)]
        line = [(float(k), 2.0 ** (k * row[expected])) for k in range(len(values))]
        grey.setdefault(panel, {})[f"a slope of {row[expected]:g}"] = line
    said = "; ".join(f"{r['contender']} over {r['axis']} {r[found]:.2f} of {r[expected]:g}" for r in rows)
    figure = panels_of(
        panels,
        x="doublings of the size",
        y=f"times the {kind}",
        title=f"growth of {kind}",
        alt=f"Growth of {kind} on log axes, measured slope of expected slope: {said}.",
        references=grey,
        log=True,
    )
    path.write_text(standalone_svg(figure), encoding="utf-8")


def taken_bytes(run: Callable[[], object]) -> int:
    """Return how much memory a run takes beyond what the process holds; 0 where the system does not tell."""
    if sys.platform != "linux":
        return 0
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(-3, 1 << 16)  # M_MMAP_THRESHOLD: what is freed goes back to the system at once
        gc.collect()
        libc.malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is from now on
    before = _status("VmRSS")
    run()
    return max(_status("VmHWM") - before, 0)


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])


def _sizes(axis: str, value: int) -> Sizes:
    return replace(
        Sizes(), **{"slots" if axis == "parameters" else axis: value // FRAGMENT if axis == "parameters" else value}
    )


def slope(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the least-squares slope of log seconds against log sizes."""
    x, y = ([math.log(value) for value in values] for values in (sizes, seconds))
    middle, level = sum(x) / len(x), sum(y) / len(y)
    return sum((a - middle) * (b - level) for a, b in zip(x, y, strict=True)) / sum((a - middle) ** 2 for a in x)


def _run(name: str, sizes: Sizes) -> Callable[[], object]:
    """Return what is timed."""
    rng = rngs.generator(0, "growth")
    if name.startswith("round of "):
        return _round(name.removeprefix("round of "), sizes, rng)
    if name == "superpose, fading":
        air = make_channel(FadingSettings(antennas=sizes.antennas, snr_db=10.0), PowerSettings())
        signal = Symbols(torch.randn(sizes.devices, sizes.slots, sizes.uses, generator=rng), 1 / sizes.uses)
        csi = air.sound(sizes.devices, sizes.slots * sizes.uses, rng=rng)
        return lambda: air.carry(signal, csi, rng=rngs.generator(0, "growth noise"))
    popularity = 1 / torch.arange(1, sizes.codewords + 1).float()
    popularity /= popularity.sum()
    chosen = torch.multinomial(popularity, sizes.devices * sizes.slots, replacement=True, generator=rng)
    counts = count(chosen.view(sizes.devices, sizes.slots), sizes.codewords)
    words = torch.randn(sizes.codewords, FRAGMENT, generator=rng)
    if name == "encode":
        fragments = torch.randn(sizes.devices, sizes.slots, FRAGMENT, generator=rng)
        return lambda: nearest(fragments, words)
    if name in RULES:
        return lambda: aggregate(RULES[name], counts, words)
    codebook = make_codebook("bernoulli" if name == "amp-da" else "gaussian", sizes.codewords, sizes.uses, rng=rng)
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


RULES = {"mean": "mean", "trimmed mean": "trimmed-mean"}


def _round(scheme: str, sizes: Sizes, rng: torch.Generator) -> Callable[[], object]:
    """Return a whole round: broadcast, encode, superpose, decode, aggregate."""
    fading = FadingSettings(antennas=sizes.antennas, snr_db=10.0)
    link = Link(scheme, make_channel(fading, PowerSettings()) if scheme == "blind" else Awgn(snr_db=10.0))
    base, *updates = torch.randn(1 + sizes.devices, sizes.slots * FRAGMENT, generator=rng).unbind()
    messages = torch.stack(updates)
    return lambda: link.send(messages, base=base)
