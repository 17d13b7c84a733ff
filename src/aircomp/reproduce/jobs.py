"""Units of work whose results are kept: a job that is done is never done again, whoever asks for it.

A job is described by plain values, by the jobs it needs, and by the versions of its kind and preset. The hash of that
description names its file, so two tables that need the same training share it, and a run that was killed goes on with what
is missing. A change of the code that changes results raises a version, and what was kept is not taken for the new.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from aircomp.common.artefact import config_hash, read_json, read_toml, write_json
from aircomp.common.interrupt import deferred
from aircomp.common.results import plain
from aircomp.engines.pool import workers
from aircomp.errors import ArtefactError
from aircomp.measure.fields import with_current_names

Payload = dict[str, Any]

VERSIONS = {
    "simulate": 2,
    "treatments": 3,
    "central": 1,
    "scaled": 1,
    "disturbed": 1,
    "bias": 1,
    "exchanged": 1,
    "faded": 2,
    "collect": 1,
    "pretrain": 3,
    "evaluate": 4,
    "geometry": 2,
    "quantize": 1,
    "digits": 2,
    "cifar10": 2,
    "cifar10-collect": 1,
    "cifar10-desktop": 2,
    "cifar10-laptop": 2,
    "default": 1,
    "authors": 1,
    "paper": 2,
    "round": 1,
    "short": 1,
    "zoo": 1,
    "amp-da": 2,
    "amp-da-net": 2,
    "gamp-net": 3,
    "analog": 2,
    "matched": 3,
    "rate": 4,
}
"""Of each kind of job, each preset, and uplinks that have changed: raise it with a change that changes results;
`tests/reproduce/test_versions.py` says when."""


@dataclass(frozen=True, repr=False)
class Job:
    """Something to compute once."""

    kind: str
    """Which function of `work.py` does it."""
    params: dict[str, Any] = field(hash=False)
    """What it is told: values that JSON can hold; those of NumPy and paths become such."""
    needs: tuple["Job", ...] = ()
    """Jobs whose files it reads."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", plain(self.params))

    @property
    def key(self) -> str:
        """Name of the job, the same for the same work by the same code."""
        described = [self.kind, self.params, [need.key for need in self.needs]]
        versions = [VERSIONS.get(name, 1) for name in (self.kind, self.params.get("preset", ""))]
        uplink = VERSIONS.get(self._uplink, 1)
        versions += [] if uplink == 1 else [uplink]
        if versions != [1, 1]:  # jobs that were kept before there were versions are of the first
            described.append(versions)
        text = json.dumps(described, sort_keys=True)
        return f"{self.kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    @property
    def _uplink(self) -> str:
        """Name of the scheme that the job sends with, if any, or of the energies or sizes that it has."""
        uplink = self.params.get("uplink") or self.params.get("settings", {})
        if isinstance(uplink, str):
            return uplink
        uplink = {path.removeprefix("uplink."): value for path, value in uplink.items()}
        if uplink.get("rate") == "auto":
            return "rate"
        return "matched" if uplink.get("energy") == "matched" else str(uplink.get("name", uplink.get("uplink", "")))

    def __repr__(self) -> str:
        return self.key

    def payload(self, work: Path) -> Payload | None:
        """Return what the job found, or None if it has not been done."""
        path = self.path(work)
        if not os.path.lexists(path):
            return None
        found = read_json(path)
        rows = found.get("rows") if isinstance(found, dict) else None
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ArtefactError(f"{path} is not the result of a job; delete it to compute it anew")
        return found | {"rows": [with_current_names(row, summary=True) for row in rows]}

    def done(self, work: Path) -> Payload:
        """Return what the job found, once it has been done."""
        found = self.payload(work)
        assert found is not None  # run_jobs has returned
        return found

    def path(self, work: Path) -> Path:
        """Return the file of what the job found."""
        return work / f"{self.key}.json"

    def directory(self, work: Path) -> Path:
        """Return where the job keeps what is more than numbers: fragments, a layer."""
        return work / self.key


