"""Take a finished result as the expected one, and write it where the docs show it.

    src/aircomp/reproduce/expected/SCALE/NAME.json    its numbers with their bands
    docs/                                             every page and figure that shows them (`docs.py`)

`aircomp reproduce NAME --update-expected` does so, `make expected` for all results.
"""

from importlib import resources
from pathlib import Path

from aircomp.common.artefact import read_json, write_json
from aircomp.errors import ConfigError
from aircomp.reproduce import expected
from aircomp.reproduce.catalogue import Result
from aircomp.reproduce.docs import write_pages
from aircomp.reproduce.scales import Scale


def docs_folder() -> Path:
    """Return the docs of the source that this package runs from."""
    docs = Path(str(resources.files("aircomp"))).parents[1] / "docs"
    if not docs.is_dir():
        raise ConfigError(
            "--update-expected rewrites files of the source, but this package has none beside it; use a clone and make env"
        )
    return docs


def update_expected(result: Result, scale: Scale, finished: Path, docs: Path) -> list[Path]:
    """Write a result's expectation, and the pages of the docs that show it; return the files.

    Args:
        result: Which one.
        scale: The scale that it was run at.
        finished: The directory with its `result.json`.
        docs: Where pages and figures go.
    """
    numbers = expected.folder(scale.name) / f"{result.name}.json"
    write_json(numbers, expected.expectation_of(read_json(finished / "result.json")))
    return [numbers, *write_pages(docs)]
