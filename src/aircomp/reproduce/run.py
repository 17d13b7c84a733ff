"""Run results: their jobs first, all in one pool, then each result's page."""

from collections.abc import Callable, Sequence
from pathlib import Path

from aircomp.report.page import write_page
from aircomp.reproduce.catalogue import Outcome, Result
from aircomp.reproduce.jobs import ALONE, Crew, Job, Payload, run_jobs
from aircomp.reproduce.page import section, write_outcome
from aircomp.reproduce.scales import Scale
from aircomp.reproduce.work import run_job


def reproduce(
    results: Sequence[Result],
    scale: Scale,
    seeds: Sequence[int],
    out: Path,
    crew: Crew = ALONE,
    on_job: Callable[[Job, int, int], None] | None = None,
) -> dict[str, Outcome]:
    """Run some results at a scale; what `out` already holds is not computed again.

    Args:
        results: Which tables and figures.
        scale: How large.
        seeds: Every job is run once for each.
        out: Gets `work/` with the jobs' results; a directory for each result, or with one result its files.
        crew: Who does the jobs.
        on_job: Called after each job.
    """
    work = out / "work"
    wanted = {result.name: result.jobs(scale, seeds) for result in results}
    jobs = [job for pairs in wanted.values() for _, job in pairs]
    run_jobs(jobs, work, run_job, crew, on_job)
    outcomes, sections = {}, []
    for result in results:
        found = [(fields, _done(job, work)) for fields, job in wanted[result.name]]
        folder = "" if len(results) == 1 else f"{result.name}/"
        outcome = write_outcome(result, scale, seeds, found, out / folder)
        outcomes[result.name] = outcome
        sections.append(section(result, scale, seeds, outcome, folder))
    if len(results) > 1:
        lead = f"Every table and figure at the scale {scale.name}: {scale.what}."
        write_page(out / "report.html", "Reproduction", sections, lead=lead)
    return outcomes


def _done(job: Job, work: Path) -> Payload:
    payload = job.payload(work)
    assert payload is not None  # run_jobs has returned
    return payload
