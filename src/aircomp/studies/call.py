"""Comparisons and sweeps from Python. They return rows, which make a data frame as they are."""

import itertools
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from aircomp.common.artefact import config_hash
from aircomp.common.checks import check_choice, check_number, check_path, check_type, describe
from aircomp.common.outdir import as_directory, open_directory
from aircomp.common.results import Row, plain
from aircomp.errors import ConfigError
from aircomp.federation.configure import OF_THE_RADIO, check_overrides, configure
from aircomp.federation.experiment import full_name
from aircomp.schemes.registry import scheme_class
from aircomp.studies.arena import Comparison, Plan, compare
from aircomp.studies.arena_page import write_comparison
from aircomp.studies.jobs import Job, Workers, run_jobs, run_params
from aircomp.studies.kinds import run_job
from aircomp.studies.study import TASKS, Task


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
        challenges: Names, or TOML files of your own; by default all whose data come with the package.
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
    check_choice("task", task, TASKS)
    for name, number in (("seeds", seeds), ("workers", workers)):
        check_number(name, number, low=1, high=1000, integer=True)
    for name, given in (("challenges", challenges), ("schemes", schemes)):
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise ConfigError(f"{name} is {describe(given)}; expected a list of names")
    _check_seed(settings, seeds)
    chosen = {full_name(name): value for name, value in settings.items()}
    plan = Plan(tuple(challenges), tuple(schemes), task, tuple(range(seeds)), chosen)
    with ExitStack() as held:
        directory = _directory(out, "arena", held)
        comparison = compare(plan, directory / "work", Workers(workers))
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
    """Run federated training at every combination of some settings, and return one row for each, with every seed.

    A row has the settings of its place by their names, and then what the run measured. Places that differ in nothing but the
    radio are the same run with an uplink that has none: it is done once, and its row is repeated.

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
    over = {} if over is None else over
    check_type("over", over, Mapping, "a mapping of settings to lists of values")
    for name, values in over.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise ConfigError(f"over[{name!r}] is {describe(values)}; expected a list of values")
    for name, number in (("seeds", seeds), ("workers", workers)):
        check_number(name, number, low=1, high=1000, integer=True)
    _check_seed({**overrides, **over}, seeds)
    places = [dict(zip(over, values, strict=True)) for values in itertools.product(*over.values())]
    experiments = [configure(preset, overrides | place) for place in places]
    on_air = [scheme_class(experiment.uplink.name).uses_radio for experiment in experiments]
    jobs, baselines = [], {}
    for place, experiment, uses_radio in zip(places, experiments, on_air, strict=True):
        named = {full_name(name): value for name, value in (overrides | place).items()}
        beside = any(on_air) and not uses_radio  # settings of the radio are meant for the others
        check_overrides(
            experiment, {k: v for k, v in named.items() if not (beside and k.split(".")[0] in OF_THE_RADIO)}
        )
        if not uses_radio:
            rest = {name: value for name, value in experiment.identity.items() if name not in OF_THE_RADIO}
            named = baselines.setdefault(config_hash(rest), named)
        jobs += [(place, Job("simulate", run_params(preset, named | {"seed": n}))) for n in range(seeds)]
    with ExitStack() as held:
        work = _directory(out, "sweep", held)
        run_jobs([job for _, job in jobs], work, run_job, Workers(workers))
        return [_row(place, row) for place, job in jobs for row in job.done(work)["rows"]]


def _row(place: Mapping[str, Any], measured: Row) -> Row:
    """Return a row with its place; a run without radio has no SNR, but its place in the grid has."""
    return plain(place) | {k: v for k, v in measured.items() if v is not None or k not in place}


def _check_seed(settings: Mapping[str, Any], seeds: int) -> None:
    """Refuse a seed among the settings: every run has one of its own."""
    if "seed" in settings:
        raise ConfigError(
            f"seed = {describe(settings['seed'])} was given, but seeds are counted from 0 on; leave it out and say how many "
            f"with seeds, which is {seeds}"
        )


def _directory(out: str | Path | None, command: str, held: ExitStack) -> Path:
    if out is None:
        return Path(held.enter_context(tempfile.TemporaryDirectory(prefix="aircomp-")))
    check_path("out", out)
    directory = as_directory(out)
    held.enter_context(open_directory(directory, command))
    return directory
