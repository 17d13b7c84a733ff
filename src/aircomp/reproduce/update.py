"""Take a finished result as the expected one, and write it where the docs show it.

    src/aircomp/reproduce/expected/SCALE/NAME.json    its numbers with their bands
    docs/tables/SCALE/NAME.md                         its tables, and what became of the paper's claims
    docs/figures/NAME.svg, SCALE-NAME.svg             its first figure (at `digits` without the scale), if a page shows it

`aircomp reproduce NAME --update-expected` does so, `make expected` for all results.
"""

from importlib import resources
from pathlib import Path

from aircomp.common.artefact import read_json, write_json, write_text
from aircomp.errors import ConfigError
from aircomp.report.page import Table, cell_text, standalone_svg
from aircomp.reproduce import expected
from aircomp.reproduce.catalogue import Result
from aircomp.reproduce.page import tables_of
from aircomp.reproduce.parts import Outcome
from aircomp.reproduce.scales import Scale


def docs_folder() -> Path:
    """Return the docs of the source that this package runs from."""
    docs = Path(str(resources.files("aircomp"))).parents[1] / "docs"
    if not docs.is_dir():
        raise ConfigError(
            "--update-expected rewrites files of the source, but this package has none beside it; use a clone and make env"
        )
    return docs


def update_expected(result: Result, scale: Scale, outcome: Outcome, finished: Path, docs: Path) -> list[Path]:
    """Write a result's expectation, tables and figure; return the files.

    Args:
        result: Which one.
        scale: The scale that it was run at.
        outcome: What came out.
        finished: The directory with its `result.json`.
        docs: Where tables and figures go.
    """
    measured = read_json(finished / "result.json")
    numbers = expected.folder(scale.name) / f"{result.name}.json"
    write_json(numbers, expected.expectation_of(measured))
    tables = docs / "tables" / scale.name / f"{result.name}.md"
    write_text(tables, page_of(result, scale, outcome, len(measured["config"]["seeds"])))
    figure = docs / "figures" / f"{'' if scale.name == 'digits' else f'{scale.name}-'}{result.name}.svg"
    if not outcome.figures or not _is_shown(figure.name, docs):
        return [numbers, tables]
    write_text(figure, standalone_svg(outcome.figures[0]))
    return [numbers, tables, figure]


def page_of(result: Result, scale: Scale, outcome: Outcome, seeds: int) -> str:
    """Return the tables of a result as Markdown."""
    command = f"aircomp reproduce {result.name} --scale {scale.name} --seeds {seeds} --update-expected"
    parts = [f"# {result.title}", f"Made by `{command}`: {scale.what}.", f"The paper: {result.claim}"]
    return "\n\n".join([*parts, *(markdown(table) for table in tables_of(result, scale, outcome) if table.rows)]) + "\n"


def markdown(table: Table) -> str:
    """Return a table as Markdown, with its title and note."""
    cells = [list(table.columns.values()), ["---"] * len(table.columns)]
    cells += [[cell_text(row.get(n), row.get(f"{n}_std")) for n in table.columns] for row in table.rows]
    lines = ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in cells]
    return "\n".join([f"## {table.title}", "", *lines, *(["", table.note] if table.note else [])])


def _is_shown(figure: str, docs: Path) -> bool:
    return any(f"figures/{figure}" in page.read_text(encoding="utf-8") for page in docs.glob("*.md"))
