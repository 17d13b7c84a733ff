"""`aircomp central PRESET`: train a preset's model on all data in one place, as a start for federated runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from aircomp.cli.common import output_directory, print_table, progress_bar
from aircomp.cli.flags import parse_settings
from aircomp.cli.simulate import HIDDEN, split_preset, starting_point
from aircomp.common.outdir import open_directory
from aircomp.federation.experiment import Experiment, full_name
from aircomp.federation.settings import CentralSettings


@dataclass(frozen=True)
class Options:
    """Train a preset's model centrally; `simulate --start DIR` begins from it. Model, data and seed are the preset's.

    Examples:
      aircomp central cifar10-desktop --out runs/start
      aircomp simulate cifar10-desktop --start runs/start --uplink amp-da --snr-db 0
      aircomp central digits --central.epochs 10 --central.batch-size 32 --central.learning-rate 0.1
    """

    experiment: Annotated[Experiment, tyro.conf.arg(name="")]
    central: CentralSettings = field(default_factory=CentralSettings)
    out: Path | None = None
    """Gets model.safetensors and result.json; by default a new directory under runs/."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace the model in --out."""
    data_dir: Path | None = None
    """Where datasets lie; default AIRCOMP_DATA or the user's cache directory."""


def run(args: Sequence[str]) -> None:
    """Parse, train, summarise."""
    preset, rest = split_preset(args)
    start = starting_point(preset, rest)
    options, _ = parse_settings(
        Options, rest, f"central {preset or 'PRESET'}", start, hidden=HIDDEN, full_name=full_name
    )
    from aircomp.common import results  # from here on with torch
    from aircomp.data.images import load
    from aircomp.federation.central import train_centrally
    from aircomp.federation.configure import configure
    from aircomp.federation.simulate import build_model

    experiment, settings = configure(options.experiment, {}), options.central
    stem = f"start-{Path(preset).stem if preset else 'run'}"
    data = load(experiment.data.name, options.data_dir)
    module = build_model(experiment, data).to(experiment.device)
    config = experiment.model_dump(mode="json", include={"seed", "data", "model", "device"})
    config |= {"central": settings.model_dump(mode="json")}
    with (
        output_directory(options.out, stem) as out,
        open_directory(out, "central", overwrite=options.overwrite),
        progress_bar(stem, settings.epochs) as (progress, task),
    ):
        row = train_centrally(
            module,
            data,
            settings,
            seed=experiment.seed,
            out=out,
            on_epoch=lambda done, accuracy: progress.update(task, completed=done, note=f"accuracy {accuracy:.3f}"),
        )
        results.write_result(out / "result.json", "central", config, experiment.seed, [row])
    print_table(f"{data.variant}, {out}", [row], {"test_accuracy": "test accuracy", "seconds": "seconds"})