def preset_params(preset: str | Path) -> dict[str, str]:
    """Return what a job is told of a preset: its name, and of a user's own file a hash of what it says."""
    name = str(preset)
    return {"preset": name} | ({"preset_hash": config_hash(read_toml(Path(name)))} if name.endswith(".toml") else {})


def in_order(jobs: Iterable[Job]) -> list[Job]:
    """Return the jobs and all they need, each once, needs first."""
    found: dict[str, Job] = {}

    def visit(job: Job) -> None:
        for need in job.needs:
            visit(need)
        found.setdefault(job.key, job)

    for job in jobs:
        visit(job)
    return list(found.values())


Runner = Callable[[Job, Path], Payload]


@dataclass(frozen=True)
class Crew:
    """Who does the jobs: processes of this machine, or a Ray cluster that sees the same files."""

    workers: int = 1
    """Jobs at a time; one process does them itself, and on Ray 0 means one for each core of the cluster."""
    engine: Literal["processes", "ray"] = "processes"
    ray_address: str = ""
    """HOST:PORT of the cluster; empty: Ray is started on this machine."""


ALONE = Crew()


def run_jobs(
    jobs: Sequence[Job],
    work: Path,
    run: Runner,
    crew: Crew = ALONE,
    on_job: Callable[[Job, int, int], None] | None = None,
) -> None:
    """Do what is missing of some jobs, several at a time.

    Args:
        jobs: What is wanted; what they need is done first.
        work: Where results are kept.
        run: Does one job.
        crew: Who does them.
        on_job: Called after each job with the number done and the number of all.
    """
    everything = in_order(jobs)
    missing = [job for job in everything if job.payload(work) is None]
    done = len(everything) - len(missing)
    do = partial(do_job, work=work.resolve(), run=run)
    if crew.engine == "ray":
        finished = _on_ray(missing, do, crew)
    else:
        finished = _here(missing, do) if crew.workers == 1 else _in_processes(missing, do, crew.workers)
    for job in finished:
        done += 1
        if on_job:
            with deferred():
                on_job(job, done, len(everything))


def do_job(job: Job, work: Path, run: Runner) -> None:
    """Do one job and keep what it found, all of it or nothing; numbers that are not finite become null."""
    begun = time.perf_counter()
    found = run(job, work)
    about = {"kind": job.kind, "params": job.params, "seconds": round(time.perf_counter() - begun, 1)}
    write_json(job.path(work), plain(about | found))


Do = Callable[[Job], None]


def _here(missing: Sequence[Job], do: Do) -> Iterator[Job]:
    for job in missing:
        do(job)
        yield job


def _in_processes(missing: Sequence[Job], do: Do, number: int) -> Iterator[Job]:
    """Keep all workers busy with jobs whose needs are done; what a killed one was at is done again later."""
    waiting, running, unfinished = list(missing), {}, {job.key for job in missing}
    number = max(min(number, len(missing)), 1)
    with workers(number) as crew:
        while waiting or running:
            ready = [job for job in waiting if not any(n.key in unfinished for n in in_order(job.needs))]
            for job in ready[: number - len(running)]:
                waiting.remove(job)
                running[crew.submit(do, job)] = job
            for future in crew.finished(running):
                job = running.pop(future)
                future.result()
                unfinished.discard(job.key)
                yield job


def _on_ray(missing: Sequence[Job], do: Do, crew: Crew) -> Iterator[Job]:
    """Spread jobs over a cluster, those that need nothing undone first; a job whose node dies is done again."""
    from aircomp.engines.ray import map_jobs

    waiting, unfinished = list(missing), {job.key for job in missing}
    while waiting:
        ready = [job for job in waiting if not any(n.key in unfinished for n in in_order(job.needs))]
        for job, _ in map_jobs(do, ready, crew.ray_address, crew.workers):
            yield job
        waiting = [job for job in waiting if job not in ready]
        unfinished -= {job.key for job in ready}
