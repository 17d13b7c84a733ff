"""`aircomp arena`: schemes at equal channel uses and energy, on one page."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from aircomp.cli.common import parse, print_table, progress_bar
from aircomp.common.outdir import open_directory
from aircomp.errors import ConfigError
from aircomp.measure.fields import columns_of

MOST_SEEDS = 1000


@dataclass(frozen=True)
class Options:
    """Compare schemes at equal channel uses and energy; jobs that --out already holds are not done again.

    A challenge is one question; --list shows them, with version and fingerprint.

    Schemes: every name of `aircomp schemes`; digital (gamp), digital-matched (gamp with matched energies), digital-rate (with
    sizes by SNR, too) and analog-lmmse (analog, shrunk) are short for settings.

    Examples:
      aircomp arena --challenge awgn
      aircomp arena --challenge phase blind --seeds 3 --workers 2
      aircomp arena --challenge awgn --scheme digital-matched analog my_module:MyScheme mine.toml
      aircomp arena --check my_module:MyScheme
      aircomp arena --task training --challenge byzantine --seeds 10 --engine ray --workers 0
    """

    challenge: tuple[str, ...] = ()
    """Challenges by name, or TOML files of your own; by default all whose data come with the package."""
    scheme: tuple[str, ...] = ()
    """Schemes by name, TOML files of settings, or MODULE:CLASS; by default those of each challenge."""
    task: Literal["round", "training"] = "round"
    """round: the error of single rounds. training: the test accuracy of federated training."""
    snr_db: float | None = None
    """SNR of all challenges but awgn, in place of theirs."""
    seeds: int = 3
    """How many seeds, from 0 on; two or more give an interval."""
    workers: int = 2
    """Jobs at a time, one thread each; with --engine ray 0 means one for each core of the cluster."""
    engine: Literal["processes", "ray"] = "processes"
    """Where jobs run; on a cluster, every node must see --out under the same path."""
    ray_address: str = ""
    """HOST:PORT of a Ray cluster; by default Ray is started on this machine."""
    check: str = ""
    """MODULE:CLASS of a scheme of your own: see whether it may enter (conformance, budgets, the seeds of --challenge, by
    default awgn), print the table for a pull request, and stop; exit with 1 if it may not."""
    list: tyro.conf.FlagCreatePairsOff[bool] = False
    """List the challenges and stop."""
    out: Annotated[Path, tyro.conf.arg(help_behavior_hint="(default: runs/arena)")] = Path("runs/arena")
    """Directory for report.html, result.json and finished jobs; an interrupted comparison goes on there, and another one
    keeps the jobs and replaces the other files."""
    update_expected: tyro.conf.FlagCreatePairsOff[bool] = False
    """In a clone of the source: make what was measured the expected results of these challenges; `make pages` then writes
    the docs anew."""


def run(args: Sequence[str]) -> None:
    """Run the jobs and show who wins; exit with 1 if a job failed."""
    options = parse(Options, args, "arena")
    if not 1 <= options.seeds <= MOST_SEEDS or options.workers < (options.engine == "processes"):
        raise ConfigError(
            f"seeds {options.seeds}, workers {options.workers}: expected 1 to {MOST_SEEDS} seeds, one worker at least"
        )
    from aircomp.studies.arena import (  # from here on with torch
        Plan,
        check_whole,
        compare,
        forecast_of,
        update_expected,
    )
    from aircomp.studies.arena_page import OURS, WINNERS, write_comparison
    from aircomp.studies.expected import docs_folder
    from aircomp.studies.jobs import Workers
    from aircomp.studies.ranking import MEASURES
    from aircomp.studies.study import challenge_names, find_challenge

    settings = {} if options.snr_db is None else {"channel.snr_db": options.snr_db}
    plan = Plan(options.challenge, options.scheme, options.task, tuple(range(options.seeds)), settings)
    if options.list:
        chosen = {name: find_challenge(name) for name in challenge_names()}
        rows = [
            {"name": name, "question": c.question, "version": str(c.version), "fingerprint": c.fingerprint}
            for name, c in chosen.items()
        ]
        print_table("challenges", rows, {name: name for name in rows[0]})
        return
    if options.check:
        _check(options)
        return
    if options.update_expected:
        docs_folder()
        check_whole(plan)
    crew, work = Workers(options.workers, options.engine, options.ray_address), options.out / "work"
    print(f"aircomp.arena: {forecast_of(plan, work).sentence(options.workers)}", file=sys.stderr)
    with open_directory(options.out, "arena"), progress_bar("arena", 1) as (progress, task):
        comparison = compare(
            plan,
            work,
            crew,
            on_job=lambda job, done, total: progress.update(task, completed=done, total=total, note=job.kind),
        )
        page = write_comparison(comparison, options.out)
    unit = MEASURES[plan.task].unit
    print_table(f"winners (margins in {unit})", comparison.winners, columns_of(WINNERS))
    if any("our_best" in row for row in comparison.winners):
        print_table(f"our best scheme (margins in {unit})", comparison.winners, columns_of(OURS))
    for row in comparison.failed:
        seed = f", seed {row['seed']}" if "seed" in row else ""
        print(f"failed: {row['challenge']} {row['value']:g}, {row['scheme']}{seed}: {row['reason']}")
    if options.update_expected:
        print(update_expected(comparison, work), "now write the docs with make pages", sep="\n")
    print(page)
    if comparison.failed:
        sys.exit(1)


def _check(options: Options) -> None:
    """Print whether a scheme may enter the arena, and its table; exit with 1 if it may not."""
    from aircomp.studies.check import check_entry
    from aircomp.studies.jobs import Workers

    crew = Workers(options.workers, options.engine, options.ray_address)
    with open_directory(options.out, "arena"), progress_bar("arena", 1) as (progress, task):
        found = check_entry(
            options.check,
            options.challenge,
            options.seeds,
            options.out / "work",
            crew,
            on_job=lambda job, done, total: progress.update(task, completed=done, total=total, note=job.kind),
        )
    print(found.markdown)
    if found.problems:
        sys.exit(1)
