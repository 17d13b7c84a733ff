"""`aircomp export LAYER`: the decoder alone, as a file that needs no Python; or the signals of a saved round, for radios."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from aircomp.channel.settings import HIGHEST_SNR_DB, LOWEST_SNR_DB
from aircomp.cli.common import output_directory, parse
from aircomp.common.checks import check_number
from aircomp.errors import ConfigError


@dataclass(frozen=True)
class Options:
    """Write the decoder of a trained layer for other runtimes, or the signals of a saved round for radios.

    docs/howto/export.md describes inputs and outputs of the decoder, docs/howto/iq.md the files of IQ samples.

    Examples:
      aircomp export runs/layer --format onnx --out decoder.onnx
      aircomp export runs/layer --format torch
      aircomp export 128x64 --format sigmf --fragments runs/fragments-digits --snr-db 10 --out runs/iq
    """

    layer: tyro.conf.Positional[Path | None] = None
    """Layer directory, from `aircomp pretrain`; by default the layer that comes with the package."""
    format: Literal["onnx", "torch", "sigmf"] = "onnx"
    """onnx; torch for a .pt2 file of torch.export; sigmf for the IQ samples that devices send and the base station hears."""
    max_devices: int = 40
    """Most devices in a slot; the exported decoder can tell counts up to twice this number."""
    max_variance: float = 4.0
    """Largest variance of noise and signal together, per channel use, that the exported decoder handles exactly."""
    fragments: Path | None = None
    """sigmf: fragments directory, from `aircomp collect`, whose devices send the codewords of the layer."""
    round: int = 0
    """sigmf: which of its rounds, from 0."""
    snr_db: float = 10.0
    """sigmf: signal-to-noise ratio of what the base station hears, in decibels."""
    sample_rate: float = 1e6
    """sigmf: complex samples in a second."""
    seed: int = 0
    """sigmf: the noise derives from it."""
    out: Path | None = None
    """The file, with sigmf the directory; by default a new one under runs/."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace what is in --out."""


def run(args: Sequence[str]) -> None:
    """Parse, export, say where."""
    options = parse(Options, args, "export")
    # only now: they import torch, and a mistake is told without it
    from aircomp.common.outdir import new_directory, open_directory
    from aircomp.layer.communication import CommunicationLayer
    from aircomp.layer.export import SUFFIX, export_layer

    if options.format == "sigmf":
        export_round(options)
        return
    if options.fragments is not None:
        raise ConfigError(
            f"fragments were given with --format {options.format}; only sigmf takes them, so leave them out"
        )
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


def export_round(options: Options) -> None:
    """Write what the devices of a saved round send, and what the base station hears of it."""
    from aircomp.channel.awgn import Awgn
    from aircomp.channel.sigmf import write_sigmf
    from aircomp.common.outdir import open_directory
    from aircomp.common.rng import generator
    from aircomp.layer.communication import CommunicationLayer
    from aircomp.measure.harness import send
    from aircomp.train.fragments import load_round, round_files

    if options.fragments is None:
        raise ConfigError("--format sigmf has no --fragments; give a directory from aircomp collect")
    check_number("seed", options.seed, low=0, integer=True)
    check_number("snr_db", options.snr_db, low=LOWEST_SNR_DB, high=HIGHEST_SNR_DB)
    files = round_files(options.fragments)
    if not 0 <= options.round < len(files):
        raise ConfigError(
            f"round {options.round}: {options.fragments} has rounds 0 to {len(files) - 1}; give one of them"
        )
    codebook, saved = CommunicationLayer.load(options.layer).codebook, load_round(files[options.round])
    if len(codebook) != saved.num_codewords:
        raise ConfigError(
            f"the layer has {len(codebook)} codewords and the round {saved.num_codewords}; give a layer of the round's size"
        )
    rng = generator(options.seed, "export", options.round)
    received = send(saved.indices, codebook, Awgn(options.snr_db), rng=rng).received[0]
    with (
        output_directory(options.out, "export") as out,
        open_directory(out, "export", overwrite=options.overwrite),
    ):
        for device, chosen in enumerate(saved.indices):
            write_sigmf(out / f"device_{device:03d}", codebook[chosen], sample_rate=options.sample_rate)
        about = {"popularity": saved.popularity.tolist(), "snr_db": options.snr_db}
        write_sigmf(out / "received", received, sample_rate=options.sample_rate, about=about)
    print(f"{out}: {saved.num_active} devices and what the base station hears, {saved.num_slots} slots")
