"""Tables and figures of the docs from the expected results of the arena.

A page says where a table stands, and `make pages` fills it in:

    <!-- arena round points awgn -->
    <!-- end -->

The first word is the task, the second the kind of block (`KINDS`), the others are challenges or schemes.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from aircomp.common.results import Row
from aircomp.comparison.challenges import challenge_names, find_challenge
from aircomp.comparison.entrants import find_entrant
from aircomp.comparison.expected import expected
from aircomp.comparison.judge import BOUNDS, MEASURES, compared, outcome, overview, winners
from aircomp.comparison.page import OVERVIEW, command_of, figure_of
from aircomp.comparison.run import ROUND_ITSELF, Plan, Task
from aircomp.measure.fields import columns_of, label_of
from aircomp.report.page import Figure, Table, cell_text, standalone_svg
from aircomp.reproduce.docs import markdown
from aircomp.uplinks.outputs import Counts, Mean, Vectors, Vote

BLOCK = re.compile(
    r"(<!-- arena (?P<task>round|training) (?P<kind>\w+)(?P<words>[^>]*?) -->\n).*?(<!-- end -->)", re.DOTALL
)
GOALS = {"phase": (20.0, 45.0), "blind": (4.0, 64.0), "byzantine": (0.2, 0.4), "budget": (0.1, 0.99)}
"""Where the best scheme of this package is meant to be the best of all: the first and the last value."""
FAMILIES = {
    Counts: "codewords, all at once",
    Mean: "parameters, all at once",
    Vectors: "bits, in turns",
    Vote: "signs, all at once",
}
"""Kinds of schemes, by what arrives."""


def pages(docs: Path) -> dict[Path, str]:
    """Return the text of every page with blocks of the arena, and its figures."""
    found: dict[Path, str] = {}
    for page in sorted([docs.parent / "README.md", *docs.rglob("*.md")]):
        text = page.read_text(encoding="utf-8") if page.exists() else ""
        if BLOCK.search(text):
            found[page] = BLOCK.sub(lambda match: f"{match[1]}\n{_block(match)}\n\n{match[5]}", text)
            found |= {docs / "figures" / _figure_name(m): standalone_svg(f) for m, f in _figures(text)}
    return found


def _figures(text: str) -> list[tuple[re.Match[str], Figure]]:
    drawn = [(match, _figure(match)) for match in BLOCK.finditer(text) if match["kind"] == "figure"]
    return [(match, figure) for match, figure in drawn if figure is not None]


def _figure_name(match: re.Match[str]) -> str:
    return f"arena-{match['task']}-{match['words'].strip()}.svg"


def _figure(match: re.Match[str]) -> Figure | None:
    name, task = match["words"].strip(), _task(match)
    return figure_of(find_challenge(name), rows_of(task, name), MEASURES[task])


def _task(match: re.Match[str]) -> Task:
    return "training" if match["task"] == "training" else "round"


def rows_of(task: Task, *challenges: str) -> list[Row]:
    """Return what is expected of some challenges."""
    known = expected(task)
    return [] if known is None else [row for row in known["rows"] if row["challenge"] in challenges]


def _block(match: re.Match[str]) -> str:
    task, words = _task(match), match["words"].split()
    if match["kind"] == "figure":
        figure = _figure(match)
        return "" if figure is None else f"![{figure.alt}](figures/{_figure_name(match)})"
    challenges = [word for word in words if word in challenge_names()] or challenge_names()
    rows = rows_of(task, *challenges)
    table = KINDS[match["kind"]](rows, task, [word for word in words if word not in challenge_names()])
    seeds = tuple(range(max((row["seeds"] for row in rows), default=3)))
    commands = [command_of(Plan(task=task, seeds=seeds), name) for name in challenges]
    command = commands[0] if len(commands) == 1 else f"aircomp arena --task {task} --seeds {len(seeds)}"
    if not table.rows:
        return f"Not measured yet: `{command}`."
    return f"{markdown(table)}\n\n`{command}`"


def _overview(rows: list[Row], task: Task, words: Sequence[str]) -> Table:
    """Who wins each challenge, at how many points, and how our best scheme compares."""
    found = overview(winners(rows, MEASURES[task]))
    titled = [row | {"challenge": f"`{row['challenge']}`: {_title(row)}"} for row in found]
    note = f"Margins are in {MEASURES[task].unit}, over the best scheme that is not ours."
    return Table("", columns_of(OVERVIEW), titled, note)


def _title(row: Row) -> str:
    title = find_challenge(row["challenge"]).title
    return title[0].lower() + title[1:]


def _points(rows: list[Row], task: Task, words: Sequence[str]) -> Table:
    """The winner at every point, and our best scheme beside the best other."""
    measure = MEASURES[task]
    won = winners(rows, measure)
    columns = {"value": label_of(find_challenge(won[0]["challenge"]).axis) if won else "value"}
    columns |= {"winner": "best", "won_with": label_of(measure.field), "runner_up": "next"}
    columns |= {"margin": f"margin ({measure.unit})", "verdict": "verdict", "our_best": "our best"}
    columns |= {"our_margin": f"its margin ({measure.unit})", "our_verdict": "it"}
    return Table("", columns, [_in_code(row) for row in won])


def _goals(rows: list[Row], task: Task, words: Sequence[str]) -> Table:
    """The points at which our best scheme is meant to win."""
    won = winners([row for row in rows if row["challenge"] in GOALS], MEASURES[task])
    aimed = [row for row in won if GOALS[row["challenge"]][0] <= row["value"] <= GOALS[row["challenge"]][1]]
    columns = {"place": "challenge", "our_best": "our best", "best_rival": "best other"}
    columns |= {"our_margin": f"margin ({MEASURES[task].unit})", "our_verdict": "it"}
    return Table("", columns, [_in_code(row) | {"place": f"`{row['challenge']}` {row['value']:g}"} for row in aimed])


def _in_code(row: Row) -> Row:
    """Write names of schemes as code, and margins with their interval."""
    names = {name: f"`{row[name]}`" for name in ("winner", "runner_up", "our_best", "best_rival") if name in row}
    return row | names | {"margin": _interval(row)}


def _interval(row: Row) -> str:
    if row.get("margin_low") is None:
        return cell_text(row.get("margin"))
    return f"{row['margin']:.2f} ({row['margin_low']:.2f} to {row['margin_high']:.2f})".replace("-", "−")


def _schemes(rows: list[Row], task: Task, words: Sequence[str]) -> Table:
    """Every scheme at every point of a challenge."""
    field, values = MEASURES[task].field, sorted({row["value"] for row in rows})
    lines: dict[str, Row] = {}
    for row in rows:
        place = f"{row['value']:g}"
        line = lines.setdefault(row["scheme"], {"scheme": f"`{row['scheme']}`"})
        line |= {place: row[field], f"{place}_std": row.get(f"{field}_std")}
    axis = label_of(find_challenge(rows[0]["challenge"]).axis) if rows else ""
    columns = {"scheme": "scheme"} | {f"{value:g}": f"{value:g}" for value in values}
    return Table("", columns, list(lines.values()), f"{label_of(field)} over {axis}: mean and deviation over seeds.")


def _families(rows: list[Row], task: Task, words: Sequence[str]) -> Table:
    """The best scheme of every kind at every point."""
    field, found = MEASURES[task].field, []
    sign = -1 if MEASURES[task].higher_is_better else 1
    for value in sorted({row["value"] for row in rows}):
        line: Row = {"value": value}
        for row in sorted(rows, key=lambda row: sign * row[field]):
            if row["value"] == value and row["scheme"] not in BOUNDS:
                family = FAMILIES[find_entrant(row["scheme"]).offers]
                line.setdefault(family, f"{cell_text(row[field])} `{row['scheme']}`")
        found.append(line)
    axis = label_of(find_challenge(rows[0]["challenge"]).axis) if rows else ""
    kinds = [name for name in FAMILIES.values() if any(name in line for line in found)]
    return Table("", {"value": axis} | {name: name for name in kinds}, found)


def _margins(rows: list[Row], task: Task, words: Sequence[str]) -> Table:
    """One scheme beside another: by how much the first is better."""
    first, second = words
    measure, found = MEASURES[task], []
    by_place = {(row["challenge"], row["value"], row["scheme"]): row for row in rows}
    for (challenge, value, scheme), row in by_place.items():
        other = by_place.get((challenge, value, second))
        if scheme == first and other is not None:
            verdict = compared(row, other, measure)
            found.append(
                verdict
                | {"place": f"`{challenge}` {value:g}", "margin": _interval(verdict)}
                | {"first": row[measure.field], "second": other[measure.field]}
                | {"verdict": outcome(verdict)}
            )
    columns = {"place": "challenge", "first": f"`{first}`", "second": f"`{second}`"}
    return Table("", columns | {"margin": f"margin ({measure.unit})", "verdict": f"`{first}`"}, found)


def _alike(rows: list[Row], task: Task, words: Sequence[str]) -> Table:
    """How alike the devices' updates are at every point."""
    found = {row["value"]: row for row in reversed(rows) if ROUND_ITSELF in row}
    axis = label_of(find_challenge(rows[0]["challenge"]).axis) if rows else ""
    shown = [found[value] for value in sorted(found)]
    return Table("", {"value": axis, ROUND_ITSELF: label_of(ROUND_ITSELF)}, shown)


KINDS: dict[str, Callable[[list[Row], Task, Sequence[str]], Table]] = {
    "overview": _overview,
    "points": _points,
    "goals": _goals,
    "schemes": _schemes,
    "families": _families,
    "margins": _margins,
    "alike": _alike,
}
"""The kinds of blocks, beside `figure`."""
