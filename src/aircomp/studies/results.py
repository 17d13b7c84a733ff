"""Results of the paper and ours: their jobs in one pool, then the rows, page and verdicts of each."""

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from aircomp.common.artefact import read_json, write_json
from aircomp.common.outdir import open_directory
from aircomp.common.results import Row, write_result
from aircomp.common.tensors import check_device
from aircomp.data.files import check_there
from aircomp.errors import ArtefactError
from aircomp.federation.experiment import load_experiment
from aircomp.report.page import Section, Table, write_figures, write_page
from aircomp.studies.expected import deviations, expectation_of, expected, measured, write_expected
from aircomp.studies.jobs import (
    SERIAL,
    Forecast,
    Job,
    OnJob,
    Workers,
    forecast,
    in_order,
    known_seconds,
    run_jobs,
    seconds_by_kind,
    source_hash,
)
from aircomp.studies.kinds import job_of, run_job
from aircomp.studies.scales import Scale
from aircomp.studies.shown import Found, extras_of, figures_of, tables_of
from aircomp.studies.study import RESULTS, Measurement, Result, Source
from aircomp.studies.summary import over_seeds
from aircomp.studies.verdicts import TITLES, claim_tables, judge


@dataclass(frozen=True)
class Asked:
    """A measurement of a result, and its jobs with the fields that identify them."""

    measurement: Measurement
    jobs: list[tuple[Row, Job]]


def asked_of(name: str, scale: Scale, seeds: Sequence[int]) -> list[Asked]:
    """Return what a result measures at a scale, with some seeds."""
    result = RESULTS.load(name)
    seeds = seeds[: result.seeds] if result.seeds else seeds
    return [
        Asked(each, [(row, job_of(each.kind, scale, s, told)) for s in seeds for row, told in each.places(scale.name)])
        for each in RESULTS.measurements(name, scale.name)
    ]


