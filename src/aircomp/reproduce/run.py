"""Run results: their jobs first, all in one pool, then each result's page."""

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from aircomp.common.artefact import read_json, write_json
from aircomp.common.outdir import open_directory
from aircomp.data.images import check_there
from aircomp.errors import ArtefactError
from aircomp.fl.experiment import load_experiment
from aircomp.reproduce.catalogue import Result
from aircomp.reproduce.jobs import ALONE, Crew, Job, in_order, run_jobs
from aircomp.reproduce.page import write_all, write_outcome
from aircomp.reproduce.parts import Outcome
from aircomp.reproduce.scales import Scale
from aircomp.reproduce.work import run_job


def reproduce(
    results: Sequence[Result],
    scale: Scale,
    seeds: Sequence[int],
    out: Path,
    crew: Crew = ALONE,
    on_job: Callable[[Job, int, int], None] | None = None,
    device: str = "cpu",
) -> dict[str, Outcome]:
    """Run some results at a scale; what `out` already holds is not computed again.

    Args:
        results: Which tables and figures.
        scale: How large.
        seeds: Every job is run once for each.
        out: Gets `work/` with the jobs' results; a directory for each result, or with one result its files.
        crew: Who does the jobs.
        on_job: Called after each job.
        device: Where jobs compute, cpu or cuda. A job that is kept from one is taken for that of the other.

    Raises:
        ArtefactError: If a dataset is not there; nothing has been run or written then.
    """
    work = out / "work"
    wanted = {result.name: result.jobs(scale, seeds) for result in results}
    jobs = [job for pairs in wanted.values() for _, job in pairs]
    check_data(job for job in in_order(jobs) if job.payload(work) is None)
    folders = {result.name: out if len(results) == 1 else out / result.name for result in results}
    with contextlib.ExitStack() as held:
        for folder in dict.fromkeys([out, *folders.values()]):
            held.enter_context(open_directory(folder, "reproduce"))
        _check_scale(out, scale)
        run_jobs(jobs, work, partial(run_job, device=device), crew, on_job)
        shown = {}
        for result in results:
            folder = folders[result.name]
            shown[result.name] = write_outcome(result, scale, seeds, wanted[result.name], folder, work)
        if len(results) > 1:
            write_all(out, scale, seeds, shown)
        return {name: outcome for name, (outcome, _) in shown.items()}


def check_data(jobs: Iterable[Job]) -> None:
    """Raise unless the datasets of all presets that jobs run are there."""
    presets = {job.params["preset"] for job in jobs if job.kind in ("simulate", "treatments", "central", "collect")}
    for name in sorted({load_experiment(preset).data.name for preset in presets}):
        check_there(name)


def _check_scale(out: Path, scale: Scale) -> None:
    """Keep one scale to a directory: the tables of two would be mixed."""
    path = out / "scale.json"
    if os.path.lexists(path) and read_json(path) != {"scale": scale.name}:
        raise ArtefactError(f"{out} holds a reproduction at another scale; choose another --out")
    write_json(path, {"scale": scale.name})
