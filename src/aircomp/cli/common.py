"""What the commands share: output directories, progress, tables."""

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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

from aircomp.settings import Settings, setting_paths

T = TypeVar("T")


def parse(options: type[T], args: Sequence[str], prog: str, default: T | None = None) -> T:
    """Parse a command's arguments into its options; help shows the class's docstring as it is written."""
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


def default_out(stem: str, *, resume: bool) -> Path:
    """Return a directory under runs/ that loses nothing: a new one, or with `resume` the newest of that name."""
    existing = [p for p in (_numbered(stem, i) for i in range(1, 10_000)) if p.exists()]
    if resume and existing:
        return existing[-1]
    return next(p for p in (_numbered(stem, i) for i in range(1, 10_000)) if not p.exists())


def _numbered(stem: str, number: int) -> Path:
    return Path("runs") / (stem if number == 1 else f"{stem}-{number}")


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
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
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
