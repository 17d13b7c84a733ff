"""`aircomp data list` and `aircomp data fetch NAME`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from aircomp.cli.common import parse, print_table, progress_bar, subcommand
from aircomp.common.interrupt import telling
from aircomp.errors import unknown_name


@dataclass(frozen=True)
class ListOptions:
    """List the datasets and where each was found.

    Examples:
      aircomp data list
    """

    data_dir: Path | None = None
    """Where datasets lie; default AIRCOMP_DATA or the user's cache directory."""


@dataclass(frozen=True)
class FetchOptions:
    """Download a dataset with checksum; an interrupted download continues where it stopped.

    Examples:
      aircomp data fetch cifar10
      aircomp data fetch fashion-mnist --data-dir ~/datasets
    """

    name: Annotated[str, tyro.conf.Positional]
    """The dataset."""
    data_dir: Path | None = None
    """Where to put it; default AIRCOMP_DATA or the user's cache directory."""


def run(args: Sequence[str]) -> None:
    """Run the subcommand."""
    command, *rest = subcommand(args, "aircomp data list | fetch NAME")
    match command:
        case "list":
            _list(parse(ListOptions, rest, "data list"))
        case "fetch":
            _fetch(parse(FetchOptions, rest, "data fetch"))
        case _:
            raise unknown_name("data command", command, ["list", "fetch"])


def _list(options: ListOptions) -> None:
    from aircomp.data.files import data_directory, locate
    from aircomp.data.images import dataset_names  # only now: it imports torch

    rows = [
        {"name": name, "found": str(locate(name, options.data_dir) or f"not found; try: aircomp data fetch {name}")}
        for name in dataset_names()
    ]
    print_table(
        f"datasets (data directory: {data_directory(options.data_dir)})", rows, {"name": "name", "found": "found"}
    )


def _fetch(options: FetchOptions) -> None:
    from aircomp.data.fetch import fetch

    with (
        telling("what was downloaded is kept, the same command continues it"),
        progress_bar(f"fetching {options.name}", 1) as (progress, task),
    ):
        path = fetch(
            options.name,
            options.data_dir,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    print(path)
