"""Pages and figures of the docs from the expected results of studies: no number comes from anywhere else.

    expected/SCALE/NAME.json ──► docs/results/SCALE.md        a section for each result: command, figure, tables, claims
                             ──► docs/results/index.md        what became of the paper's claims, and of ours
                             ──► docs/figures/…svg
    expected/arena/TASK.json ──► docs/arena/NAME.md           a page for each challenge
                             ──► blocks of other pages        between a comment and `<!-- end -->`

A block of a result is `<!-- desktop/batch_norm test_accuracy_last5 uplink=amp-da -->`: a table of the rows that have these
words; several fields, divided by commas, stand beside each other. A block of the arena is `<!-- arena round points awgn -->`:
the task, the kind of block (`KINDS`), then challenges or schemes.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from aircomp.common.results import Row
from aircomp.federation.experiment import load_experiment
from aircomp.measure.fields import columns_of, label_of
from aircomp.report.page import Figure, Table, cell_text, standalone_svg
from aircomp.report.rows import table_of
from aircomp.studies.arena import ROUND_ITSELF, Plan, expected_rows
from aircomp.studies.arena_page import FAMILIES, OVERVIEW, command_of, family_of, figure_of
from aircomp.studies.entrants import REFERENCES
from aircomp.studies.expected import expected
from aircomp.studies.ranking import MEASURES, compared, outcome, overview, winners
from aircomp.studies.results import judged
from aircomp.studies.scales import SCALES, Scale
from aircomp.studies.shown import by_snr, figures_of, tables_of, varying
from aircomp.studies.study import EMBEDDED, RESULTS, TASKS, Result, Source, Task, challenge_names, find_challenge
from aircomp.studies.verdicts import NOTE, TITLES, claim_tables

MADE = "<!-- made by `make pages` from src/aircomp/studies/expected: edit nothing here -->"


def pages(docs: Path) -> dict[Path, str]:
    """Return the text of every file of the docs that is made of expected results."""
    everything = [each for scale in SCALES.values() for each in expected_at(scale)]
    found = {docs / "results" / "index.md": _index(everything)}
    for scale in SCALES.values():
        if here := [each for each in everything if each.scale is scale]:
            found[docs / "results" / f"{scale.name}.md"] = _page(scale, here)
    for each in everything:
        found |= {docs / "figures" / f"{name}.svg": standalone_svg(figure) for name, figure in each.figures.items()}
    for name in challenge_names():
        found |= _challenge_page(docs, name)
    return found | _headline_figure(docs) | _with_blocks(docs, everything)


# ── results ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Expected:
    """An expected result: which one, at which scale, and what its file holds."""

    name: str
    result: Result
    scale: Scale
    content: dict[str, Any]

    @property
    def rows(self) -> list[Row]:
        """Its rows."""
        return self.content["rows"]

    @property
    def seeds(self) -> int:
        """The most seeds of any row."""
        return max((row.get("seeds") or 1 for row in self.rows), default=1)

    @property
    def command(self) -> str:
        """What measures it anew."""
        return f"aircomp reproduce {self.name} --scale {self.scale.name} --seeds {self.seeds}"

    @cached_property
    def claims(self) -> dict[Source, list[Row]]:
        """What became of the paper's claims and of ours."""
        return judged(self.result, self.rows, self.scale)

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """Its figures by the names of their files."""
        drawn, stem = figures_of(self.result, self.rows), f"{self.scale.name}-{self.name}"
        return {stem if place == 0 else f"{stem}-{place + 1}": figure for place, figure in enumerate(drawn)}


def expected_at(scale: Scale) -> list[Expected]:
    """Return what was measured at a scale, in the order of the page."""
    found = []
    for name, result in RESULTS.at(scale.name).items():
        content = expected(scale.name, RESULTS.home(name))
        found += [] if content is None else [Expected(name, result, scale, content)]
    return found


def _page(scale: Scale, everything: Sequence[Expected]) -> str:
    head = [f"# The scale `{scale.name}`", MADE, f"{scale.what[0].upper()}{scale.what[1:]}."]
    return "\n\n".join([*head, READING, *(_section(each) for each in everything)]) + "\n"


READING = (
    "Numbers are means over the seeds, with the standard deviation where each seed's value was kept. "
    "[Fields](../reference/fields.md) says what each quantity means; the [glossary](../concepts/glossary.md) explains the "
    "terms. Rows called ours are of this package, not of the paper. `ours: best` is our own network with "
    "[side information](../concepts/side-information.md), the unbiased [readout](../concepts/readouts.md), and slots sent "
    "several times where the SNR is low, at equal cost."
)


