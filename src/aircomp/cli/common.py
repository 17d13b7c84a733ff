"""What the commands share: output directories, progress, tables."""

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import tyro
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from aircomp.interrupt import deferred
from aircomp.outdir import as_directory, new_directory, newest_directory
from aircomp.settings import Settings, setting_paths

T = TypeVar("T")


def parse(options: type[T], args: Sequence[str], prog: str, default: T | None = None) -> T:
    """Parse a command's arguments into its options; help shows the class's docstring as it is written."""
    out = value_of(args, "--out")
    if out is not None:
        as_directory(out)  # as a path, nothing would be the current directory
    keywords: dict[str, Any] = {} if default is None else {"default": default}  # Any: tyro's are of many types
    return tyro.cli(options, args=list(args), prog=f"aircomp {prog}", description=inspect.getdoc(options), **keywords)


def given_settings(model: type[Settings], args: Sequence[str], aliases: Mapping[str, str] | None = None) -> list[str]:
    """Return the paths of the settings that the arguments set: `--partition.alpha=1` gives partition.alpha."""
    known, found = setting_paths(model), []
    for word in args:
        path = word.partition("=")[0].removeprefix("--").replace("-", "_")
        path = (aliases or {}).get(path, path)
        group, dot, name = path.rpartition(".")
        path = next((p for p in (path, group + dot + name.removeprefix("no_")) if p in known), None)
        if word.startswith("--") and path is not None:
            found.append(path)
    return found


def value_of(args: Sequence[str], flag: str) -> str | None:
    """Find what a flag is set to before the arguments are parsed: it may decide their defaults."""
    found = None
    for place, word in enumerate(args):
        if word.startswith(f"{flag}="):
            found = word.removeprefix(f"{flag}=")
        elif word == flag and place + 1 < len(args):
            found = args[place + 1]
    return found


@contextmanager
def output_directory(out: Path | None, stem: str, *, resume: bool = False) -> Iterator[Path]:
    """Give --out, or else a new directory under runs/, or with `resume` the newest one of that name."""
    given = out or (newest_directory(stem) if resume else None)
    with nullcontext(given) if given else new_directory(stem) as directory:
        yield directory


class _Progress(Progress):
    """A bar that no Ctrl-C leaves locked."""

    def update(self, *args: Any, **fields: Any) -> None:  # Any: as rich has it
        with deferred():
            super().update(*args, **fields)


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[tuple[Progress, TaskID]]:
    """Show a bar with counts, elapsed and remaining time; silent when the output is not a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with _Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield progress, progress.add_task(description, total=total, note="")


def print_table(title: str, rows: Sequence[dict[str, Any]], columns: dict[str, str]) -> None:
    """Print rows as a table: `columns` maps field names to headings. A single row is printed as a list."""
    if len(rows) == 1:
        rows = [{"what": heading, "value": _cell(rows[0].get(name))} for name, heading in columns.items()]
        columns = {"what": "", "value": ""}
    table = Table(title=title, title_justify="left")
    for heading in columns.values():
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*(_cell(row.get(name)) for name in columns))
    terminal = sys.stdout.isatty()
    Console(file=sys.stdout, width=None if terminal else 140).print(table)  # a file has no edge to wrap at


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
