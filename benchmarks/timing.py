"""Interleaved timing: each repeat runs every contender once, so that a slow moment hits all of them."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from aircomp.cli.common import print_table
from aircomp.common.results import Row


def interleaved(
    contenders: Mapping[str, Callable[[], object]], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Return each contender's median seconds over `repeats` interleaved runs, after one run to warm up."""
    for run in contenders.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, run in contenders.items():
            start = clock()
            run()
            seconds[name].append(clock() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def show(title: str, rows: Sequence[Row], *fields: str) -> None:
    """Print some fields of the rows as a table."""
    print_table(title, rows, {name: name.replace("_", " ") for name in fields})