def _section(each: Expected) -> str:
    about = each.content
    seeds = "one seed" if each.seeds == 1 else f"{each.seeds} seeds"
    machine = f"{seeds}, {about['core_seconds'] / 60:.0f} core-minutes, torch {about['environment']['torch']}"
    parts = [f"## {each.result.title}", each.result.statement, f"```sh\n{each.command}\n```"]
    parts.append(
        f"Measured with version {about['version']}: {machine}. {older(each.rows)}{about.get('note', '')}".strip()
    )
    parts += [f"![{figure.alt}](../figures/{name}.svg)" for name, figure in each.figures.items()]
    parts += [markdown(table) for table in tables_of(each.result, each.rows)]
    parts += [markdown(replace(table, note="")) for table in claim_tables(each.claims)]
    return "\n\n".join(parts)


def older(rows: Sequence[Row]) -> str:
    """Say which rows are of other code than the present."""
    found = Counter(row["measured_at"] for row in rows if row.get("measured_at"))
    which = {at: "All rows" if number == len(rows) else f"{number} of {len(rows)} rows" for at, number in found.items()}
    return "".join(f"{what} were measured at {at}. " for at, what in which.items())


def _index(everything: Sequence[Expected]) -> str:
    scales = [
        {"scale": f"[{scale.name}]({scale.name}.md)", "what": scale.what, "results": len(expected_at(scale))}
        for scale in SCALES.values()
        if any(each.scale is scale for each in everything)
    ]
    columns = {"scale": "scale", "what": "what is run", "results": "results"}
    tables = [Table("Scales", columns, scales), *_topics(everything)]
    return "\n\n".join(["# Results", MADE, INDEX, *map(markdown, tables)]) + "\n"


INDEX = (
    "Every number of these pages comes from a file in `src/aircomp/studies/expected`, and every file from one command. "
    "[Reproduce a figure](../howto/reproduce.md) shows how to measure one again. What was tried on the way, also without "
    "success, is in the [notebook](../notebook/index.md)."
)


def _topics(everything: Sequence[Expected]) -> list[Table]:
    """Return two tables, what the paper claims and what we add: a row for each topic and scale."""
    tables = []
    for source, title in TITLES.items():
        rows = []
        for each in everything:
            sections = dict.fromkeys(claim["section"] for claim in each.claims[source])
            for section in sections:
                verdicts = [claim["verdict"].split(" on ")[0].split(":")[0] for claim in each.claims[source]]
                here = [
                    v for v, claim in zip(verdicts, each.claims[source], strict=True) if claim["section"] == section
                ]
                full = each.result.full or f"`aircomp reproduce {each.name} --scale paper --seeds 3 --device cuda`"
                anchor = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", each.result.title).strip().lower())
                rows.append(
                    {
                        "topic": f"[{each.result.title}]({each.scale.name}.md#{anchor})",
                        "section": section,
                        "scale": each.scale.name,
                        "verdicts": ", ".join(f"{number} {verdict}" for verdict, number in Counter(here).items()),
                        "full": full if "paper" in (each.result.only or ("paper",)) or each.result.full else "",
                    }
                )
        where = {"section": "where"} if source == "paper" else {}
        columns = {"topic": "topic", **where, "scale": "judged on", "verdicts": "claims", "full": "to judge it fully"}
        rows = [row for row in rows if source == "ours" or row["section"]]
        tables += [Table(title, columns, rows, "" if tables else NOTE)] if rows else []
    return tables


