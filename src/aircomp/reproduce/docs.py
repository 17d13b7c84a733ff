"""Pages and figures of the docs from the expected results: no number of a results page comes from anywhere else.

    expected/SCALE/NAME.json ──► docs/results/SCALE.md        a section for each result: command, figure, tables, claims
                             ──► docs/results/index.md        what became of the paper's claims, and of ours
                             ──► docs/figures/SCALE-NAME.svg
                             ──► blocks of other pages        between `<!-- SCALE/NAME … -->` and `<!-- end -->`

`make pages` writes them, and so does `aircomp reproduce NAME --update-expected`; a test fails where they differ.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from aircomp.common.artefact import read_json, write_text
from aircomp.common.results import Row
from aircomp.measure.fields import label_of
from aircomp.report.page import Figure, Table, cell_text, standalone_svg
from aircomp.report.rows import SHARE, bars_of, lines_of, series_of, table_of
from aircomp.reproduce import codes, paper, receivers, table_one, verdicts
from aircomp.reproduce.catalogue import RESULTS, Result
from aircomp.reproduce.expected import SETTINGS, folder, measured
from aircomp.reproduce.page import judged
from aircomp.reproduce.scales import SCALES, Scale

MADE = "<!-- made by `make pages` from src/aircomp/reproduce/expected: edit nothing here -->"
SHOWN = {
    "fed_accuracy": ("test_accuracy_last5", "count_accuracy", "update_nmse"),
    "k_error": ("num_active_mae",),
    "decoding_accuracy": ("count_accuracy", "update_nmse_hard", "update_nmse_soft"),
    "codebook_ablation": ("count_accuracy", "update_nmse_hard"),
}
"""Fields that a page shows of a result, the first one as a figure; of others, all that were measured."""
PAPER = {
    "fed_accuracy": lambda row: paper.TEST_ACCURACY.get((row.get("uplink"), row.get("snr_db"))),
    "codebook_ablation": lambda row: paper.CODEBOOK.get(row.get("setup", "")) if row.get("snr_db") == 5.0 else None,
}
"""What the paper prints for a row's first field."""


@dataclass(frozen=True)
class Expected:
    """An expected result: which one, at which scale, and what its file holds."""

    result: Result
    scale: Scale
    content: dict[str, Any]

    @property
    def rows(self) -> list[Row]:
        """Its rows."""
        return self.content["rows"]

    @property
    def name(self) -> str:
        """Its name in headings of figures and blocks."""
        return f"{self.scale.name}-{self.result.name}"

    @cached_property
    def fields(self) -> list[str]:
        """What a page shows of it."""
        found = dict.fromkeys(name for row in self.rows for name in measured(row))
        return [name for name in SHOWN.get(self.result.name, found) if name in found]

    @property
    def seeds(self) -> int:
        """The most seeds of any row."""
        return max((row.get("seeds") or 1 for row in self.rows), default=1)

    @property
    def command(self) -> str:
        """What measures it anew."""
        return f"aircomp reproduce {self.result.name} --scale {self.scale.name} --seeds {self.seeds}"

    @cached_property
    def claims(self) -> dict[verdicts.Source, list[Row]]:
        """What became of the paper's claims and of ours."""
        return judged(self.result, self.rows, self.scale)

    @cached_property
    def figure(self) -> Figure | None:
        """Its figure; None where there is nothing to draw."""
        return figure_of(self)


def write_pages(docs: Path) -> list[Path]:
    """Write every page and figure that is made of expected results; return those that changed."""
    return write_changed(pages(docs))


def write_changed(texts: dict[Path, str]) -> list[Path]:
    """Write the files whose text is another one than before, and return them."""
    changed = []
    for path, text in texts.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
            changed.append(path)
    return changed


def pages(docs: Path) -> dict[Path, str]:
    """Return the text of every file of the docs that is made of expected results."""
    everything = [every for scale in SCALES.values() for every in expected_at(scale)]
    found = {docs / "results" / "index.md": _index(everything)}
    for scale in SCALES.values():
        if here := [every for every in everything if every.scale is scale]:
            found[docs / "results" / f"{scale.name}.md"] = _page(scale, here)
    for every in everything:
        if every.figure is not None:
            found[docs / "figures" / f"{every.name}.svg"] = standalone_svg(every.figure)
    return found | _with_blocks(docs, everything)


