"""`aircomp export LAYER`: the decoder alone, as a file that needs no Python."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from aircomp.cli.common import parse


@dataclass(frozen=True)
class Options:
    """Write the decoder of a trained layer for other runtimes; docs/howto/export.md describes its inputs and outputs.

    Examples:
      aircomp export runs/layer --format onnx --out decoder.onnx
      aircomp export runs/layer --format torch
    """

    layer: tyro.conf.Positional[Path | None] = None
    """Layer directory, from `aircomp pretrain`; by default the layer that comes with the package."""
    format: Literal["onnx", "torch"] = "onnx"
    """onnx, or torch for a .pt2 file of torch.export."""
    max_devices: int = 40
    """Most devices in a slot; the exported decoder can tell counts up to twice this number."""
    max_variance: float = 4.0
    """Largest variance of noise and signal together, per channel use, that the exported decoder handles exactly."""
    out: Path | None = None
    """The file; by default a new one under runs/."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace the file in --out."""


def run(args: Sequence[str]) -> None:
    """Parse, export, say where."""
    options = parse(Options, args, "export")
    # only now: they import torch, and a mistake is told without it
    from aircomp.common.outdir import new_directory, open_directory
    from aircomp.layer.communication import CommunicationLayer
    from aircomp.layer.export import SUFFIX, export_layer

    layer = CommunicationLayer.load(options.layer)
    with contextlib.ExitStack() as held:
        path = options.out
        if path is None:
            directory = held.enter_context(new_directory("export"))
            held.enter_context(open_directory(directory, "export"))
            path = directory / f"decoder{SUFFIX[options.format]}"
        export_layer(
            layer,
            path,
            options.format,
            max_devices=options.max_devices,
            max_variance=options.max_variance,
            overwrite=options.overwrite,
        )
    print(path)