# ── challenges ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _challenge_page(docs: Path, name: str) -> dict[Path, str]:
    """Return the page of a challenge and its figures: who wins, then every scheme."""
    challenge, found = find_challenge(name), {}
    frozen = f"Version {challenge.version}, frozen as `{challenge.fingerprint}`."
    physics = [challenge.physics.strip()] if challenge.physics else []
    if challenge.preset != EMBEDDED:
        data = load_experiment(challenge.preset).data.name
        frozen += f" Rounds are of the preset `{challenge.preset}`; `aircomp data fetch {data}` gets its images."
    head = [f"# {challenge.title}", MADE, challenge.question, *physics, frozen]
    parts = [*head]
    for task in TASKS:
        rows, measure = expected_rows(task, name), MEASURES[task]
        if not rows:
            continue
        figure, stem = figure_of(challenge, rows, measure), f"arena-{task}-{name}"
        parts.append(f"## {'One round' if task == 'round' else 'Training'}")
        if figure is not None:
            found[docs / "figures" / f"{stem}.svg"] = standalone_svg(figure)
            parts.append(f"![{figure.alt}](../figures/{stem}.svg)")
        kinds = ["points", "families", "schemes", *(["alike"] if name == "heterogeneous" else [])]
        parts += [markdown(KINDS[kind](rows, task, [])) for kind in kinds]
        parts.append(f"{older(rows)}Again: `{_command(task, rows, [name])}`")
    if parts == head:
        parts.append(f"Not measured yet: `{command_of(Plan(), name)}`.")
    return found | {docs / "arena" / f"{name}.md": "\n\n".join(parts) + "\n"}


HEADLINE = ("amp-da", "digital-rate", "baa", "a-dsgd", "refined-soft")
"""The schemes of the first figure: the paper's baseline, our best digital one, two of others, and our best one."""
HEADLINE_SNRS_DB = (0.0, 20.0)


def _headline_figure(docs: Path) -> dict[Path, str]:
    """Return the figure of the first page: a few schemes on white noise."""
    shown = [row for name in HEADLINE for row in expected_rows("round", "awgn") if row["scheme"] == name]
    figure = figure_of(find_challenge("awgn"), shown, MEASURES["round"]) if shown else None
    return {} if figure is None else {docs / "figures" / "headline.svg": standalone_svg(figure)}


def _headline(rows: list[Row]) -> str:
    """Say what the first figure shows."""
    measure = MEASURES["round"]
    won = winners(rows, measure)
    verdicts = Counter(row["our_verdict"] for row in won)
    counted = ", ".join(f"{verdict} {verdicts[verdict]}" for verdict in ("wins", "tie", "loses"))
    said = []
    for at in [row for row in won if row["value"] in HEADLINE_SNRS_DB]:
        error = {row["scheme"]: cell_text(row[measure.field]) for row in rows if row["value"] == at["value"]}
        said.append(
            f"At {at['value']:g} dB the error is {error[at['our_best']]} with `{at['our_best']}` of this package, "
            f"{error[at['best_rival']]} with `{at['best_rival']}`, the best scheme of other papers, "
            f"and {error['amp-da']} with `amp-da`."
        )
    return (
        f"{' '.join(said)} Verdicts of our best scheme over the best of other papers at {len(won)} SNRs, "
        f"by {max(row['seeds'] for row in rows)} seeds: {counted}."
    )


def _command(task: Task, rows: Sequence[Row], challenges: Sequence[str]) -> str:
    seeds = max((row["seeds"] for row in rows), default=3)
    if len(challenges) == 1:
        return command_of(Plan(task=task, seeds=tuple(range(seeds))), challenges[0])
    return f"aircomp arena --task {task} --seeds {seeds}"


def _overview(rows: list[Row], task: Task, words: Sequence[str]) -> Table:
    """Who wins each challenge, at how many points, and how our best scheme compares."""
    found = overview(winners(rows, MEASURES[task]))
    titled = [
        row | {"challenge": f"[`{row['challenge']}`](arena/{row['challenge']}.md): {_title(row)}"} for row in found
    ]
    note = f"Margins are in {MEASURES[task].unit}, over the best scheme that is not this package's."
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
    columns |= {"margin": f"margin ({measure.unit})", "verdict": "verdict", "our_best": "this package's best"}
    columns |= {"our_margin": f"its margin ({measure.unit})", "our_verdict": "it"}
    return Table("", columns, [_in_code(row) for row in won])


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
    name, values = MEASURES[task].field, sorted({row["value"] for row in rows})
    lines: dict[str, Row] = {}
    for row in rows:
        place = f"{row['value']:g}"
        line = lines.setdefault(row["scheme"], {"scheme": f"`{row['scheme']}`"})
        line |= {place: row[name], f"{place}_std": row.get(f"{name}_std")}
    axis = label_of(find_challenge(rows[0]["challenge"]).axis) if rows else ""
    columns = {"scheme": "scheme"} | {f"{value:g}": f"{value:g}" for value in values}
    return Table("", columns, list(lines.values()), f"{label_of(name)} over {axis}: mean and deviation over seeds.")


