"""`aircomp demo`: the main job on data that comes with the package."""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from aircomp.channel.snr import LOWEST_SNR_DB
from aircomp.cli.common import output_directory, parse, print_table, progress_bar
from aircomp.common import results
from aircomp.common.checks import check_number, check_numbers
from aircomp.common.outdir import MARKER, is_in_use, newest_directory, open_directory
from aircomp.measure.fields import columns_of, label_of
from aircomp.report.curves import draw_snr
from aircomp.report.page import Section, write_page
from aircomp.report.rows import SHARE, accuracy_by_snr, lines_of, present, table_of
from aircomp.report.runs import command_of, read_runs
from aircomp.reproduce.jobs import Crew, Job, Payload, run_jobs
from aircomp.reproduce.work import run_job

NOISY = ("amp-da", "gamp", "amp-da-net")
COLUMNS = ("uplink", "snr_db", "test_accuracy_last5", "count_accuracy", "num_active_mae", "seconds")


@dataclass(frozen=True)
class Options:
    """Train federated digits over the air with several uplinks at several SNRs, and draw the result.

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
    check_numbers("snr_db", options.snr_db, low=LOWEST_SNR_DB, high=sys.float_info.max)
    with (
        output_directory(options.out or _unfinished(), "demo") as out,
        open_directory(out, "demo", overwrite=options.overwrite),
    ):
        _run(options, out)


def _run(options: Options, out: Path) -> None:
    begun, work, jobs = time.perf_counter(), out / "work", _jobs(options)
    if options.overwrite:
        for job in jobs.values():
            job.path(work).unlink(missing_ok=True)
    with progress_bar("demo", len(jobs)) as (progress, task):
        run_jobs(
            list(jobs.values()),
            work,
            run_job,
            Crew(options.workers),
            lambda _, done, total: progress.update(task, completed=done, total=total),
        )
    found = {name: job.done(work) for name, job in jobs.items()}
    rows = [payload["rows"][0] for payload in found.values()]
    config = {"preset": "digits", "rounds": options.rounds, "snr_db": list(options.snr_db), "seed": options.seed}
    results.write_result(out / "result.json", "demo", config, options.seed, rows)
    print_table(f"federated digits, {options.rounds} rounds", rows, columns_of(COLUMNS))
    print(draw_snr(rows, out / "accuracy.png"))
    command = command_of(read_runs([out])[0])
    print(write_page(out / "report.html", "Federated digits over the air", [_section(rows, found, options, command)]))
    print(f"{out / 'result.json'}   ({time.perf_counter() - begun:.0f} s)")


def _unfinished() -> Path | None:
    """Return the newest demo under runs/ if it was stopped; one that is running is in use."""
    newest = newest_directory("demo")
    if newest is None or not os.path.lexists(newest / MARKER) or os.path.lexists(newest / "result.json"):
        return None
    return None if is_in_use(newest) else newest


def _jobs(options: Options) -> dict[str, Job]:
    """Return every run by its name."""
    plan: list[tuple[str, float | None]] = [("ideal", None), ("perfect", None)]
    plan += [(uplink, snr_db) for uplink in NOISY for snr_db in options.snr_db]
    shared = {"rounds": options.rounds, "seed": options.seed, "device": options.device}
    jobs = {}
    for uplink, snr_db in plan:
        settings: dict[str, Any] = shared | {"uplink": uplink}
        settings |= {} if snr_db is None else {"snr_db": snr_db}
        name = uplink if snr_db is None else f"{uplink}, {snr_db:g} dB"
        jobs[name] = Job("simulate", {"preset": "digits", "settings": settings})
    return jobs


def _section(rows: list[results.Row], found: dict[str, Payload], options: Options, command: str) -> Section:
    text = (
        f"Forty devices, of which seven to thirteen train in each of {options.rounds} rounds; their quantised updates share "
        "the air. Perfect is the same without noise, ideal without quantisation too."
    )
    curves = {name: [tuple(point) for point in payload["curve"]] for name, payload in found.items()}
    drawn = [
        accuracy_by_snr(rows, []),
        lines_of(curves, "round", label_of("test_accuracy"), "Test accuracy by round", limits=SHARE),
    ]
    names = ("uplink", "snr_db", "test_accuracy_last5", "test_accuracy", "stability", "count_accuracy", "update_nmse")
    return Section(
        "Federated digits",
        text,
        present(drawn),
        (table_of("Uplinks", rows, (*names, "num_active_mae", "seconds")),),
        (command,),
        {"result.json": "result.json"},
    )