def jobs_of(name: str, scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    """Return every job of a result with the fields that identify it."""
    return [pair for asked in asked_of(name, scale, seeds) for pair in asked.jobs]


def rows_of(asked: Sequence[Asked], work: Path) -> list[Row]:
    """Return the rows of a result: means over seeds of what its jobs found."""
    parts: list[tuple[Measurement, dict[str, None], Found]] = []
    for each in asked:
        found: Found = []
        for about, job in each.jobs:
            payload = job.done(work)
            kept = [row for row in payload["rows"] if all(row.get(k) in v for k, v in each.measurement.keep.items())]
            found.append((about, payload | {"rows": kept}))
        by = dict.fromkeys((*each.measurement.over, *each.measurement.by))
        if each.measurement.fields or not parts:
            parts.append((each.measurement, by, found))
        else:  # rows of the measurement before
            first, axes, before = parts[-1]
            parts[-1] = first, axes | by, before + found
    rows = []
    for measurement, by, found in parts:
        rows += over_seeds(found, _ordered(by), measurement.fields)
    return rows


def _ordered(by: Iterable[str]) -> list[str]:
    """Put the SNR last, as people read."""
    return sorted(by, key=lambda name: name == "snr_db")


def forecast_of(names: Sequence[str], scale: Scale, seeds: Sequence[int], work: Path) -> Forecast:
    """Return what some results will cost: jobs of one kind take as long as they took in the same result."""
    measured = {name: (expected(scale.name, name) or {}).get("seconds_by_kind", {}) for name in RESULTS.at(scale.name)}
    elsewhere = {kind: seconds for each in measured.values() for kind, seconds in each.items()}
    known: dict[str, float] = {}
    wanted: list[Job] = []
    for name in names:
        jobs = [job for _, job in jobs_of(name, scale, seeds)]
        known = known_seconds(jobs, elsewhere | measured.get(name, {})) | known
        wanted += jobs
    return forecast(wanted, work, known)


def reproduce(
    names: Sequence[str],
    scale: Scale,
    seeds: Sequence[int],
    out: Path,
    crew: Workers = SERIAL,
    on_job: OnJob | None = None,
    device: str = "cpu",
    on_start: Callable[[Forecast], None] | None = None,
) -> dict[str, list[Row]]:
    """Run some results at a scale; what `out` already holds is not computed again.

    Args:
        names: Which tables and figures.
        scale: How large.
        seeds: Every job is run once for each.
        out: Gets `work/` with the jobs' results; a directory for each result, or with one result its files.
        crew: Who does the jobs.
        on_job: Called after each job.
        device: Where jobs compute, cpu or cuda. A job that is kept from one is taken for that of the other.
        on_start: Called before the first job, once `out` can be written to.

    Raises:
        ArtefactError: If a dataset is not there; nothing has been run or written then.
    """
    work = out / "work"
    check_wanted(names, scale, seeds, work, device)
    wanted = {name: asked_of(name, scale, seeds) for name in names}
    jobs = [job for asked in wanted.values() for each in asked for _, job in each.jobs]
    folders = {name: out if len(names) == 1 else out / name for name in names}
    with contextlib.ExitStack() as held:
        for folder in dict.fromkeys([out, *folders.values()]):
            held.enter_context(open_directory(folder, "reproduce"))
        _check_scale(out, scale)
        if on_start:
            on_start(forecast_of(names, scale, seeds, work))
        run_jobs(jobs, work, partial(run_job, device=device), crew, on_job)
        shown = {name: _write(name, scale, seeds, wanted[name], folders[name], work) for name in names}
        if len(names) > 1:
            _write_all(out, scale, seeds, shown)
        return {name: rows for name, (rows, _) in shown.items()}


def check_wanted(names: Sequence[str], scale: Scale, seeds: Sequence[int], work: Path, device: str = "cpu") -> None:
    """Raise unless the datasets of what is still to be done are there, and the device."""
    check_device("device", device)
    jobs = in_order(job for name in names for _, job in jobs_of(name, scale, seeds))
    check_data(job for job in jobs if job.payload(work) is None)


def check_data(jobs: Iterable[Job]) -> None:
    """Raise unless the datasets of all presets that jobs run are there."""
    presets = {job.params["preset"] for job in jobs if "files" in job.params}
    for name in sorted({load_experiment(preset).data.name for preset in presets}):
        check_there(name)


def _check_scale(out: Path, scale: Scale) -> None:
    """Keep one scale to a directory: the tables of two would be mixed."""
    path = out / "scale.json"
    if os.path.lexists(path) and read_json(path) != {"scale": scale.name}:
        raise ArtefactError(f"{out} holds a reproduction at another scale; choose another --out")
    write_json(path, {"scale": scale.name})


def judged(result: Result, rows: Sequence[Row], scale: Scale) -> dict[Source, list[Row]]:
    """Judge the claims about a result, by who says them."""
    return {source: judge(result.claims, rows, scale, source) for source in TITLES}


# ── pages ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _write(
    name: str, scale: Scale, seeds: Sequence[int], asked: Sequence[Asked], out: Path, work: Path
) -> tuple[list[Row], Section]:
    """Write one result's directory; return its rows and its part of a page."""
    result, rows = RESULTS.load(name), rows_of(asked, work)
    jobs = [pair for each in asked for pair in each.jobs]
    config = {"result": name, "scale": scale.name, "seeds": list(seeds)} | _made_of([job for _, job in jobs], work)
    write_result(out / "result.json", f"reproduce {name}", config, seeds[0], rows)
    figures, tables = extras_of(result, rows, [(about, job.done(work)) for about, job in jobs])
    drawn = (*figures_of(result, rows), *figures)
    links = {"result.json": "result.json"} | write_figures(out, drawn)
    text = f"{result.statement} Here: {scale.what}; {len(seeds)} seeds, mean ± standard deviation; "
    text += f"{config['core_seconds'] / 60:.0f} minutes on one core. {config['remark']}{_beside_expected(name, scale, rows)}"
    section = Section(
        result.title,
        text,
        drawn,
        (*tables_of(result, rows), *tables, *claim_tables(judged(result, rows, scale))),
        (f"aircomp reproduce {name} --scale {scale.name} --seeds {len(seeds)}",),
        links,
        config,
    )
    write_page(out / "report.html", result.title, [section])
    return rows, section


