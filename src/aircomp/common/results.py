"""result.json: the one form in which every command leaves its numbers."""

import math
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import aircomp
from aircomp.common.artefact import write_json

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
