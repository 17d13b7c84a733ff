"""`aircomp collect PRESET`: save every round's fragments of a perfect-aggregation run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from aircomp.cli.common import output_directory, print_table, progress_bar
from aircomp.cli.flags import parse_settings
from aircomp.cli.simulate import HIDDEN, split_preset, starting_point
from aircomp.cli.simulate import Options as RunOptions
from aircomp.federation.experiment import full_name
from aircomp.measure.fields import columns_of


@dataclass(frozen=True)
class Options(RunOptions):
    """Run quantised perfect aggregation and save each round's fragments, for `pretrain` and `evaluate`.

    Examples:
      aircomp collect digits --out runs/fragments-digits
      aircomp collect cifar10-collect --rounds 40 --out runs/fragments-resnet
      aircomp collect cifar10-collect --out runs/fragments-resnet --resume
    """

    raw: tyro.conf.FlagCreatePairsOff[bool] = False
    """Also save the unquantised fragments of devices and base station."""


def run(args: Sequence[str]) -> None:
    """Parse and collect."""
    preset, rest = split_preset(args)
    start = starting_point(preset, rest)
    options, given = parse_settings(
        Options, rest, f"collect {preset or 'PRESET'}", start, hidden=HIDDEN, full_name=full_name
    )
    from aircomp.federation.configure import check_given  # from here on with torch
    from aircomp.train.collect import collect

    check_given(options.experiment.changed(uplink="perfect"), given)
    stem = f"fragments-{Path(preset).stem if preset else 'run'}"
    with (
        output_directory(options.out, stem, resume=options.resume) as out,
        progress_bar(stem, options.experiment.rounds) as (progress, task),
    ):

        def show(record: dict[str, Any]) -> None:
            progress.update(task, completed=record["round"], note=f"K_a {record['num_active']}")

        result = collect(
            options.experiment,
            out,
            raw=options.raw,
            on_round=show,
            resume=options.resume,
            other_arithmetic=options.other_arithmetic,
            overwrite=options.overwrite,
            data_dir=options.data_dir,
            **{"uplink": options.experiment.uplink.name} if "uplink.name" in given else {},
        )
    columns = columns_of(("rounds", "test_accuracy", "seconds"))
    print_table(f"{result.row['dataset']}, {out}", [result.row], columns)
