"""result.json and report.html of a finished result, and one page for all of them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from aircomp.common import results
from aircomp.common.results import Row
from aircomp.report.page import Section, Table, write_figures, write_page
from aircomp.reproduce import claims, verdicts
from aircomp.reproduce.catalogue import Result
from aircomp.reproduce.expected import deviations, expected
from aircomp.reproduce.jobs import Job, in_order
from aircomp.reproduce.parts import Found, Outcome
from aircomp.reproduce.scales import Scale


def write_outcome(
    result: Result, scale: Scale, seeds: Sequence[int], jobs: Sequence[tuple[Row, Job]], out: Path, work: Path
) -> tuple[Outcome, Section]:
    """Write one result's directory; return what it shows and its part of a page."""
    found: Found = [(fields, job.done(work)) for fields, job in jobs]
    outcome = result.present(scale, found)
    config = {"result": result.name, "scale": scale.name, "seeds": list(seeds)} | _made_of(jobs, work)
    results.write_result(out / "result.json", f"reproduce {result.name}", config, seeds[0], outcome.rows)
    links = {"result.json": "result.json"} | write_figures(out, outcome.figures)
    section = _section(result, scale, seeds, outcome, config, links)
    write_page(out / "report.html", result.title, [section])
    return outcome, section


def write_all(out: Path, scale: Scale, seeds: Sequence[int], shown: dict[str, tuple[Outcome, Section]]) -> None:
    """Write the page of all results: what became of the paper's claims and of ours, then everything."""
    judged: dict[verdicts.Source, list[Row]] = {
        source: [
            {"result": name} | row
            for name, (outcome, _) in shown.items()
            for row in verdicts.judge(claims.CLAIMS[name], outcome.rows, scale, source)
        ]
        for source in verdicts.TITLES
    }
    headline = shown["fed_accuracy"][0] if "fed_accuracy" in shown else None
    first = Section(
        "Claims",
        f"{len(seeds)} seeds, mean ± standard deviation. Every number has its section below.",
        headline.figures[:1] if headline else (),
        verdicts.claim_tables(judged, {"result": "result"}),
        (f"aircomp reproduce all --scale {scale.name} --seeds {len(seeds)}",),
    )
    lead = f"The tables and figures of the paper, and ours beside them, at the scale {scale.name}: {scale.what}."
    sections = [
        replace(part, links={label: f"{name}/{path}" for label, path in part.links.items()})
        for name, (_, part) in shown.items()
    ]
    write_page(out / "report.html", "Reproduction", [first, *sections], lead=lead)


def tables_of(result: Result, scale: Scale, outcome: Outcome) -> tuple[Table, ...]:
    """Return the tables of a result, then what became of the paper's claims about it and of ours."""
    return (*outcome.tables, *verdicts.claim_tables(judged(result, outcome.rows, scale)))


def judged(result: Result, rows: Sequence[Row], scale: Scale) -> dict[verdicts.Source, list[Row]]:
    """Judge the claims about a result, by who says them."""
    return {source: verdicts.judge(claims.CLAIMS[result.name], rows, scale, source) for source in verdicts.TITLES}


def _section(
    result: Result,
    scale: Scale,
    seeds: Sequence[int],
    outcome: Outcome,
    config: dict[str, Any],
    links: dict[str, str],
) -> Section:
    text = f"{result.statement} Here: {scale.what}; {len(seeds)} seeds, mean ± standard deviation; "
    text += f"{config['core_seconds'] / 60:.0f} minutes on one core."
    before = expected(result.name, scale.name)
    if before is not None:
        out_of_band = deviations(outcome.rows, before)
        text += f" Beside what was measured for version {before['version']}: "
        text += "all within the bands." if not out_of_band else f"{len(out_of_band)} numbers out of band: "
        text += "; ".join(out_of_band)
    return Section(
        result.title,
        text,
        outcome.figures,
        tables_of(result, scale, outcome),
        (f"aircomp reproduce {result.name} --scale {scale.name} --seeds {len(seeds)}",),
        links,
        config,
    )


def _made_of(jobs: Sequence[tuple[Row, Job]], work: Path) -> dict[str, Any]:
    """Return the time that all jobs of a result took, shared ones included, and the settings that each kind was given."""
    everything = in_order(job for _, job in jobs)
    seconds = sum(job.done(work)["seconds"] for job in everything)
    kinds: dict[str, dict[str, list[Any]]] = {}
    for job in everything:
        seen = kinds.setdefault(job.kind, {})
        for name, value in ({"preset": job.params.get("preset")} | job.params.get("settings", {})).items():
            values = seen.setdefault(name, [])
            if value is not None and value not in values:
                values.append(value)
    return {"core_seconds": round(seconds, 1), "jobs": len(everything), "settings": kinds}
