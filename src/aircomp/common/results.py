"""result.json: the one form in which every command leaves its numbers."""

import math
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import aircomp
from aircomp.common.artefact import write_json

Row = dict[str, Any]


def environment() -> dict[str, Any]:
    """Describe the machine by kind, without naming it."""
    import torch  # only here: who prints a table needs none

    from aircomp.common.arithmetic import arithmetic_identity

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "arithmetic": arithmetic_identity(),
    }


def write_result(path: Path, command: str, config: Mapping[str, Any], seed: int, rows: Sequence[Row]) -> dict[str, Any]:
    """Write `result.json` and return what it holds, in `plain` values."""
    told = {
        "command": command,
        "version": aircomp.__version__,
        "config": dict(config),
        "seed": seed,
        "environment": environment(),
        "rows": list(rows),
    }
    result = plain(told)
    write_json(path, result)
    return result


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: numbers of NumPy as Python's, paths as text, what is not finite as None."""
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
