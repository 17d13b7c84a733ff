"""`aircomp demo`: the main job on data that comes with the package."""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from aircomp.channel.settings import HIGHEST_SNR_DB, LOWEST_SNR_DB
from aircomp.cli.common import output_directory, parse, print_table, progress_bar
from aircomp.common.checks import check_number, check_numbers
from aircomp.common.outdir import MARKER, is_in_use, newest_directory, open_directory
from aircomp.measure.fields import columns_of

if TYPE_CHECKING:
    from aircomp.studies.jobs import Job

NOISY = ("amp-da-net", "amp-da", "gamp-net")
"""The paper's system first, its baseline, and ours."""
LOW_SNR_DB = -5.0
"""Where it matters what is sent."""
LOW: dict[str, dict[str, Any]] = {
    "ideal": {"uplink": "ideal"},
    "amp-da": {"uplink": "amp-da"},
    "gamp-net": {"uplink": "gamp-net", "uplink.repeat": "auto"},
    "gamp, matched": {
        "uplink": "gamp",
        "uplink.energy": "matched",
        "uplink.rate": "auto",
        "aggregate.readout": "calibrated",
    },
    "refined-analog": {"uplink": "refined-analog"},
}
"""Exact updates, and four schemes at equal channel uses and energy, from the paper's baseline to uncoded sums."""
COLUMNS = ("uplink", "snr_db", "test_accuracy_last5", "count_accuracy", "num_active_mae", "seconds")


@dataclass(frozen=True)
class Options:
    """Show what over-the-air computation is for: a slot decoded, federated digits over several uplinks, and low SNR.

    Examples:
      aircomp demo
      aircomp demo --rounds 60 --snr-db 0 5 10
    """

    snr_db: tuple[float, ...] = (0.0, 5.0, 10.0)
    """Signal-to-noise ratios of the noisy uplinks."""
    rounds: int = 24
    """Rounds of each run."""
    seed: int = 0
    """Everything random derives from it."""
    seeds: int = 3
    """Seeds of the runs at low SNR, from --seed on: one says little about accuracies that are points apart."""
    workers: int = 2
    """Runs at a time, one thread each."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where to compute."""
    out: Path | None = None
    """Directory for result.json, report.html and figures; by default a new one under runs/."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace what is in --out."""


def run(args: Sequence[str]) -> None:
    """Run every uplink at every SNR."""
    options = parse(Options, args, "demo")
    check_number("workers", options.workers, low=1, high=1024, integer=True)
    check_number("rounds", options.rounds, low=1, integer=True)
    check_number("seed", options.seed, low=0, integer=True)
    check_number("seeds", options.seeds, low=1, high=1000, integer=True)
    check_numbers("snr_db", options.snr_db, low=LOWEST_SNR_DB, high=HIGHEST_SNR_DB)
    with (
        output_directory(options.out or _unfinished(), "demo") as out,
        open_directory(out, "demo", overwrite=options.overwrite),
    ):
        _run(options, out)


def _run(options: Options, out: Path) -> None:
    from aircomp.common import results  # from here on with torch
    from aircomp.report.curves import draw_snr
    from aircomp.report.demo import LOW_FIELDS, Low, sections_of
    from aircomp.report.page import write_page
    from aircomp.report.runs import command_of, read_runs
    from aircomp.studies.jobs import Workers, run_jobs
    from aircomp.studies.kinds import run_job
    from aircomp.studies.summary import over_seeds

    begun, work, jobs = time.perf_counter(), out / "work", _jobs(options) | _low_jobs(options)
    if options.overwrite:
        for job in jobs.values():
            job.path(work).unlink(missing_ok=True)
    distinct = list({job.key: job for job in jobs.values()}.values())  # exact updates of one seed serve two figures
    _say(f"training a digit classifier over the air, {len(distinct)} federated runs of {options.rounds} rounds each")
    names = {job.key: name for name, job in jobs.items()}
    with progress_bar("demo", len(distinct)) as (progress, task):

        def tell(job: "Job", done: int, total: int) -> None:
            name = names[job.key]
            progress.update(task, completed=done, total=total, note=name)
            _say(f"{done} of {total} done: {name}, after {time.perf_counter() - begun:.0f} s")

        run_jobs(distinct, work, run_job, Workers(options.workers), tell)
    found = {name: jobs[name].done(work) for name in _jobs(options)}
    repeated = [
        ({"contender": name}, jobs[_low_name(name, options.seed + k)].done(work))
        for name in LOW
        for k in range(options.seeds)
    ]
    low = Low(LOW_SNR_DB, over_seeds(repeated, ["contender"], LOW_FIELDS))
    rows = [payload["rows"][0] for payload in found.values()]
    config = {"preset": "digits", "rounds": options.rounds, "snr_db": list(options.snr_db), "seed": options.seed}
    config["seeds"] = options.seeds
    results.write_result(out / "low-snr.json", "demo", config, options.seed, low.rows)
    results.write_result(out / "result.json", "demo", config, options.seed, rows)
    print_table(f"federated digits, {options.rounds} rounds", rows, columns_of(COLUMNS))
    print(draw_snr(rows, out / "accuracy.png"))
    command = command_of(read_runs([out])[0])
    sections = sections_of(
        rows, {name: payload["curve"] for name, payload in found.items()}, low, options.seed, command
    )
    for section in sections:
        print(f"{section.title}: {section.text}")
    print(write_page(out / "report.html", "Learning over the air", sections))
    print(f"{out / 'result.json'}   ({time.perf_counter() - begun:.0f} s)")


def _unfinished() -> Path | None:
    """Return the newest demo under runs/ if it was stopped; one that is running is in use."""
    newest = newest_directory("demo")
    if newest is None or not os.path.lexists(newest / MARKER) or os.path.lexists(newest / "result.json"):
        return None
    return None if is_in_use(newest) else newest


def _jobs(options: Options) -> "dict[str, Job]":
    """Return every run by its name."""
    from aircomp.studies.jobs import Job, run_params

    plan: list[tuple[str, float | None]] = [("ideal", None), ("perfect", None)]
    plan += [(uplink, snr_db) for uplink in NOISY for snr_db in options.snr_db]
    shared = {"rounds": options.rounds, "seed": options.seed, "device": options.device}
    jobs = {}
    for uplink, snr_db in plan:
        settings: dict[str, Any] = shared | {"uplink": uplink}
        settings |= {} if snr_db is None else {"snr_db": snr_db}
        name = uplink if snr_db is None else f"{uplink}, {snr_db:g} dB"
        jobs[name] = Job("simulate", run_params("digits", settings))
    return jobs


def _low_jobs(options: Options) -> "dict[str, Job]":
    """Return the runs at low SNR by their names: every scheme with several seeds."""
    from aircomp.studies.jobs import Job, run_params

    radio = {"snr_db": LOW_SNR_DB, "snr_reference": "transmit"}
    jobs = {}
    for name, settings in LOW.items():
        for k in range(options.seeds):
            shared = {"rounds": options.rounds, "seed": options.seed + k, "device": options.device}
            air = {} if settings["uplink"] == "ideal" else radio
            jobs[_low_name(name, options.seed + k)] = Job("simulate", run_params("digits", shared | settings | air))
    return jobs


def _low_name(name: str, seed: int) -> str:
    return f"{name}, {LOW_SNR_DB:g} dB, seed {seed}"


def _say(sentence: str) -> None:
    """Say what is going on where no progress bar can: in a file, a pipe, a log."""
    if not sys.stderr.isatty():
        print(f"demo: {sentence}", flush=True)