def expected_at(scale: Scale) -> Iterator[Expected]:
    """Yield what was measured at a scale, in the order of the catalogue."""
    for result in RESULTS.values():
        path = folder(scale.name) / f"{result.name}.json"
        if path.exists():
            yield Expected(result, scale, read_json(path))


# ── pages ────────────────────────────────────────────────────────────────────────────────────────────────────────────


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


def _section(every: Expected) -> str:
    about = every.content
    machine = (
        f"{every.seeds} seeds, {about['core_seconds'] / 60:.0f} core-minutes, torch {about['environment']['torch']}"
    )
    parts = [f"## {every.result.title}", every.result.statement, f"```sh\n{every.command}\n```"]
    parts.append(f"Measured with version {about['version']}: {machine}. {about.get('note', '')}".strip())
    if every.figure is not None:
        parts.append(f"![{every.figure.alt}](../figures/{every.name}.svg)")
    parts += [markdown(table) for table in tables_of(every)]
    parts += [markdown(replace(table, note="")) for table in verdicts.claim_tables(every.claims)]
    return "\n\n".join(parts)


def _index(everything: Sequence[Expected]) -> str:
    rows: dict[verdicts.Source, list[Row]] = {
        source: [
            {"result": f"[{each.result.name}]({each.scale.name}.md#{_anchor(each.result.title)})"} | claim
            for each in everything
            for claim in each.claims[source]
        ]
        for source in verdicts.TITLES
    }
    tables = [markdown(table) for table in verdicts.claim_tables(rows, {"result": "result"})]
    scales = [
        {"scale": f"[{scale.name}]({scale.name}.md)", "what": scale.what, "results": len(list(expected_at(scale)))}
        for scale in SCALES.values()
        if any(each.scale is scale for each in everything)
    ]
    columns = {"scale": "scale", "what": "what is run", "results": "results"}
    return "\n\n".join(["# Results", MADE, INDEX, markdown(Table("Scales", columns, scales)), *tables]) + "\n"


INDEX = (
    "Every number of these pages comes from a file in `src/aircomp/reproduce/expected`, and every file from one command. "
    "[Reproduce a figure](../howto/reproduce.md) shows how to measure one again. What was tried on the way, also without "
    "success, is in the [notebook](../notebook/index.md)."
)


def _anchor(title: str) -> str:
    """Return the anchor that Markdown gives to a heading."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())


# ── tables and figures ───────────────────────────────────────────────────────────────────────────────────────────────


def tables_of(every: Expected) -> list[Table]:
    """Return the tables of a result: over SNR one for each field, with a column for each SNR."""
    found = []
    for group in _groups(every.rows):
        fields = [name for name in every.fields if any(name in row for row in group)]
        if sum(row.get("snr_db") is not None for row in group) > 1:
            found += [_by_snr(every, group, name) for name in fields]
        else:
            found.append(table_of(_title(fields), group, (*_words(group), *fields, "seeds")))
    return [table for table in found if table.rows]


def _groups(rows: Sequence[Row]) -> list[list[Row]]:
    """Split rows that tell different things: by the words and settings that they have."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(name for name in _words([row]) if name != "snr_db"), []).append(row)
    return list(groups.values())


def _words(rows: Sequence[Row]) -> list[str]:
    """Return the fields that tell these rows from each other."""
    names = dict.fromkeys(k for row in rows for k, v in row.items() if isinstance(v, str) or k in SETTINGS)
    first = [name for name in verdicts.SPEAKING if name in names]
    return first + [name for name in names if name not in (*first, "seeds")]


def _title(fields: Sequence[str]) -> str:
    return " · ".join(label_of(name)[0].upper() + label_of(name)[1:] for name in fields[:2])


def _by_snr(every: Expected, rows: Sequence[Row], name: str) -> Table:
    """Put the SNRs beside each other; below each row, what the paper prints for it."""
    labels = [word for word in _words(rows) if word != "snr_db" and len({row.get(word) for row in rows}) > 1]
    snrs = sorted({row["snr_db"] for row in rows if row.get("snr_db") is not None})
    columns = {label: label_of(label) for label in labels} | {"none": "no noise"} | {_at(s): f"{s:g} dB" for s in snrs}
    lines: dict[tuple[Any, ...], Row] = {}
    printed: dict[tuple[Any, ...], Row] = {}
    of_paper: Callable[[Row], Any] = PAPER.get(every.result.name, lambda row: None)
    for row in rows:
        key, place = tuple(row.get(label) for label in labels), _at(row.get("snr_db"))
        line = lines.setdefault(key, dict(zip(labels, key, strict=True)))
        if name in row:
            line |= {place: row[name], f"{place}_std": row.get(f"{name}_std")}
        if name == every.fields[0] and of_paper(row) is not None:
            paper_line = printed.setdefault(
                key, dict(zip(labels, key, strict=True)) | {labels[0]: f"{key[0]}, the paper"}
            )
            paper_line |= {place: of_paper(row)}
    if not any("none" in line for line in lines.values()):
        del columns["none"]
    shown = [
        line for key in lines for line in (lines[key], printed.get(key)) if line is not None and len(line) > len(labels)
    ]
    return Table(_title([name]), columns, shown, paper.NOTE if printed else "")


