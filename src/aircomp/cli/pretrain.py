"""`aircomp pretrain FRAGMENTS…`: train codebook and decoder of a communication layer."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from aircomp.cli.common import given_settings, output_directory, parse, print_table, progress_bar, value_of
from aircomp.common.settings import check_given
from aircomp.errors import ConfigError
from aircomp.measure.fields import columns_of
from aircomp.train.fit import pretrain
from aircomp.train.recipe import PretrainSettings, load_preset, read_toml

COLUMNS = ("snr_db", "count_accuracy", "update_nmse_hard", "update_nmse_soft", "num_active_mae")


@dataclass(frozen=True)
class Options:
    """Train codebook and decoder end to end on saved fragments; every setting of the preset can be overridden.

    Examples:
      aircomp pretrain runs/fragments-resnet --preset short --out runs/layer
      aircomp pretrain runs/fragments-resnet runs/fragments-digits --seed 1
      aircomp pretrain runs/fragments-resnet --net.num-layers 5 --codebook.no-learned
      aircomp pretrain runs/fragments-resnet --resume --out runs/layer
    """

    fragments: tyro.conf.Positional[tuple[Path, ...]]
    """Fragments directories, from `aircomp collect`."""
    settings: Annotated[PretrainSettings, tyro.conf.arg(name="")]
    preset: str = "default"
    """default, short (a quarter of an hour), round (the package's layer), paper, or a TOML file of your own."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where to compute."""
    out: Path | None = None
    """Layer directory; by default a new one under runs/."""
    resume: tyro.conf.FlagCreatePairsOff[bool] = False
    """Continue an interrupted training in --out; it ends with the same bits as an uninterrupted one."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace what is in --out."""


def run(args: Sequence[str]) -> None:
    """Parse, train, summarise."""
    options = parse(Options, args, "pretrain", Options((), starting_point(args)))
    if not options.fragments:
        raise ConfigError("no fragments directory was given; make one with aircomp collect and name it")
    settings = options.settings
    check_given(settings, given_settings(PretrainSettings, args))
    with (
        output_directory(options.out, "layer", resume=options.resume) as out,
        progress_bar("pretrain", settings.epochs) as (progress, task),
    ):

        def show(record: dict[str, Any]) -> None:
            note = f"loss {record['validation_loss']:.4g} (best in epoch {record['best_epoch']})"
            note += f", at most {record['seconds_left'] / 60:.0f} min left"
            progress.update(task, completed=record["epoch"], note=note)

        layer = pretrain(
            options.fragments,
            settings,
            out,
            on_epoch=show,
            resume=options.resume,
            overwrite=options.overwrite,
            device=options.device,
        )
    training = layer.training
    title = f"held-out rounds, {training['test'][0]['snr_reference']} SNR; {training['ended']}, best {training['best_epoch']}"
    print_table(title, training["test"], columns_of(COLUMNS))
    print(out / "layer.safetensors")


def starting_point(args: Sequence[str]) -> PretrainSettings:
    """Return the settings that the command line overrides: the preset's, or a resumed training's own."""
    preset, out = value_of(args, "--preset"), value_of(args, "--out")
    if preset is None and "--resume" in args and out and os.path.lexists(Path(out) / "config.toml"):
        return read_toml(Path(out) / "config.toml")
    return load_preset(preset or "default")
