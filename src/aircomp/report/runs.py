"""Finished runs on disk: checked when they are read, and named so that no two are confused."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aircomp.common.artefact import read_json, read_lines
from aircomp.common.results import Row
from aircomp.errors import ArtefactError
from aircomp.federation.settings import PARTS
from aircomp.report.page import cell_text


@dataclass(frozen=True)
class Run:
    """A directory with a result."""

    name: str
    """The shortest end of its path that no other run shares."""
    directory: Path
    command: str
    config: dict[str, Any]
    rows: list[Row]
    metrics: list[Row]
    made_with: str


def read_runs(directories: Sequence[Path]) -> list[Run]:
    """Read the runs; one that is given twice counts once.

    Raises:
        ArtefactError: If a directory is missing, or holds no result or a damaged one.
    """
    unique = list({os.path.realpath(path): path for path in directories}.values())
    return [_read_run(path, name) for path, name in zip(unique, _names(unique), strict=True)]


def command_of(run: Run) -> str:
    """Return the command that makes the run again, safe to paste into a shell; empty where no command does."""
    if own_parts(run):
        return ""
    words = ["aircomp", *run.command.split()]
    match run.command:
        case "simulate" | "collect" if (run.directory / "config.toml").is_file():
            words.append(str(run.directory / "config.toml"))
        case "pretrain" if (run.directory / "config.toml").is_file():
            words += ["FRAGMENTS", "--preset", str(run.directory / "config.toml")]
        case "evaluate":
            words += _flags(
                run.config,
                "fragments",
                "decoder",
                "snr_db",
                "snr_reference",
                "codebook",
                "layer",
                "side_information",
                "slots",
                "seed",
            )
            words += ["--yardstick"] if run.config.get("yardstick") is True else []
        case "demo":
            words += _flags(run.config, "rounds", "seed", "seeds", "snr_db")
        case "cost" if "num_parameters" in run.config:
            words += ["--parameters", str(run.config["num_parameters"])]
        case _:
            return ""
    return shlex.join(words)


def own_parts(run: Run) -> dict[str, str]:
    """Return the parts of a run from Python that are not the package's own, by name."""
    own = run.config.get("own")
    told = own if isinstance(own, dict) else {}
    return {name: cell_text(told[name]) for name in PARTS if told.get(name)}


def _flags(config: Mapping[str, Any], *names: str) -> list[str]:
    words = []
    for name in names:
        value = config.get(name)
        if value is not None:
            values = value if isinstance(value, list) else [value]
            words += [f"--{name.replace('_', '-')}", *(f"{v:g}" if isinstance(v, float) else str(v) for v in values)]
    return words


def _read_run(directory: Path, name: str) -> Run:
    path = directory / "result.json"
    if not os.path.isdir(directory):
        what = "is a file" if os.path.exists(directory) else "does not exist"
        raise ArtefactError(f"{directory} {what}; give the directory of a finished run")
    if not os.path.lexists(path):
        hint = "finish its run with --resume" if (directory / "config.toml").exists() else "give a finished run's"
        raise ArtefactError(f"there is no result.json in {directory}; {hint}")
    result = read_json(path)
    if not _is_result(result):
        raise ArtefactError(
            f"{path} is not a result: expected a command, its config and rows; give a finished run's directory"
        )
    command = "collect" if (directory / "fragments.json").exists() else result["command"]
    journal = directory / "metrics.jsonl"
    metrics = read_lines(journal) if os.path.lexists(journal) else []
    return Run(name, directory, command, result["config"], result["rows"], metrics, _made_with(result))


def _is_result(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    rows = value.get("rows")
    well_formed = isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
    return well_formed and isinstance(value.get("command"), str) and isinstance(value.get("config"), dict)


def _made_with(result: Row) -> str:
    environment = result.get("environment")
    environment = environment if isinstance(environment, dict) else {}
    parts = [f"aircomp {cell_text(result.get('version'))}"]
    names = {"python": "Python", "torch": "torch"}
    parts += [f"{name} {cell_text(environment[key])}" for key, name in names.items() if key in environment]
    parts += [cell_text(environment["system"])] if "system" in environment else []
    return ", ".join(parts)


def _names(directories: Sequence[Path]) -> list[str]:
    """Name each directory by the end of its path, as much of it as tells it from the others."""
    names = []
    paths = [Path(os.path.realpath(path)).parts for path in directories]
    for parts in paths:
        length = 1
        while length < len(parts) and sum(other[-length:] == parts[-length:] for other in paths) > 1:
            length += 1
        names.append("/".join(parts[-length:]))
    return names
