"""`aircomp reproduce NAME`: one table or figure of the paper, or all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from aircomp.cli.common import parse, print_table, progress_bar
from aircomp.errors import ConfigError
from aircomp.reproduce.catalogue import RESULTS, result_of, results_at
from aircomp.reproduce.jobs import Crew
from aircomp.reproduce.run import reproduce
from aircomp.reproduce.scales import scale_of
from aircomp.reproduce.update import docs_folder, update_expected

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
    """In a clone of the source: make what was measured the expected results, and rewrite the tables and figures of
    docs/."""


def run(args: Sequence[str]) -> None:
    """Run the jobs, show the tables."""
    options = parse(Options, args, "reproduce")
    if options.list or not options.name:
        if not options.list:
            raise ConfigError("no result was named; give one of aircomp reproduce --list, or all")
        rows = [
            {"name": r.name, "number": ", ".join(r.numbers), "title": r.title, "source": r.section or "ours"}
            for r in RESULTS.values()
        ]
        print_table("results", rows, {"name": "name", "number": "number", "title": "what", "source": "whose"})
        return
    if options.seeds < 1 or options.workers < (options.engine == "processes"):
        raise ConfigError(f"seeds {options.seeds}, workers {options.workers}: expected at least one of each")
    if options.seeds > MOST_SEEDS:
        raise ConfigError(f"seeds {options.seeds}: expected {MOST_SEEDS} at the most")
    scale = scale_of(options.scale)
    chosen = results_at(scale.name) if options.name == "all" else [result_of(options.name, scale.name)]
    folder = "" if options.name == "all" else chosen[0].name
    out = options.out or Path("runs") / f"reproduce-{scale.name}" / folder
    docs = docs_folder() if options.update_expected else None
    with progress_bar(f"reproduce {options.name}", 1) as (progress, task):
        outcomes = reproduce(
            chosen,
            scale,
            range(options.seeds),
            out,
            Crew(options.workers, options.engine, options.ray_address),
            on_job=lambda job, done, total: progress.update(task, completed=done, total=total, note=job.kind),
            device=options.device,
        )
    for name, outcome in outcomes.items():
        for table in outcome.tables[:2]:
            print_table(f"{name}: {table.title}", table.rows, table.columns)
    if docs is not None:
        for result in chosen:
            finished = out if len(chosen) == 1 else out / result.name
            print(*update_expected(result, scale, finished, docs), sep="\n")
    print(out / "report.html")
