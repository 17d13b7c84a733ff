"""`aircomp pretrain FRAGMENTS…`: train codebook and decoder of a communication layer."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tyro

from aircomp.cli.common import output_directory, print_table, progress_bar, value_of
from aircomp.cli.flags import parse_settings
from aircomp.common.artefact import read_toml
from aircomp.common.settings import Presets
from aircomp.decoders.settings import AmpDaNetSettings
from aircomp.errors import ConfigError, unknown_name
from aircomp.measure.fields import columns_of
from aircomp.train.recipe import (
    BLIND_PRESETS,
    CODE_PRESETS,
    JOINT_PRESETS,
    PAPER_PRESETS,
    PRESETS,
    BlindTrainingSettings,
    CodeSettings,
    JointTrainingSettings,
    PaperTrainingSettings,
    PretrainSettings,
    check_given,
)

CODE_COLUMNS = ("snr_db", "update_nmse", "update_nmse_faded")
JOINT_COLUMNS = ("snr_db", "update_nmse")
BLIND_COLUMNS = ("antennas", "snr_db", "count_accuracy")
COLUMNS = ("snr_db", "count_accuracy", "update_nmse_hard", "update_nmse_soft", "num_active_mae")


@dataclass(frozen=True, kw_only=True)
class _Where:
    """What is trained on, and where to."""

    fragments: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Fragments directories, from `aircomp collect`."""
    preset: str = "default"
    """A recipe of the package, or a TOML file of your own. paper: the paper's layer, as published. authors: the same by the
    authors' code and recipe. default, short, round, zoo, cell: layers of our own network. learned-analog, nomographic:
    analog codes. blind-net: a receiver for fading. joint-net: a joint code. docs/howto/train-layer.md describes each."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where to compute."""
    out: Path | None = None
    """Layer directory; by default a new one under runs/."""
    resume: tyro.conf.FlagCreatePairsOff[bool] = False
    """Continue an interrupted training in --out; it ends with the same bits as an uninterrupted one."""
    other_arithmetic: tyro.conf.FlagCreatePairsOff[bool] = False
    """Resume also where other kernels or another torch compute than before; the last bits then differ."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace what is in --out."""


@dataclass(frozen=True, kw_only=True)
class Options(_Where):
    """Train codebook and decoder end to end on saved fragments; every setting of the preset can be overridden.

    Examples:
      aircomp pretrain runs/fragments-resnet --preset short --out runs/layer
      aircomp pretrain runs/fragments-resnet runs/fragments-digits --seed 1
      aircomp pretrain runs/fragments-resnet --net.num-layers 5 --codebook.no-learned
      aircomp pretrain runs/fragments-resnet --resume --out runs/layer
      aircomp pretrain runs/fragments-raw --preset zoo --out runs/layers
      aircomp pretrain runs/fragments-raw --preset learned-analog --out runs/code
      aircomp pretrain runs/fragments-resnet --preset blind-net --out runs/receiver
      aircomp pretrain runs/fragments-resnet --preset joint-net --out runs/joint
    """

    settings: Annotated[PretrainSettings, tyro.conf.arg(name="")]


@dataclass(frozen=True, kw_only=True)
class PaperOptions(_Where):
    """Train the paper's codebook and decoder as published on saved fragments; every setting of the preset can be overridden.

    Examples:
      aircomp pretrain runs/fragments-resnet --preset paper --out runs/paper-layer
      aircomp pretrain runs/fragments-resnet --preset paper --out runs/paper-layer --resume
      aircomp pretrain runs/fragments-resnet --preset authors --out runs/authors-layer
    """

    settings: Annotated[PaperTrainingSettings, tyro.conf.arg(name="")]


@dataclass(frozen=True, kw_only=True)
class CodeOptions(_Where):
    """Train both networks of an analog code on saved raw fragments; every setting of the preset can be overridden.

    Examples:
      aircomp pretrain runs/fragments-raw --preset learned-analog --out runs/code
      aircomp pretrain runs/fragments-raw --preset learned-analog --code.form free
    """

    settings: Annotated[CodeSettings, tyro.conf.arg(name="")]


@dataclass(frozen=True, kw_only=True)
class BlindOptions(_Where):
    """Train codebook and schedule of a blind receiver on saved fragments; every setting of the preset can be overridden.

    Examples:
      aircomp pretrain runs/fragments-resnet --preset blind-net --out runs/receiver
      aircomp pretrain runs/fragments-resnet --preset blind-net --fading.power-db 6
    """

    settings: Annotated[BlindTrainingSettings, tyro.conf.arg(name="")]


@dataclass(frozen=True, kw_only=True)
class JointOptions(_Where):
    """Train the network of a joint code on saved fragments; every setting of the preset can be overridden.

    Examples:
      aircomp pretrain runs/fragments-resnet runs/fragments-digits --preset joint-net --out runs/joint
      aircomp pretrain runs/fragments-resnet --preset joint-net --joint.width 48
    """

    settings: Annotated[JointTrainingSettings, tyro.conf.arg(name="")]


OTHERS: dict[str, Presets[Any]] = {"code": CODE_PRESETS, "fading": BLIND_PRESETS, "joint": JOINT_PRESETS}
"""Presets of what is no communication layer, by the section that only their files have."""
AnyOptions = Options | PaperOptions | CodeOptions | BlindOptions | JointOptions
AnySettings = PretrainSettings | PaperTrainingSettings | CodeSettings | BlindTrainingSettings | JointTrainingSettings


