"""What runs write: records without their times, and finished runs to read."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aircomp.common.artefact import write_json, write_text
from aircomp.common.outdir import MARKER

TIMES = ("seconds", "seconds_left", "samples_per_second")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the records of a `metrics.jsonl`; none if there is no such file yet."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def without_times(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what two runs with one seed have in common."""
    return [{name: value for name, value in record.items() if name not in TIMES} for record in records]


def put_run(directory: Path, command: str, rows: list[dict[str, Any]], config: Any = None, metrics: Sequence = ()):
    """Write a finished run and return its directory."""
    result = {"command": command, "version": "1", "config": config or {}, "seed": 0, "environment": {}, "rows": rows}
    write_json(directory / "result.json", result)
    write_json(directory / MARKER, {"kind": command.split()[0], "version": "1"})
    if metrics:
        write_text(directory / "metrics.jsonl", "".join(json.dumps(record) + "\n" for record in metrics))
    return directory
