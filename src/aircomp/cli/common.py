"""What the commands share: output directories, progress, tables."""

import contextlib
import dataclasses
import inspect
import io
import math
import os
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import dropwhile, takewhile
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

from aircomp.errors import ConfigError, unknown_name

T = TypeVar("T")
SHELLS = ("bash", "zsh", "tcsh", "fish")
"""That tyro completes words for."""


class Terminal(Console):
    """A console that leaves a pipe that nobody reads to `main`."""

    def on_broken_pipe(self) -> None:
        """Raise the BrokenPipeError that is being handled."""
        raise


def parse(options: type[T], args: Sequence[str], prog: str, default: T | None = None) -> T:
    """Parse a command's arguments into its options; help shows the class's docstring as it is written.

    Raises:
        ConfigError: If they cannot be parsed, saying in one sentence what tyro says in a box.
    """
    keywords: dict[str, Any] = {} if default is None else {"default": default}  # Any: tyro's are of many types
    prog, said = f"aircomp {prog}", io.StringIO()
    if args and args[0].startswith("--tyro-") and args[1:2] and args[1] not in SHELLS:  # tyro would assert it
        raise unknown_name("shell", args[1], SHELLS)
    try:
        with contextlib.redirect_stderr(said), _wide(not {"-h", "--help"} & set(args)):
            found = tyro.cli(options, args=list(args), prog=prog, description=inspect.getdoc(options), **keywords)
        return _checked(found)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise ConfigError(f"{_sentence(said.getvalue())}; see {prog} --help") from None


def _checked(options: T) -> T:
    """Refuse what no command can use: a number that is not finite, a seed below 0, no value, a GPU that is not there."""
    for field in dataclasses.fields(options):  # pyright: ignore[reportArgumentType] (options are dataclasses)
        value: Any = getattr(options, field.name)  # Any: options are of many types
        flag = f"--{field.name.replace('_', '-')}"
        numbers = value if isinstance(value, tuple) else (value,)
        for number in numbers:
            if isinstance(number, float) and not math.isfinite(number):
                raise ConfigError(f"{flag} {number}: expected a finite number")
        if field.name == "seed" and isinstance(value, int) and value < 0:
            raise ConfigError(f"{flag} {value}: expected 0 or more")
        if (field.name, value) == ("device", "cuda"):
            _check_cuda()
        if value == () and field.default not in ((), dataclasses.MISSING):
            raise ConfigError(f"{flag} was given without a value; expected one or more")
    return options


def _check_cuda() -> None:
    import torch  # only here: most commands' help does not need it

    if not torch.cuda.is_available():
        raise ConfigError("--device cuda, but this machine or this build of torch has none; use --device cpu")


@contextlib.contextmanager
def _wide(wanted: bool) -> Iterator[None]:
    """Let tyro believe in a terminal so wide that it wraps nothing."""
    before = os.environ.get("COLUMNS")
    if wanted:
        os.environ["COLUMNS"] = "100000"
    try:
        yield
    finally:
        if wanted:
            os.environ.pop("COLUMNS")
            os.environ.update({} if before is None else {"COLUMNS": before})


def _sentence(box: str) -> str:
    """Return what a box of tyro's says: its first paragraph, and the options that are unknown and similar."""
    text = re.sub(r"\x1b\[[\d;]*m", "", box)
    _, *lines = [line.strip("│| ") for line in text.strip().splitlines()]  # the first is the title
    lines = list(dropwhile(_is_rule, lines))  # below the title, where a terminal cannot draw boxes
    paragraph = list(takewhile(lambda line: not _is_rule(line), lines))
    if not paragraph:
        return "the arguments cannot be parsed"
    said = " ".join(paragraph).removeprefix("Error parsing ").rstrip(".:")
    said = re.sub(r"^(experiment|settings)[.:] ?", "", said)
    rest = lines[len(paragraph) :]
    if "Unrecognized options:" in rest:  # beside what is missing
        unknown = rest[rest.index("Unrecognized options:") + 1]
        said += f", and {unknown} is no option"
    similar = re.findall(r"^(--\w[^\s,]*)", "\n".join(rest), re.MULTILINE)
    if similar and re.search("Perhaps you meant|similar to", text):
        said += f": did you mean {' or '.join(similar[:3])}?"
    return f"{said[0].lower()}{said[1:]}"


def _is_rule(line: str) -> bool:
    return set(line) <= set("─-")


def default_out(stem: str, *, resume: bool) -> Path:
    """Return a directory under runs/ that loses nothing: a new one, or with `resume` the newest of that name."""
    existing = [p for p in (_numbered(stem, i) for i in range(1, 10_000)) if p.exists()]
    if resume and existing:
        return existing[-1]
    return next(p for p in (_numbered(stem, i) for i in range(1, 10_000)) if not p.exists())


def _numbered(stem: str, number: int) -> Path:
    return Path("runs") / (stem if number == 1 else f"{stem}-{number}")


@contextlib.contextmanager
def progress_bar(description: str, total: int) -> Iterator[tuple[Progress, TaskID]]:
    """Show a bar with counts, elapsed and remaining time; silent when the output is not a terminal."""
    console = Terminal(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as progress:
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
    Terminal(file=sys.stdout, width=None if terminal else 140).print(table)  # a file has no edge to wrap at


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
