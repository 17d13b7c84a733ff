"""`aircomp simulate PRESET`: one federated run."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from aircomp.cli.common import (
    given_settings,
    output_directory,
    parse,
    print_table,
    progress_bar,
    value_of,
    with_full_names,
    with_unset,
)
from aircomp.common.settings import check_given
from aircomp.errors import ArtefactError, ConfigError
from aircomp.fl.configure import full_name, heard_by
from aircomp.fl.experiment import Experiment, load_experiment, preset_names, read_toml
from aircomp.fl.own import OwnParts
from aircomp.fl.simulate import Simulation, simulate
from aircomp.measure.fields import columns_of
from aircomp.report.curves import draw_run

COLUMNS = (
    "uplink",
    "snr_db",
    "rounds",
    "test_accuracy",
    "test_accuracy_last5",
    "best_test_accuracy",
    "stability",
    "count_accuracy",
    "update_nmse",
    "num_active_mae",
    "channel_uses_per_parameter",
    "seconds",
)


class Flags(Experiment):
    """The settings that the command line shows: all but those that only Python can give."""

    own: Annotated[OwnParts, tyro.conf.Suppress] = OwnParts()

    @classmethod
    def of(cls, experiment: Experiment) -> "Flags":
        """Return an experiment's settings as flags."""
        return cls(**experiment.model_dump(exclude_unset=True))


@dataclass(frozen=True)
class Options:
    """Run federated training over an uplink; every setting of the preset can be overridden.

    Short forms: --uplink, --layer, --channel, --snr-db, --snr-reference, --aggregator stand for --uplink.name,
    --uplink.layer, --channel.kind, --channel.snr-db, --channel.snr-reference, --aggregate.rule.

    Examples:
      aircomp simulate digits
      aircomp simulate digits --uplink gamp --snr-db 5 --rounds 40
      aircomp simulate digits --devices.total 100 --corruption.kind noise --aggregator trimmed-mean
      aircomp simulate my-preset.toml --out runs/mine
      aircomp simulate --resume --out runs/mine
    """

    experiment: Annotated[Flags, tyro.conf.arg(name="")]
    out: Path | None = None
    """Run directory; by default a new one under runs/."""
    resume: tyro.conf.FlagCreatePairsOff[bool] = False
    """Continue an interrupted run in --out; it ends with the same bits as an uninterrupted one."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace the run in --out."""
    data_dir: Path | None = None
    """Where datasets lie; default AIRCOMP_DATA or the user's cache directory."""


def run(args: Sequence[str]) -> None:
    """Parse, simulate, summarise."""
    preset, rest = split_preset(with_full_names(args, full_name))
    start = starting_point(preset, rest)
    options = parse(Options, rest, f"simulate {preset or 'PRESET'}", Options(start))
    given = given_settings(Experiment, rest)
    experiment = heard_by(with_unset(options.experiment, start, given), given)
    check_given(experiment, given)
    stem = f"{Path(preset).stem if preset else 'run'}-{experiment.uplink.name}"
    with (
        output_directory(options.out, stem, resume=options.resume) as out,
        progress_bar(stem, experiment.rounds) as (progress, task),
    ):

        def show(record: dict[str, Any], _: Any) -> None:
            note = f"K_a {record['num_active']}"
            if "test_accuracy" in record:
                note += f"  test accuracy {record['test_accuracy']:.3f}"
            progress.update(task, completed=record["round"], note=note)

        result = simulate(
            experiment,
            out=out,
            resume=options.resume,
            overwrite=options.overwrite,
            data_dir=options.data_dir,
            on_round=show,
        )
    report(result, out)


def report(result: Simulation, out: Path) -> None:
    """Print the summary and draw the curves."""
    columns = columns_of(name for name in COLUMNS if result.row.get(name) is not None)
    print_table(f"{result.row['dataset']}, {out}", [result.row], columns)
    for figure in draw_run(result, out):
        print(figure)


def split_preset(args: Sequence[str]) -> tuple[str | None, list[str]]:
    """Find the preset among the arguments: a known name, a TOML file, or else the first word."""
    words = [i for i, word in enumerate(args) if word in preset_names() or word.endswith(".toml")]
    if not words and args and not args[0].startswith("-"):
        words = [0]
    if not words:
        return None, list(args)
    place = words[0]
    return args[place], [*args[:place], *args[place + 1 :]]


def starting_point(preset: str | None, rest: Sequence[str]) -> Flags:
    """Return the settings that the command line overrides: the preset's, or a resumed run's own."""
    if preset is not None:
        return Flags.of(load_experiment(preset))
    if "--help" in rest or "-h" in rest:
        return Flags()
    out = value_of(rest, "--out")
    if "--resume" in rest and out:
        config = Path(out) / "config.toml"
        if not os.path.lexists(config):
            raise ArtefactError(f"{out} holds no run to resume; check --out")
        return Flags.of(read_toml(config))
    raise ConfigError(f"no preset was given; expected one of {', '.join(preset_names())} or a TOML file")