def _beside_expected(name: str, scale: Scale, rows: Sequence[Row]) -> str:
    before = expected(scale.name, RESULTS.home(name))
    if before is None:
        return ""
    outside = deviations(rows, before["rows"])
    said = "all within the bands." if not outside else f"{len(outside)} numbers out of band: {'; '.join(outside)}"
    return f" Beside what was measured for version {before['version']}: {said}"


def _made_of(jobs: Sequence[Job], work: Path) -> dict[str, Any]:
    """Return the time that all jobs of a result took, shared ones included, and the settings that each kind was given."""
    everything = in_order(jobs)
    found = [job.done(work) for job in everything]
    kinds: dict[str, dict[str, list[Any]]] = {}
    for job in everything:
        seen = kinds.setdefault(job.kind, {})
        for name, value in ({"preset": job.params.get("preset")} | job.params.get("settings", {})).items():
            values = seen.setdefault(name, [])
            if value is not None and value not in values:
                values.append(value)
    older = sum(payload["source"] != source_hash() for payload in found)
    remark = f"{older} of {len(found)} jobs were computed by other code of this version. " if older else ""
    seconds = round(sum(payload["seconds"] for payload in found), 1)
    return {"core_seconds": seconds, "jobs": len(everything), "remark": remark, "settings": kinds}


def _write_all(out: Path, scale: Scale, seeds: Sequence[int], shown: Mapping[str, tuple[list[Row], Section]]) -> None:
    """Write the page of all results: what became of the paper's claims and of ours, then everything."""
    verdicts: dict[Source, list[Row]] = {source: [] for source in TITLES}
    for name, (rows, _) in shown.items():
        for source, found in judged(RESULTS.load(name), rows, scale).items():
            verdicts[source] += [{"result": name} | row for row in found]
    first = Section(
        "Claims",
        f"{len(seeds)} seeds, mean ± standard deviation. Every number has its section below.",
        shown["fed_accuracy"][1].figures[:1] if "fed_accuracy" in shown else (),
        claim_tables(verdicts, {"result": "result"}),
        (f"aircomp reproduce all --scale {scale.name} --seeds {len(seeds)}",),
    )
    lead = f"The tables and figures of the paper, and ours beside them, at the scale {scale.name}: {scale.what}."
    sections = [
        replace(part, links={label: f"{name}/{path}" for label, path in part.links.items()})
        for name, (_, part) in shown.items()
    ]
    write_page(out / "report.html", "Reproduction", [first, *sections], lead=lead)


def tables_to_print(name: str, rows: Sequence[Row]) -> list[Table]:
    """Return what the command line shows of a result."""
    return tables_of(RESULTS.load(name), rows)[:2]


def update_expected(name: str, scale: Scale, seeds: Sequence[int], finished: Path, work: Path) -> Path:
    """Take a finished result as the expected one; return the file.

    Args:
        name: Which one; of a result that has all measurements of another, that other one.
        scale: The scale that it was run at.
        seeds: The seeds that it was run with.
        finished: The directory with its `result.json`.
        work: Where its jobs are.
    """
    told = read_json(finished / "result.json")
    about = {"version": told["version"], "environment": told["environment"]}
    about |= {"core_seconds": told["config"]["core_seconds"]}
    about |= {"seconds_by_kind": seconds_by_kind([job for _, job in jobs_of(name, scale, seeds)], work)}
    rows = [expectation_of(row) for row in told["rows"] if measured(row)]
    return write_expected(scale.name, RESULTS.home(name), about, rows)
