"""`aircomp reproduce NAME`: one table or figure of the paper, or all of them."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from aircomp.cli.common import parse, print_table, progress_bar
from aircomp.errors import ConfigError
from aircomp.studies.study import RESULTS

MOST_SEEDS = 1000


@dataclass(frozen=True)
class Options:
    """Measure one table or figure of the paper, or all of them; what --out already holds is not computed again.

    Examples:
      aircomp reproduce --list
      aircomp reproduce fed_accuracy
      aircomp reproduce table2 --seeds 1
      aircomp reproduce codebook_ablation --scale laptop --seeds 3 --workers 2
      aircomp reproduce all --workers 2
      aircomp reproduce fed_accuracy --scale paper --device cuda --workers 1
      aircomp reproduce all --engine ray --ray-address HOST:6379 --workers 0 --out SHARED/DIRECTORY
    """

    name: Annotated[str, tyro.conf.Positional] = ""
    """Which result, by name or by its number in the paper (table1, fig4), or all; --list names them."""
    scale: Literal["digits", "laptop", "desktop", "paper"] = "digits"
    """How large: embedded digits, CIFAR-10 on a laptop or a desktop, or the paper's settings."""
    seeds: int = 3
    """How many seeds: 0, 1, 2 and so on."""
    workers: int = 2
    """Jobs at a time, one thread each; with --engine ray 0 means one for each core of the cluster."""
    engine: Literal["processes", "ray"] = "processes"
    """Where jobs run; on a cluster, every node must see --out under the same path."""
    ray_address: str = ""
    """HOST:PORT of a Ray cluster; by default Ray is started on this machine."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where jobs compute; with cuda, give --workers 1 unless several fit into the GPU's memory."""
    list: tyro.conf.FlagCreatePairsOff[bool] = False
    """List the results and stop."""
    out: Path | None = None
    """Output directory; by default runs/reproduce-SCALE, so that the same command continues an interrupted run."""
    update_expected: tyro.conf.FlagCreatePairsOff[bool] = False
    """In a clone of the source: make what was measured the expected results; `make pages` then writes the docs anew."""


def run(args: Sequence[str]) -> None:
    """Run the jobs, show the tables."""
    options = parse(Options, args, "reproduce")
    if options.list or not options.name:
        if not options.list:
            raise ConfigError("no result was named; give one of aircomp reproduce --list, or all")
        rows = [
            {"name": name, "number": ", ".join(r.numbers), "title": r.title, "source": r.section or "ours"}
            for name, r in RESULTS.all().items()
        ]
        print_table("results", rows, {"name": "name", "number": "number", "title": "what", "source": "whose"})
        return
    if options.seeds < 1 or options.workers < (options.engine == "processes"):
        raise ConfigError(f"seeds {options.seeds}, workers {options.workers}: expected at least one of each")
    if options.seeds > MOST_SEEDS:
        raise ConfigError(f"seeds {options.seeds}: expected {MOST_SEEDS} at the most")
    from aircomp.studies.expected import docs_folder  # from here on with torch
    from aircomp.studies.jobs import Workers
    from aircomp.studies.results import reproduce, tables_to_print, update_expected
    from aircomp.studies.scales import scale_of

    scale = scale_of(options.scale)
    chosen = list(RESULTS.at(scale.name)) if options.name == "all" else [RESULTS.find(options.name, scale.name)]
    out = options.out or Path("runs") / f"reproduce-{scale.name}" / ("" if options.name == "all" else chosen[0])
    if options.update_expected:
        docs_folder()
    seeds, work = range(options.seeds), out / "work"
    with progress_bar(f"reproduce {options.name}", 1) as (progress, task):
        found = reproduce(
            chosen,
            scale,
            seeds,
            out,
            Workers(options.workers, options.engine, options.ray_address),
            on_job=lambda job, done, total: progress.update(task, completed=done, total=total, note=job.kind),
            device=options.device,
            on_start=lambda cost: print(f"aircomp.reproduce: {cost.sentence(options.workers)}", file=sys.stderr),
        )
    for name, rows in found.items():
        for table in tables_to_print(name, rows):
            print_table(f"{name}: {table.title}", table.rows, table.columns)
    if options.update_expected:
        finished = [(name, out if len(chosen) == 1 else out / name) for name in chosen]
        print(*(update_expected(name, scale, seeds, folder, work) for name, folder in finished), sep="\n")
        print("now write the docs with make pages")
    print(out / "report.html")
