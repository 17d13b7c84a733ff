"""Units of work whose results are kept: a job that is done is never done again, whoever asks for it.

A job is known by its content: what it does with which settings and data, the jobs it needs, the version of this package, and
what computes (`aircomp.common.arithmetic`). The hash of that names its file. The file repeats the key and has a checksum;
a file that was swapped, cut or edited is refused. A run that was killed goes on with what is missing.
"""

import hashlib
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import aircomp
from aircomp.common.arithmetic import arithmetic_identity
from aircomp.common.artefact import config_hash, read_json, read_toml, write_json
from aircomp.common.checks import describe
from aircomp.common.interrupt import deferred
from aircomp.common.results import Row, plain
from aircomp.data.files import data_directory, locate
from aircomp.engines.pool import workers
from aircomp.errors import AirCompError, ArtefactError
from aircomp.federation.experiment import load_experiment

Payload = dict[str, Any]
"""What a job found: `rows`, and what else its kind says."""
WHOLE_BYTES = 2**20
"""Data files up to this size are hashed whole; of larger ones the size, and as much of their beginning and end."""


# ── identity ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def source_hash() -> str:
    """Return a hash of this package's code, which a job's file keeps: who changes code sees what older code computed."""
    root = Path(str(resources.files("aircomp")))
    return content_hash(*sorted(path for kind in ("*.py", "*.c") for path in root.rglob(kind)))


def content_hash(*files: Path) -> str:
    """Return a hash of the content of some files; see `WHOLE_BYTES`."""
    digest = hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        with path.open("rb") as file:
            digest.update(f"{size}".encode() + file.read(WHOLE_BYTES))
            if size > WHOLE_BYTES:
                file.seek(max(WHOLE_BYTES, size - WHOLE_BYTES))
                digest.update(file.read())
    return digest.hexdigest()[:16]


@cache
def data_hash(name: str, root: Path) -> str:
    """Return a hash of a dataset's files; of one that is not there, nothing."""
    place = locate(name, root)
    files = sorted(p for p in place.rglob("*") if p.is_file()) if place and place.is_dir() else [place] if place else []
    return content_hash(*files) if files else ""


def run_params(preset: str | Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a job is told of a run: preset and settings, and hashes of the files that they name.

    Args:
        preset: A name, or a user's own TOML file.
        settings: By path.
    """
    name, files = str(preset), {}
    if name.endswith(".toml"):
        files["preset"] = config_hash(read_toml(Path(name)))
    data = settings.get("data.name") or load_experiment(preset).data.name
    files[f"data {data}"] = data_hash(data, data_directory())
    for path in ("uplink.layer", "start", "channel.gains"):
        given = Path(str(settings.get(path) or ""))
        if settings.get(path) and given.exists():
            inside = sorted(given.glob("*.safetensors")) if given.is_dir() else [given]
            files[path] = content_hash(*inside)
    return {"preset": name, "settings": dict(settings), "files": files}


@dataclass(frozen=True, repr=False)
class Job:
    """Something to compute once."""

    kind: str
    """Which function of `kinds.py` does it."""
    params: dict[str, Any] = field(hash=False)
    """What it is told: values that JSON can hold; those of NumPy and paths become such."""
    needs: tuple["Job", ...] = ()
    """Jobs whose files it reads."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", plain(self.params))

    @cached_property
    def key(self) -> str:
        """Name of the job: the same for the same work by the same version and arithmetic."""
        described = [
            self.kind,
            self.params,
            [need.key for need in self.needs],
            aircomp.__version__,
            arithmetic_identity(),
        ]
        text = json.dumps(described, sort_keys=True)
        return f"{self.kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def __repr__(self) -> str:
        return self.key

    def path(self, work: Path) -> Path:
        """Return the file of what the job found."""
        return work / f"{self.key}.json"

    def directory(self, work: Path) -> Path:
        """Return where the job keeps what is more than numbers: fragments, a layer."""
        return work / self.key

    def payload(self, work: Path) -> Payload | None:
        """Return what the job found, or None if it has not been done.

        Raises:
            ArtefactError: If its file is that of another job, or not as it was written.
        """
        path = self.path(work)
        return _read(path, self.key) if os.path.lexists(path) else None

    def done(self, work: Path) -> Payload:
        """Return what the job found, once it has been done."""
        found = self.payload(work)
        assert found is not None  # run_jobs has returned
        return found

    def keep(self, work: Path, found: Payload, seconds: float, **about: Any) -> None:
        """Write what the job found, all of it or nothing; numbers that are not finite become null."""
        told = {"kind": self.kind, "params": self.params, "arithmetic": arithmetic_identity(), "source": source_hash()}
        content = plain(told | about | {"seconds": round(seconds, 1)} | found)
        _check_rows(self.path(work), content)
        write_json(self.path(work), {"key": self.key, "checksum": _checksum(content)} | content)


