"""result.json: the one form in which every command leaves its numbers."""

import math
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import aircomp
from aircomp.artefact import write_json

Row = dict[str, Any]


def environment() -> dict[str, Any]:
    """Describe the machine by kind, without naming it."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def write_result(path: Path, command: str, config: Mapping[str, Any], seed: int, rows: Sequence[Row]) -> dict[str, Any]:
    """Write `result.json` and return what it holds. Numbers that are not finite become null."""
    result = {
        "command": command,
        "version": aircomp.__version__,
        "config": dict(config),
        "seed": seed,
        "environment": environment(),
        "rows": [{k: _finite(v) for k, v in row.items()} for row in rows],
    }
    write_json(path, result)
    return result


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def mean_over_seeds(rows: Sequence[Row]) -> Row:
    """Merge the rows of several seeds: means, `<field>_std` beside them, and how many `seeds` there were."""
    merged: Row = {}
    for name, first in rows[0].items():
        values = [row.get(name) for row in rows]
        if isinstance(first, int | float) and not isinstance(first, bool) and name not in ("snr_db", "seed"):
            numbers = [float(v) for v in values if v is not None]
            merged[name] = statistics.fmean(numbers) if numbers else None
            merged[f"{name}_std"] = statistics.stdev(numbers) if len(numbers) > 1 else 0.0
        elif name != "seed":
            merged[name] = first
    return merged | {"seeds": len(rows)}
