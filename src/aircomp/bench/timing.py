"""Interleaved timing: each repeat runs every contender once, so that a slow moment hits all of them."""

import statistics
import time
from collections.abc import Callable, Mapping


def interleaved(contenders: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return each contender's median seconds over `repeats` interleaved runs, after one run to warm up."""
    for run in contenders.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}