REMEDY = "delete it to compute it anew"


def _read(path: Path, key: str) -> Payload:
    content = read_json(path)
    if not isinstance(content, dict) or not {"key", "checksum"} <= content.keys():
        raise ArtefactError(f"{path} is not the result of a job; {REMEDY}")
    if (kept := content.pop("key")) != key:
        raise ArtefactError(f"{path} holds the result of another job, {str(kept)[:80]}; {REMEDY}")
    if content.pop("checksum") != _checksum(content):
        raise ArtefactError(f"{path} was changed after it was written: its checksum does not fit; {REMEDY}")
    _check_rows(path, content)
    return content


def _checksum(content: Payload) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def _check_rows(path: Path, content: Payload) -> None:
    rows, seconds = content.get("rows"), content.get("seconds")
    if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise ArtefactError(f"{path} says that its job took {describe(seconds)} seconds; {REMEDY}")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) and _is_plain(row) for row in rows):
        raise ArtefactError(f"{path} has no rows of words and finite numbers, which every job finds; {REMEDY}")


def _is_plain(row: Row) -> bool:
    values = [v for value in row.values() for v in (value if isinstance(value, list) else [value])]
    return all(
        v is None or isinstance(v, str | bool | int) or (isinstance(v, float) and math.isfinite(v)) for v in values
    )


# ── who does them ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Workers:
    """Who does the jobs: processes of this machine, or a Ray cluster that sees the same files."""

    number: int = 1
    """Jobs at a time; one process does them itself, and on Ray 0 means one for each core of the cluster."""
    engine: Literal["processes", "ray"] = "processes"
    ray_address: str = ""
    """HOST:PORT of the cluster; empty: Ray is started on this machine."""


SERIAL = Workers()
Runner = Callable[[Job, Path], Payload]
OnJob = Callable[[Job, int, int], None]


def in_order(jobs: Iterable[Job]) -> list[Job]:
    """Return the jobs and all they need, each once, needs first."""
    found: dict[str, Job] = {}

    def visit(job: Job) -> None:
        if job.key not in found:
            for need in job.needs:
                visit(need)
            found[job.key] = job

    for job in jobs:
        visit(job)
    return list(found.values())


def run_jobs(
    jobs: Sequence[Job],
    work: Path,
    run: Runner,
    crew: Workers = SERIAL,
    on_job: OnJob | None = None,
    *,
    tolerant: bool = False,
) -> dict[str, str]:
    """Do what is missing of some jobs, several at a time.

    Args:
        jobs: What is wanted; what they need is done first.
        work: Where results are kept.
        run: Does one job.
        crew: Who does them.
        on_job: Called after each job with the number done and the number of all.
        tolerant: Whether the others go on where a job fails; nothing is kept of it, so that it is done again next time.

    Returns:
        Why jobs failed, by key; what needs a failed one fails with it.
    """
    everything = in_order(jobs)
    missing = [job for job in everything if job.payload(work) is None]
    done, failed = len(everything) - len(missing), {}
    do = partial(do_job, work=work.resolve(), run=run, computes=arithmetic_identity(), tolerant=tolerant)
    for job, reason in _results(missing, do, crew, failed):
        done += 1
        if reason:
            failed[job.key] = reason
        if on_job:
            with deferred():
                on_job(job, done, len(everything))
    return failed


def do_job(job: Job, work: Path, run: Runner, computes: str, tolerant: bool) -> str:
    """Do one job and keep what it found; return why it failed, or nothing."""
    begun = time.perf_counter()
    try:
        if computes != (own := arithmetic_identity()):
            raise AirCompError(f"a worker computes with {own}, but the run with {computes}; make them agree")
        job.keep(work, run(job, work), time.perf_counter() - begun)
    except AirCompError as error:
        if not tolerant:
            raise
        return str(error)
    return ""


Do = Callable[[Job], str]


