"""`aircomp simulate PRESET`: one federated run."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from aircomp.cli.common import output_directory, print_table, progress_bar, value_of
from aircomp.cli.flags import parse_settings
from aircomp.errors import ArtefactError, ConfigError
from aircomp.federation.experiment import Experiment, full_name, load_experiment, preset_names, read_toml
from aircomp.measure.fields import columns_of

if TYPE_CHECKING:
    from aircomp.federation.run import Simulation

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


HIDDEN = ("own",)
"""Settings that only Python can give."""
USUAL = (
    *("rounds", "seed", "workers", "device", "data.name", "devices.total"),
    *("participation.kind", "participation.low", "participation.high", "participation.number"),
    *(
        "participation.probability",
        "participation.trace",
        "partition.kind",
        "partition.iid_fraction",
        "partition.alpha",
    ),
    *("model.name", "model.width", "local.epochs", "local.steps", "local.batch_size", "local.learning_rate"),
    *("corruption.kind", "corruption.fraction", "feedback.kind", "uplink.name", "uplink.layer", "uplink.pilots"),
    *("channel.kind", "channel.model", "channel.snr_db", "channel.snr_reference", "channel.antennas"),
    *("channel.access_points", "channel.block_slots", "channel.path_loss", "power.control", "power.threshold"),
    *("aggregate.rule", "aggregate.readout", "server.kind", "server.learning_rate"),
)
"""What `--help` shows."""


@dataclass(frozen=True)
class Options:
    """Run federated training over an uplink; every setting of the preset can be overridden.

    --help shows the usual flags of the chosen uplink, channel and so on; --help-all shows every one of them, in full.

    Short forms: --uplink, --layer, --channel, --snr-db, --snr-reference, --aggregator stand for --uplink.name,
    --uplink.layer, --channel.kind, --channel.snr-db, --channel.snr-reference, --aggregate.rule.

    Examples:
      aircomp simulate digits
      aircomp simulate digits --uplink gamp --snr-db 5 --rounds 40
      aircomp simulate digits --devices.total 100 --corruption.kind noise --aggregator trimmed-mean
      aircomp simulate my-preset.toml --out runs/mine
      aircomp simulate --resume --out runs/mine
    """

    experiment: Annotated[Experiment, tyro.conf.arg(name="")]
    out: Path | None = None
    """Run directory; by default a new one under runs/."""
    resume: tyro.conf.FlagCreatePairsOff[bool] = False
    """Continue an interrupted run in --out; it ends with the same bits as an uninterrupted one."""
    other_arithmetic: tyro.conf.FlagCreatePairsOff[bool] = False
    """Resume also where other kernels or another torch compute than before; the last bits then differ."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace the run in --out."""
    data_dir: Path | None = None
    """Where datasets lie; default AIRCOMP_DATA or the user's cache directory."""


def run(args: Sequence[str]) -> None:
    """Parse, simulate, summarise."""
    preset, rest = split_preset(args)
    start = starting_point(preset, rest)
    prog = f"simulate {preset or 'PRESET'}"
    options, given = parse_settings(Options, rest, prog, start, hidden=HIDDEN, usual=USUAL, full_name=full_name)
    from aircomp.federation.configure import check_given, default_scheme  # from here on with torch
    from aircomp.federation.simulate import simulate

    experiment = default_scheme(options.experiment, given)
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
            other_arithmetic=options.other_arithmetic,
            overwrite=options.overwrite,
            data_dir=options.data_dir,
            on_round=show,
        )
    report(result, out)


def report(result: "Simulation", out: Path) -> None:
    """Print the summary and draw the curves."""
    if not result.metrics:
        print(f"no round was run, since rounds = 0; {out} holds the model as it is before training")
        return
    from aircomp.report.curves import draw_run

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


def starting_point(preset: str | None, rest: Sequence[str]) -> Experiment:
    """Return the settings that the command line overrides: the preset's, or a resumed run's own."""
    if preset is not None:
        return load_experiment(preset)
    if {"--help", "-h", "--help-all"} & set(rest):
        return Experiment()
    out = value_of(rest, "--out")
    if "--resume" in rest and out:
        config = Path(out) / "config.toml"
        if not os.path.lexists(config):
            raise ArtefactError(f"{out} holds no run to resume; check --out")
        return read_toml(config)
    raise ConfigError(f"no preset was given; expected one of {', '.join(preset_names())} or a TOML file")