def _families(rows: list[Row], task: Task, words: Sequence[str]) -> Table:
    """The best scheme of every kind at every point."""
    name, found = MEASURES[task].field, []
    sign = -1 if MEASURES[task].higher_is_better else 1
    for value in sorted({row["value"] for row in rows}):
        line: Row = {"value": value}
        for row in sorted(rows, key=lambda row: sign * row[name]):
            if row["value"] == value and row["scheme"] not in REFERENCES:
                line.setdefault(family_of(row["scheme"]), f"{cell_text(row[name])} `{row['scheme']}`")
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
    return Table("", {"value": axis, ROUND_ITSELF: label_of(ROUND_ITSELF)}, [found[value] for value in sorted(found)])


KINDS: dict[str, Callable[[list[Row], Task, Sequence[str]], Table]] = {
    "overview": _overview,
    "points": _points,
    "schemes": _schemes,
    "families": _families,
    "margins": _margins,
    "alike": _alike,
}
"""The kinds of blocks of the arena."""


# ── Markdown ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def markdown(table: Table) -> str:
    """Return a table as Markdown, with its title and note."""
    heading = [f"**{table.title}**", ""] if table.title else []
    return "\n".join([*heading, *_lines(table), *(["", table.note] if table.note else [])])


def _lines(table: Table) -> list[str]:
    cells = [list(table.columns.values()), ["---"] * len(table.columns)]
    cells += [[_cell(row.get(n), row.get(f"{n}_std")) for n in table.columns] for row in table.rows]
    return ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in cells]


def _cell(value: Any, spread: Any) -> str:
    """Show a value, and its spread with as many decimals.

    >>> _cell(0.76312, 0.00099), _cell(2.26, None), _cell(1.0, 2e-6)
    ('0.763 ± 0.001', '2.26', '1 ± 0.000')
    """
    text = cell_text(value)
    if spread is None or value is None:
        return text
    decimals = len(text.partition(".")[2]) or 3
    return f"{text} ± {spread:.{decimals}f}"


# ── blocks of other pages ────────────────────────────────────────────────────────────────────────────────────────────

BLOCK = re.compile(r"(<!-- (?P<what>\w+/\w+|arena \w+) (?P<words>[^>]*?) -->\n).*?(<!-- end -->)", re.DOTALL)


def _with_blocks(docs: Path, everything: Sequence[Expected]) -> dict[Path, str]:
    """Return the pages that have blocks, each block with its table."""
    known = {f"{each.scale.name}/{each.name}": each for each in everything}
    found = {}
    for page in sorted([docs.parent / "README.md", *docs.rglob("*.md")]):
        text = page.read_text(encoding="utf-8") if page.exists() else ""
        if BLOCK.search(text):
            found[page] = BLOCK.sub(lambda match: f"{match[1]}\n{_block(known, match)}\n\n{match[4]}", text)
    return found


def _block(known: dict[str, Expected], match: re.Match[str]) -> str:
    what, words = match["what"], match["words"].split()
    if what.startswith("arena "):
        task: Task = "training" if what.endswith("training") else "round"
        return _arena_block(task, words[0], words[1:])
    each, fields = known[what], words[0].split(",")
    wanted = dict(condition.split("=", 1) for condition in words[1:])
    rows = [row for row in each.rows if fields[0] in row and all(_fits(row.get(k), v) for k, v in wanted.items())]
    if len(fields) == 1 and sum(row.get("snr_db") is not None for row in rows) > 1:
        return "\n".join(_lines(by_snr(each.result, rows, fields[0])))
    names = [*varying(rows), *(["snr_db"] if len({row.get("snr_db") for row in rows}) > 1 else [])]
    return "\n".join(_lines(table_of("", rows, (*names, *fields))))


def _arena_block(task: Task, kind: str, words: Sequence[str]) -> str:
    challenges = [word for word in words if word in challenge_names()] or challenge_names()
    rows = expected_rows(task, *challenges)
    if not rows:
        return f"Not measured yet: `{_command(task, rows, challenges)}`."
    if kind == "headline":
        return f"{_headline(rows)}\n\n`{_command(task, rows, challenges)}`"
    table = KINDS[kind](rows, task, [word for word in words if word not in challenge_names()])
    return f"{markdown(table)}\n\n`{_command(task, rows, challenges)}`"


def _fits(value: Any, wanted: str) -> bool:
    return str(value) in wanted.split(",")
