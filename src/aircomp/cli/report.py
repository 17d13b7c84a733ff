"""`aircomp report DIR…`: the HTML page of finished runs."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from aircomp.cli.common import output_directory, parse
from aircomp.errors import ConfigError


@dataclass(frozen=True)
class Options:
    """Write one HTML page about finished runs of any command; it needs no network and no server.

    Examples:
      aircomp report runs/digits-gamp
      aircomp report runs/digits-gamp runs/digits-amp-da runs/evaluate --out runs/comparison
    """

    directories: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Directories with a result.json."""
    out: Path | None = None
    """Directory for report.html; by default the run's own, or for several runs a new one under runs/."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace the report.html in --out."""


def run(args: Sequence[str]) -> None:
    """Parse, read the runs, write the page."""
    options = parse(Options, args, "report")
    # only now: they import torch, and a mistake is told without it
    from aircomp.common.outdir import check_page, mark_page
    from aircomp.report.gather import sections_of
    from aircomp.report.page import write_page

    directories = list(
        {os.path.realpath(path): path for path in options.directories}.values()
    )  # one given twice is one
    if not directories:
        raise ConfigError(
            "no directory was given; name one or more finished runs, for example aircomp report runs/demo"
        )
    own = directories[0] if len(directories) == 1 else None
    with output_directory(options.out or own, "report") as out:
        check_page(out, overwrite=options.overwrite)
        sections = sections_of(directories, beside=out)
        name = os.path.basename(os.path.realpath(directories[0]))
        title = f"aircomp: {name}" if len(directories) == 1 else f"aircomp: {len(directories)} runs"
        mark_page(out)
        print(write_page(out / "report.html", title, sections))