def _results(missing: Sequence[Job], do: Do, crew: Workers, failed: Mapping[str, str]) -> Iterator[tuple[Job, str]]:
    """Yield every job as it is done, with why it failed; one whose need failed is not begun."""
    waiting, unfinished = list(missing), {job.key for job in missing}
    if crew.engine == "processes" and crew.number > 1 and len(missing) > 1:
        yield from _in_processes(waiting, unfinished, do, min(crew.number, len(missing)), failed)
        return
    while waiting:
        for job in [job for job in waiting if any(need.key in failed for need in job.needs)]:
            waiting.remove(job)
            yield job, next(failed[need.key] for need in job.needs if need.key in failed)
        ready = [job for job in waiting if not any(n.key in unfinished for n in job.needs)]
        ready = ready if crew.engine == "ray" else ready[:1]
        waiting = [job for job in waiting if job not in ready]
        for job, reason in _on_ray(ready, do, crew) if crew.engine == "ray" else ((job, do(job)) for job in ready):
            unfinished.discard(job.key)
            yield job, reason


def _in_processes(
    waiting: list[Job], unfinished: set[str], do: Do, number: int, failed: Mapping[str, str]
) -> Iterator[tuple[Job, str]]:
    """Keep all workers busy with jobs whose needs are done; what a killed one was at is done again later."""
    running: dict[Any, Job] = {}
    with workers(number) as processes:
        while waiting or running:
            for job in [job for job in waiting if any(need.key in failed for need in job.needs)]:
                waiting.remove(job)
                unfinished.discard(job.key)
                yield job, next(failed[need.key] for need in job.needs if need.key in failed)
            ready = [job for job in waiting if not any(n.key in unfinished for n in job.needs)]
            for job in ready[: number - len(running)]:
                waiting.remove(job)
                running[processes.submit(do, job)] = job
            for future in processes.finished(running) if running else ():
                job = running.pop(future)
                reason = future.result()
                unfinished.discard(job.key)
                yield job, reason


def _on_ray(ready: Sequence[Job], do: Do, crew: Workers) -> Iterator[tuple[Job, str]]:
    """Spread jobs over a cluster; a job whose node dies is done again."""
    from aircomp.engines.ray import map_jobs

    yield from map_jobs(do, ready, crew.ray_address, crew.number)


# ── what it will cost ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Forecast:
    """What a run will cost."""

    jobs: int
    missing: int
    seconds: float | None
    """Of one core, for what is missing; None where no such job was ever measured."""

    def sentence(self, number: int) -> str:
        """Say it for a number of jobs at a time."""
        said = f"{self.jobs} jobs, {self.jobs - self.missing} of them done"
        if not self.missing:
            return said
        if self.seconds is None:
            return f"{said}; how long the others take was never measured"
        hours = self.seconds / 3600
        together = f", {hours / number:.2g} hours with {number} at a time" if number > 1 else ""
        return f"{said}; the others take about {hours:.2g} core-hours{together}"


def forecast(jobs: Sequence[Job], work: Path, known: Mapping[str, float]) -> Forecast:
    """Estimate what is missing: by what is known of each job, at the pace of the jobs that are done here.

    A job of which nothing is known takes as long as the done jobs of its kind.

    Args:
        jobs: What is wanted.
        work: Where finished jobs are.
        known: Seconds of a job by its key, as measured before.
    """
    everything = in_order(jobs)
    found = {job.key: job.payload(work) for job in everything}
    done = [(job, payload["seconds"]) for job in everything if (payload := found[job.key]) is not None]
    paced = [(known[job.key], seconds) for job, seconds in done if job.key in known]
    before, here = sum(a for a, _ in paced), sum(b for _, b in paced)
    pace = here / before if before else 1.0
    by_kind: dict[str, list[float]] = {}
    for job, seconds in done:
        by_kind.setdefault(job.kind, []).append(seconds)
    missing = [job for job in everything if found[job.key] is None]
    if not all(job.key in known or job.kind in by_kind for job in missing):
        return Forecast(len(everything), len(missing), None)
    seconds = [known[j.key] * pace if j.key in known else statistics.fmean(by_kind[j.kind]) for j in missing]
    return Forecast(len(everything), len(missing), sum(seconds))


def known_seconds(jobs: Sequence[Job], by_kind: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of jobs, and of those that they need, by their keys."""
    return {job.key: by_kind[job.kind] for job in in_order(jobs) if job.kind in by_kind}


def seconds_by_kind(jobs: Sequence[Job], work: Path) -> dict[str, float]:
    """Return the mean time of a finished job of each kind."""
    found: dict[str, list[float]] = {}
    for job in in_order(jobs):
        found.setdefault(job.kind, []).append(job.done(work)["seconds"])
    return {kind: round(statistics.fmean(values), 1) for kind, values in found.items()}
