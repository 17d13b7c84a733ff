"""What the commands share: output directories, progress, tables."""

import contextlib
import dataclasses
import inspect
import io
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any, TypeVar

import tyro
from rich.cells import cell_len
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

from aircomp.common.interrupt import deferred
from aircomp.common.outdir import as_directory, new_directory, newest_directory
from aircomp.errors import ConfigError, unknown_name

T = TypeVar("T")
SHELLS = ("bash", "zsh", "tcsh", "fish")
"""That tyro completes words for."""
PLAIN = {
    r"no type matching (\S+) could be instantiated from \[(.*)\]$": r"\2 was given; expected \1",
    r"invalid literal for int\(\) with base 10: (.*)": r"\1 was given; expected INT",
    r"could not convert string to float: (.*)": r"\1 was given; expected FLOAT",
    r"expected \{(\w+)\}\|": r"expected \1 or ",
    r"(expected|or) INT$": r"\1 a whole number in digits",
    r"(expected|or) FLOAT$": r"\1 a number",
}
"""What tyro and Python say of a value of the wrong type, and plain words for it."""


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
    out = value_of(args, "--out")
    if out is not None:
        as_directory(out)  # as a path, nothing would be the current directory
    keywords: dict[str, Any] = {} if default is None else {"default": default}  # Any: tyro's are of many types
    prog, said = f"aircomp {prog}", io.StringIO()
    if args and args[0].startswith("--tyro-") and args[1:2] and args[1] not in SHELLS:  # tyro would assert it
        raise unknown_name("shell", args[1], SHELLS)
    try:
        with contextlib.redirect_stderr(said), _wide(not {"-h", "--help"} & set(args)):
            words = [_with_whole_path(word) for word in args]
            found = tyro.cli(options, args=words, prog=prog, description=inspect.getdoc(options), **keywords)
        return _checked(found)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise ConfigError(f"{_sentence(said.getvalue())}; see {prog} --help") from None


def _with_whole_path(word: str) -> str:
    """Write `./128x64` and `128x64/` in full: tyro's paths drop the slash, which tells them from a layer of the package."""
    flag, equals, path = word.rpartition("=")
    sizes = "/" in path and re.fullmatch(r"\d+x\d+", os.path.normpath(path))
    return f"{flag}{equals}{os.path.abspath(path)}" if sizes else word


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
    """Make tyro assume a terminal so wide that it wraps nothing."""
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
    for pattern, plain in PLAIN.items():
        said = re.sub(pattern, plain, said)
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


def subcommand(args: Sequence[str], usage: str) -> Sequence[str]:
    """Return the arguments if they begin with a word; without one, or for help, say what there is.

    Raises:
        ConfigError: If there is no word.
        SystemExit: After help.
    """
    if args and args[0] not in ("-h", "--help"):
        return args
    print(f"usage: {usage}   (--help after any of them tells more)")
    if args:
        raise SystemExit(0)
    raise ConfigError(f"no subcommand was given; expected {usage}")


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
    with _Progress(*columns, console=console, disable=not sys.stderr.isatty()) as progress:
        yield progress, progress.add_task(description, total=total, note="")


def print_table(title: str, rows: Sequence[dict[str, Any]], columns: dict[str, str]) -> None:
    """Print rows as a table: `columns` maps field names to headings. A single row is printed as a list.

    Words and numbers are never cut. A column that says the same in all rows is told once, above the table. Columns that do
    not fit a terminal follow in further tables, each of which begins with those that tell the rows apart.
    """
    alone = len(rows) == 1
    if alone:
        rows = [{"what": heading, "value": _cell(rows[0].get(name))} for name, heading in columns.items()]
        columns = {"what": "", "value": ""}
    printed = [[heading, *(_cell(row.get(name)) for row in rows)] for name, heading in columns.items()]
    if len(rows) > 1 and not alone:
        printed, same = _without_same(printed)
        title += f"; in all rows: {', '.join(same)}" if same else ""
    room = Terminal(file=sys.stdout).width if sys.stdout.isatty() else sys.maxsize  # a file has no edge to wrap at
    Terminal(file=sys.stdout, highlight=False).print(title, markup=False, style="italic", soft_wrap=room == sys.maxsize)
    for part in _side_by_side(printed, room):
        widths = _widths(part, room)
        table = Table(show_header=not alone)
        for (heading, *cells), width in zip(part, widths, strict=True):
            is_prose = any(cell_len(cell) > LONG_CELL for cell in cells)
            table.add_column(heading, justify="left" if is_prose else "right", width=width)
        for cells in zip(*(column[1:] for column in part), strict=True):
            table.add_row(*cells)
        Terminal(file=sys.stdout, width=_total(widths)).print(table)


Column = list[str]
"""A heading, and the cells below it."""
NOTHING = "–"
"""A cell without a value."""
MOST_KEYS = 3
"""Columns that tell rows apart, at the most: together they leave room for another."""
LONG_CELL = 32
"""Characters of a cell that stay on one line; a longer one may wrap between words."""


def _without_same(columns: Sequence[Column]) -> tuple[list[Column], list[str]]:
    """Leave out columns that say the same in all rows, and return what they say; at least one column stays."""
    differ = [column for column in columns if len(set(column[1:])) > 1] or [columns[0]]
    same = [f"{column[0]} {column[1]}" for column in columns if column not in differ and column[1] != NOTHING]
    return differ, same


def _side_by_side(columns: Sequence[Column], room: int) -> list[list[Column]]:
    """Split columns into parts that fit the room, each of which begins with those that tell the rows apart."""
    keys = _keys(columns)
    parts = [list(columns[:keys])]
    for column in columns[keys:]:
        if len(parts[-1]) > keys and _total(map(_least_width, [*parts[-1], column])) > room:
            parts.append(list(columns[:keys]))
        parts[-1].append(column)
    return parts


def _keys(columns: Sequence[Column]) -> int:
    """Return how many of the first columns tell the rows apart, or one where it takes more than `MOST_KEYS`."""
    for number in range(1, min(MOST_KEYS, len(columns)) + 1):
        seen = list(zip(*(column[1:] for column in columns[:number]), strict=True))
        if len(set(seen)) == len(seen):
            return number
    return 1


def _widths(columns: Sequence[Column], room: int) -> list[int]:
    """Return the widths of columns: one line for every cell and heading, or else the room goes to what lacks most."""
    widths, wanted = [_least_width(column) for column in columns], [max(map(cell_len, column)) for column in columns]
    for _ in range(min(room - _total(widths), sum(wanted) - sum(widths))):
        lacking = [want - width for want, width in zip(wanted, widths, strict=True)]
        widths[lacking.index(max(lacking))] += 1
    return widths


def _least_width(column: Column) -> int:
    """Return the width that a column needs so that no word is cut, and only headings and long cells wrap."""
    words = [cell_len(word) for text in column for word in text.split()]
    return max([*words, *(min(cell_len(cell), LONG_CELL) for cell in column[1:])], default=0)


def _total(widths: Iterable[int]) -> int:
    """Return the width of a table: a column has a blank on either side, and a line beside it."""
    return sum(width + 3 for width in widths) + 1


def _cell(value: Any) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, float):
        return f"{value:,.0f}" if 999.95 <= abs(value) < 1e9 else f"{value:.4g}"  # 999.95 has four digits as 1,000
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