def run(args: Sequence[str]) -> None:
    """Parse, train, summarise."""
    options, given = parsed(args)
    if not options.fragments:
        raise ConfigError("no fragments directory was given; make one with aircomp collect and name it")
    settings = options.settings
    check_given(settings, given)
    from aircomp.train.blind import pretrain_blind  # from here on with torch
    from aircomp.train.code import pretrain_code
    from aircomp.train.fit import pretrain
    from aircomp.train.joint import pretrain_joint
    from aircomp.train.paper import pretrain_paper
    from aircomp.train.zoo import PRESET as ZOO

    if options.preset == ZOO:
        return _run_zoo(options)
    with (
        output_directory(options.out, "layer", resume=options.resume) as out,
        progress_bar("pretrain", settings.epochs) as (progress, task),
    ):

        def show(record: dict[str, Any]) -> None:
            progress.update(task, completed=record["epoch"], note=_note(record))

        keywords: Any = {
            "on_epoch": show,
            "resume": options.resume,
            "overwrite": options.overwrite,
            "other_arithmetic": options.other_arithmetic,
        }  # Any: of five calls
        keywords["device"] = options.device
        if isinstance(settings, CodeSettings):
            columns, layer = CODE_COLUMNS, pretrain_code(options.fragments, settings, out, **keywords)
        elif isinstance(settings, BlindTrainingSettings):
            columns, layer = BLIND_COLUMNS, pretrain_blind(options.fragments, settings, out, **keywords)
        elif isinstance(settings, JointTrainingSettings):
            columns, layer = JOINT_COLUMNS, pretrain_joint(options.fragments, settings, out, **keywords)
        elif isinstance(settings, PaperTrainingSettings):
            columns, layer = COLUMNS, pretrain_paper(options.fragments, settings, out, **keywords)
        else:
            columns, layer = COLUMNS, pretrain(options.fragments, settings, out, **keywords)
    _print_test("held-out rounds", layer.training, columns)
    print(out / "layer.safetensors")


def _run_zoo(options: AnyOptions) -> None:
    """Train one layer of each size."""
    from aircomp.train.zoo import SIZES, pretrain_zoo

    settings: Any = options.settings
    with (
        output_directory(options.out, "layers", resume=options.resume) as out,
        progress_bar("pretrain", len(SIZES) * settings.epochs) as (progress, task),
    ):
        begun: dict[str, None] = {}

        def show(name: str, record: dict[str, Any]) -> None:
            begun.setdefault(name)
            done = (len(begun) - 1) * settings.epochs + record["epoch"]
            progress.update(task, completed=done, note=f"{name}: {_note(record)}")

        layers = pretrain_zoo(
            options.fragments,
            settings,
            out,
            on_epoch=show,
            resume=options.resume,
            other_arithmetic=options.other_arithmetic,
            overwrite=options.overwrite,
            device=options.device,
        )
    for name, layer in layers.items():
        _print_test(name, layer.training, COLUMNS)
    print(out)


def _note(record: dict[str, Any]) -> str:
    note = f"loss {record['validation_loss']:.4g} (best in epoch {record['best_epoch']})"
    left = record["seconds_left"]
    return f"{note}, at most {f'{left:.0f} s' if left < 90 else f'{left / 60:.0f} min'} left"


def _print_test(what: str, training: dict[str, Any], columns: Sequence[str]) -> None:
    title = f"{what}, {training['test'][0]['snr_reference']} SNR; {training['ended']}, best {training['best_epoch']}"
    print_table(title, training["test"], columns_of(columns))


def parsed(args: Sequence[str]) -> tuple[AnyOptions, list[str]]:
    """Parse into the options of what the preset trains; return also which settings were given."""
    start = starting_point(args)
    kinds: dict[type[Any], type[AnyOptions]] = {
        CodeSettings: CodeOptions,
        BlindTrainingSettings: BlindOptions,
        JointTrainingSettings: JointOptions,
        PaperTrainingSettings: PaperOptions,
        PretrainSettings: Options,
    }
    return parse_settings(kinds[type(start)], args, "pretrain", start, field="settings", full_name=_full_name)


def _full_name(path: str) -> str:
    return "schedule.kind" if path == "schedule" else path


def starting_point(args: Sequence[str]) -> AnySettings:
    """Return the settings that the command line overrides: the preset's, or a resumed training's own."""
    preset, out = value_of(args, "--preset") or "default", value_of(args, "--out")
    if value_of(args, "--preset") is None and "--resume" in args and out and os.path.lexists(Path(out) / "config.toml"):
        preset = str(Path(out) / "config.toml")
    if preset.endswith(".toml"):
        sections = read_toml(Path(preset)) if os.path.lexists(preset) else {}
        kind = next((kind for section, kind in OTHERS.items() if section in sections), PRESETS)
        net = sections.get("net", {})
        if (
            kind is PRESETS
            and isinstance(net, dict)
            and net.get("form") in get_args(AmpDaNetSettings.model_fields["form"].annotation)
        ):
            kind = PAPER_PRESETS
        return kind.read(Path(preset))
    kinds = (PRESETS, PAPER_PRESETS, *OTHERS.values())
    for kind in kinds:
        if preset in kind.names():
            return kind.load(preset)
    raise unknown_name("preset", preset, [name for kind in kinds for name in kind.names()])