def _at(snr_db: float | None) -> str:
    return "none" if snr_db is None else f"{snr_db:g}"


def figure_of(every: Expected) -> Figure | None:
    """Draw the first field of a result: over SNR as lines, otherwise as bars; None where there is nothing to draw."""
    if every.result.name == "batch_norm":
        return table_one.beside_table_one(every.rows)
    if every.result.name == "codes":
        return codes.errors(every.rows)
    if every.result.name == "receivers":
        return receivers.accuracies(every.rows)
    if not every.fields:
        return None
    rows, name = _groups(every.rows)[0], every.fields[0]
    noisy = [row for row in rows if row.get("snr_db") is not None]
    labels = [word for word in _words(rows) if word != "snr_db" and len({row.get(word) for row in rows}) > 1]
    if "codebook" in labels and "decoder" in labels:
        labels.remove("codebook")
    if len({row["snr_db"] for row in noisy}) < 2:
        return bars_of(rows, labels[0], labels[1:], name, every.result.title) if labels else None
    clean = {row[labels[0]]: row[name] for row in rows if row.get("snr_db") is None}
    series = series_of(noisy, labels, "snr_db", name)
    share = SHARE if name == "count_accuracy" else _axis([row[name] for row in rows if name in row], name)
    return lines_of(
        series, label_of("snr_db"), label_of(name), every.result.title, references=clean or None, limits=share
    )


NARROWEST = 0.1
"""Points of test accuracy that an axis shows at least: a difference that does not matter shall not look large."""


def _axis(values: Sequence[float], name: str) -> tuple[float, float] | None:
    """Return the ends of an axis, wide enough for a test accuracy; None leaves them to the data."""
    if name != "test_accuracy_last5":
        return None
    middle, half = (min(values) + max(values)) / 2, max(max(values) - min(values), NARROWEST) / 2
    return middle - 1.1 * half, middle + 1.1 * half


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

BLOCK = re.compile(r"(<!-- (?P<scale>\w+)/(?P<name>\w+)(?P<choice>[^>]*?) -->\n).*?(<!-- end -->)", re.DOTALL)
"""`<!-- desktop/batch_norm test_accuracy_last5 uplink=amp-da norm=batch -->`: a table of the rows that have
these words; several fields, divided by commas, stand beside each other."""


def _with_blocks(docs: Path, everything: Sequence[Expected]) -> dict[Path, str]:
    """Return the pages that have blocks, each block with its table."""
    known = {(every.scale.name, every.result.name): every for every in everything}
    found = {}
    for page in sorted([docs.parent / "README.md", *docs.rglob("*.md")]):
        text = page.read_text(encoding="utf-8") if page.exists() else ""
        filled = BLOCK.sub(lambda match: f"{match[1]}\n{_block(known, match)}\n\n{match[5]}", text)
        if BLOCK.search(text):
            found[page] = filled
    return found


def _block(known: dict[tuple[str, str], Expected], match: re.Match[str]) -> str:
    every = known[match["scale"], match["name"]]
    first, *conditions = match["choice"].split()
    fields, wanted = first.split(","), dict(condition.split("=", 1) for condition in conditions)
    rows = [row for row in every.rows if fields[0] in row and all(_fits(row.get(k), v) for k, v in wanted.items())]
    if len(fields) == 1 and sum(row.get("snr_db") is not None for row in rows) > 1:
        return "\n".join(_lines(_by_snr(every, rows, fields[0])))
    names = [word for word in _words(rows) if len({row.get(word) for row in rows}) > 1]
    return "\n".join(_lines(table_of("", rows, (*names, *fields))))


def _fits(value: Any, wanted: str) -> bool:
    return str(value) in wanted.split(",")
