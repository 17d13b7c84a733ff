"""One HTML file that needs nothing else: tables, figures, configuration; no network, no server.

Whatever comes from files is escaped by the template, and the page's policy lets a browser run its own script only.
"""

import base64
import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, StrictUndefined, Template

from aircomp.common import artefact
from aircomp.common.results import Row

MISSING = "–"
MOST_ROWS = 1000
"""Rows of a table that are shown; more would make a page that no browser scrolls well."""
MOST_TEXT = 300
LONG_TEXT = 32
"""Characters of a cell that stay on one line."""
MOST_CONFIG = 200_000
STANDALONE = "svg{color:#1b1f24;background:#fff;font-family:system-ui,sans-serif}"
"""Style of a figure outside the page."""


@dataclass(frozen=True)
class Figure:
    """A drawing, from `report/figures.py`."""

    title: str
    svg: str
    """Markup, put into the page as it is."""
    alt: str
    """What it shows, for those who cannot see it."""
    points: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    """Lines by their label, each with its points in the order drawn: the page tells them, and hides lines on demand."""


@dataclass(frozen=True)
class Table:
    """Rows of a result; a field with a `<field>_std` beside it is shown with that spread.

    A row with a `command` links to that command, where a section has it.
    """

    title: str
    columns: dict[str, str]
    """Field name to heading, with its unit."""
    rows: list[Row]
    note: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the page: the first table, the figures, further tables, then where it all came from."""

    title: str
    text: str = ""
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    commands: tuple[str, ...] = ()
    links: dict[str, str] = field(default_factory=dict)
    """Label to relative path of raw data."""
    config: dict[str, Any] | None = None


def write_page(path: Path, title: str, sections: Sequence[Section], *, lead: str = "") -> Path:
    """Write the page atomically and return its path."""
    text = render(title, sections, lead=lead)
    # JSON may hold half a surrogate pair, which no file can
    artefact.write_text(path, text.encode("utf-8", "replace").decode("utf-8"))
    return path


def write_figures(directory: Path, figures: Sequence[Figure]) -> dict[str, str]:
    """Write each figure as a file of its own, named after its title; return labels and paths relative to `directory`."""
    found = {}
    for figure in figures:
        name = re.sub(r"[^a-z0-9]+", "-", figure.title.lower()).strip("-") + ".svg"
        artefact.write_text(directory / name, standalone_svg(figure))
        found[name] = name
    return found


def standalone_svg(figure: Figure) -> str:
    """Return a figure as the text of a file of its own."""
    opening, rest = figure.svg.split(">", 1)
    return f"{opening}><title>{escape(figure.alt)}</title><style>{STANDALONE}</style>{rest}\n"


def render(title: str, sections: Sequence[Section], *, lead: str = "") -> str:
    """Return the page as text, from `page.html.j2`."""
    style, script = _asset("page.css"), _asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    text = {"title": title, "lead": lead, "style": style, "script": script, "policy": policy}
    helpers = {"points": _points, "shown": _shown, "config_text": _config_text, "href": _href}
    helpers |= {"anchors": _anchors(sections)}
    return _template().render(sections=sections, **text, **helpers)


def _anchors(sections: Sequence[Section]) -> dict[str, str]:
    """Return where each command stands on the page; of several places the first."""
    found: dict[str, str] = {}
    for place, section in enumerate(sections, 1):
        for number, command in enumerate(section.commands, 1):
            found.setdefault(command, f"command-{place}-{number}")
    return found


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(_asset("page.html.j2"))


def _asset(name: str) -> str:
    return (files("aircomp.report") / name).read_text(encoding="utf-8")


def _points(figure: Figure) -> str:
    """Return the points of a figure for the page's script."""
    return json.dumps([[label, [[cell_text(v) for v in point] for point in points]] for label, points in figure.points])


def _config_text(config: dict[str, Any]) -> str:
    text = json.dumps(config, indent=2, ensure_ascii=False, default=str)
    return text if len(text) <= MOST_CONFIG else f"{text[:MOST_CONFIG]}\n… and more, in the raw data"


def _href(path: str) -> str:
    """Make a link that can only lead to a file beside the page: no scheme, no host."""
    safe = quote(path.encode("utf-8", "replace"), safe="/")
    return safe if safe.startswith("../") else f"./{safe}"


@dataclass(frozen=True)
class _Cell:
    """A cell as the template writes it."""

    text: str
    classes: str
    value: str | None = None
    """What the page sorts by, where that is a number."""


@dataclass(frozen=True)
class _ShownRow:
    cells: list[_Cell]
    command: str | None


@dataclass(frozen=True)
class _ShownTable:
    title: str
    headings: list[_Cell]
    rows: list[_ShownRow]
    note: str


def _shown(table: Table) -> _ShownTable:
    """Return a table as the template writes it."""
    numeric = {name for name in table.columns if any(as_number(row.get(name)) is not None for row in table.rows)}
    headings = [_Cell(heading, "number" if name in numeric else "") for name, heading in table.columns.items()]
    rows = [
        _ShownRow([_cell(row, name, name in numeric) for name in table.columns], row.get("command"))
        for row in table.rows[:MOST_ROWS]
    ]
    note = table.note
    if len(table.rows) > MOST_ROWS:
        note = f"{note} Only the first {MOST_ROWS:,} of {len(table.rows):,} rows are shown.".strip()
    return _ShownTable(table.title, headings, rows, note)


def _cell(row: Row, name: str, numeric: bool) -> _Cell:
    text, number = cell_text(row.get(name), row.get(f"{name}_std")), as_number(row.get(name))
    classes = [word for word, applies in (("number", numeric), ("long", len(text) > LONG_TEXT)) if applies]
    return _Cell(text, " ".join(classes), None if number is None else repr(number))


def as_number(value: Any) -> float | None:
    """Return a finite number as a float; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of hundreds of digits
        return None
    return number if math.isfinite(number) else None


def cell_text(value: Any, spread: Any = None) -> str:
    """Show a value of a row: three digits, with its spread if there is one; a dash if there is none.

    >>> cell_text(0.93277, 0.0094), cell_text(863168), cell_text(None)
    ('0.933 ± 0.0094', '863,168', '–')
    """
    number = as_number(value)
    if number is not None:
        width = as_number(spread)
        return _digits(number, 3) + (f" ± {_digits(width, 2)}" if width is not None else "")
    if value is None or value == "" or value == [] or (isinstance(value, int | float) and not isinstance(value, bool)):
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        text = ", ".join(cell_text(each) for each in value[:MOST_TEXT])
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"


def _digits(number: float, digits: int) -> str:
    if abs(number) < 1e12 and (number == int(number) or abs(number) >= 10**digits - 0.5):  # 999.7 is 1,000
        text = f"{number:,.0f}"
    elif float(f"{number:.{digits}g}") == number:
        text = f"{number:.{digits}g}"
    else:  # rounded: 0.8999 is 0.900 and not 0.9
        text = f"{number:#.{digits}g}".rstrip(".")
    return text.replace("-", "−") if "e" not in text else text
