"""result.json and report.html of a finished result, and one page for all of them."""

from collections.abc import Sequence
from pathlib import Path

from aircomp import results
from aircomp.report.page import Section, write_page
from aircomp.reproduce.catalogue import Found, Outcome, Result
from aircomp.reproduce.scales import Scale


def write_outcome(result: Result, scale: Scale, seeds: Sequence[int], found: Found, out: Path) -> Outcome:
    """Write one result's directory."""
    outcome = result.present(scale, found)
    config = {"result": result.name, "scale": scale.name, "seeds": list(seeds)}
    results.write_result(out / "result.json", f"reproduce {result.name}", config, seeds[0], outcome.rows)
    write_page(out / "report.html", result.title, [section(result, scale, seeds, outcome)])
    return outcome


def section(result: Result, scale: Scale, seeds: Sequence[int], outcome: Outcome, folder: str = "") -> Section:
    """Return the part of a page that shows one result."""
    return Section(
        result.title,
        f"The paper: {result.claim} Here: {scale.what}; {len(seeds)} seeds, mean ± standard deviation.",
        outcome.figures,
        outcome.tables,
        (f"aircomp reproduce {result.name} --scale {scale.name} --seeds {len(seeds)}",),
        {"result.json": f"{folder}result.json"},
    )
