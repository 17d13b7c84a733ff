"""Comparisons and sweeps from Python. They return rows, which make a data frame as they are."""

import itertools
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from aircomp.common.checks import check_choice, check_number, check_path, check_type
from aircomp.common.outdir import as_directory, open_directory
from aircomp.common.results import Row
from aircomp.comparison.page import write_comparison
from aircomp.comparison.run import Comparison, Plan, Task, compare
from aircomp.errors import ConfigError
from aircomp.fl.configure import check_overrides, configure, full_name
from aircomp.reproduce.jobs import Crew, Job, preset_params, run_jobs
from aircomp.reproduce.work import run_job


def arena(
    challenges: Sequence[str] = (),
    schemes: Sequence[str] = (),
    *,
    task: Task = "round",
    seeds: int = 3,
    workers: int = 1,
    out: str | Path | None = None,
    **settings: Any,
) -> Comparison:
    """Compare schemes at equal channel uses and energy, as `aircomp arena` does.

    Args:
        challenges: Names, or TOML files of your own; all by default.
        schemes: Names, TOML files or MODULE:CLASS; by default those of each challenge.
        task: `round` measures the error of single rounds, `training` the test accuracy of federated training.
        seeds: How many seeds, from 0 on.
        workers: How many jobs run at a time, one thread each.
        out: Directory for finished jobs, `result.json` and `report.html`. An interrupted comparison goes on there. Without
            it nothing is kept.
        **settings: Settings of the experiment for all schemes, by name: `snr_db=0.0, **{"devices.total": 100}`.

    Examples:
        >>> found = arena(["awgn"], ["analog", "baa"], seeds=1)  # doctest: +SKIP
        >>> pandas.DataFrame(found.rows)  # doctest: +SKIP
    """
    check_choice("task", task, ("round", "training"))
    for name, number in (("seeds", seeds), ("workers", workers)):
        check_number(name, number, low=1, high=1000, integer=True)
    for name, given in (("challenges", challenges), ("schemes", schemes)):
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise ConfigError(f"{name} is {given!r}; expected a list of names")
    _check_seed(settings, seeds)
    chosen = {full_name(name): value for name, value in settings.items()}
    plan = Plan(tuple(challenges), tuple(schemes), task, tuple(range(seeds)), chosen)
    with ExitStack() as held:
        directory = _directory(out, "arena", held)
        comparison = compare(plan, directory / "work", Crew(workers))
        if out is not None:
            write_comparison(comparison, directory)
        return comparison


def sweep(
    preset: str | Path = "digits",
    over: Mapping[str, Sequence[Any]] | None = None,
    *,
    seeds: int = 1,
    workers: int = 1,
    out: str | Path | None = None,
    **overrides: Any,
) -> list[Row]:
    """Run federated training at every combination of some settings, and return one row per run.

    Args:
        preset: As for `aircomp.simulate`.
        over: Settings by name, with the values of each: `{"uplink": ["gamp", "analog"], "snr_db": [0, 5, 10]}`.
        seeds: How many seeds, from 0 on; every combination runs once with each.
        workers: How many runs at a time, one thread each.
        out: Directory for finished runs, where an interrupted sweep goes on. Without it nothing is kept.
        **overrides: Settings for all runs.

    Examples:
        >>> rows = sweep("digits", {"uplink": ["ideal", "gamp"]}, rounds=1)
        >>> [row["uplink"] for row in rows]
        ['ideal', 'gamp']
    """
    over = over or {}
    check_type("over", over, Mapping, "a mapping of settings to lists of values")
    for name, values in over.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise ConfigError(f"over[{name!r}] is {values!r}; expected a list of values")
    for name, number in (("seeds", seeds), ("workers", workers)):
        check_number(name, number, low=1, high=1000, integer=True)
    _check_seed({**overrides, **over}, seeds)
    places = [dict(zip(over, values, strict=True)) for values in itertools.product(*over.values())]
    jobs = []
    for place in places:
        settings = overrides | place
        check_overrides(configure(preset, settings), settings)
        named = {full_name(name): value for name, value in settings.items()}
        told = preset_params(preset)
        jobs += [(place, Job("simulate", told | {"settings": named | {"seed": n}})) for n in range(seeds)]
    with ExitStack() as held:
        work = _directory(out, "sweep", held)
        run_jobs([job for _, job in jobs], work, run_job, Crew(workers))
        return [place | row for place, job in jobs for row in job.done(work)["rows"]]


def _check_seed(settings: Mapping[str, Any], seeds: int) -> None:
    """Refuse a seed among the settings: every run has one of its own."""
    if "seed" in settings:
        raise ConfigError(
            f"seed = {settings['seed']!r} was given, but seeds are counted from 0 on; leave it out and say how many with "
            f"seeds, which is {seeds}"
        )


def _directory(out: str | Path | None, command: str, held: ExitStack) -> Path:
    if out is None:
        return Path(held.enter_context(tempfile.TemporaryDirectory(prefix="aircomp-")))
    check_path("out", out)
    directory = as_directory(out)
    held.enter_context(open_directory(directory, command))
    return directory
