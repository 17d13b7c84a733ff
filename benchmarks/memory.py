"""Memory and time of a round against the size of the model: ten devices, one process a measurement.

`messages_mib` are the updates of all devices; `before_mib` is the peak of the process when they are there and nothing is sent
yet; `round_times_messages` says how many times the updates a round takes beside them. It must not grow with the model.
"""

import json
import resource
import subprocess
import sys
import time
from typing import Any

from aircomp.common.results import Row

DEVICES = 10
SCHEMES = ("ideal", "analog", "tdma-entropy", "gamp", "hybrid")
"""One of each kind: told, raw numbers, bits in turns, codewords, codewords and raw numbers."""
WARM_UP = 20_000
"""Parameters of the round that is not measured."""


def bench_memory(scheme: str, millions: tuple[float, ...]) -> list[Row]:
    """Send one round of each size, each in a process of its own, whose peak is that of the round."""
    rows = []
    for size in millions:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.memory", scheme, str(int(size * 1e6))],
            capture_output=True,
            text=True,
            check=True,
        )
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    for row in rows:
        row["times_smallest"] = row["seconds"] / rows[0]["seconds"]
        row["size_times_smallest"] = row["parameters"] / rows[0]["parameters"]
    return rows


def measure(scheme: str, size: int) -> dict[str, Any]:
    """Send one round in this process."""
    import torch

    import aircomp

    rng = torch.Generator().manual_seed(0)
    warm = torch.randn(1 + DEVICES, WARM_UP, generator=rng)
    common = torch.randn(size, generator=rng)
    updates = torch.randn(DEVICES, size, generator=rng).add_(common)
    link = aircomp.Link(scheme, aircomp.Awgn(snr_db=10.0))
    link.send(warm[1:], base=warm[0])  # what is loaded and prepared once
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.process_time()
    sent = link.send(updates, base=common)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "contender": scheme,
        "parameters": size,
        "messages_mib": updates.nbytes / 2**20,
        "before_mib": before / 2**10,  # kilobytes on Linux
        "peak_mib": peak / 2**10,
        "round_times_messages": (peak - before) * 2**10 / updates.nbytes,
        "seconds": time.process_time() - begun,
        "nmse": sent.nmse,
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))  # noqa: T201
