"""`aircomp evaluate`: decode saved rounds with each of several decoders."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import tyro

from aircomp.cli.common import output_directory, parse, print_table, progress_bar
from aircomp.common.outdir import open_directory
from aircomp.common.radio import SnrReference
from aircomp.decoders.settings import SideInformation
from aircomp.encode.settings import CodebookKind
from aircomp.errors import unknown_name
from aircomp.measure.fields import columns_of

WHICH = ("decoder", "codebook", "snr_db", "count_accuracy")
COLUMNS = (*WHICH, "update_nmse_hard", "update_nmse_soft", "num_active_mae", "slots_per_second")
YARDSTICK = (
    *WHICH,
    "posterior_count_accuracy",
    "below_posterior",
    "chains_disagree",
    "count_accuracy_limit",
    "entropy_bits",
    "signal_bits",
    "capacity_bits",
)


@dataclass(frozen=True)
class Options:
    """Decode saved rounds with each decoder at each SNR: the same slots and noise for all.

    Examples:
      aircomp evaluate --fragments runs/fragments-digits --snr-db 0 5 10
      aircomp evaluate --fragments runs/fragments-digits --decoder gamp gamp-net --workers 2
      aircomp evaluate --fragments runs/fragments-resnet --decoder gamp amp-da --snr-reference slot --slots 2000
      aircomp evaluate --fragments runs/fragments-resnet --decoder gamp gamp-net --slots 256 --yardstick
      aircomp evaluate --fragments runs/fragments-digits --decoder gamp-net --num-active 3
    """

    fragments: Path
    """Fragments directory, from `aircomp collect`."""
    snr_db: tuple[float, ...] = (0.0, 3.0, 5.0, 10.0, 15.0, 20.0)
    """Signal-to-noise ratios in decibels."""
    decoder: tuple[str, ...] = ("amp-da", "gamp")
    """Decoders to compare."""
    snr_reference: SnrReference = "round"
    """What the SNR refers to."""
    layer: Path | None = None
    """Directory of a trained layer, or the name of one of the package; by default the package's of these sizes."""
    codebook: Literal["auto", "layer", CodebookKind] = "auto"
    """Random-access codebook; by default the one that each decoder was designed for."""
    side_information: SideInformation = "both"
    """Side information: what decoders know of each slot beforehand. Its layer, the base station's own codeword, both
    or none."""
    slots: int | None = None
    """Number of slots to take from each round, a seeded sample; by default all."""
    num_active: int | None = None
    """Number of devices of each round that send, the first ones; by default all."""
    yardstick: tyro.conf.FlagCreatePairsOff[bool] = False
    """Also sample the exact posterior for every codebook. Prints how far each decoder stays below it, and the limit
    that the information of a slot sets. Takes milliseconds per slot, so take few with --slots."""
    seed: int = 0
    """Everything random derives from it."""
    workers: int = 1
    """Rounds decoded at a time, each by a process of one thread: the fastest where there are many short rounds. By
    default one round at a time, by all cores."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where to compute."""
    out: Path | None = None
    """Directory for result.json; by default a new one under runs/."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace the result in --out."""


def run(args: Sequence[str]) -> None:
    """Parse, evaluate, print."""
    options = parse(Options, args, "evaluate")
    from aircomp.common import results  # from here on with torch
    from aircomp.schemes.digital.decoders import decoder_names
    from aircomp.train.evaluate import Plan, evaluate

    for name in options.decoder:
        if name not in decoder_names():
            raise unknown_name("decoder", name, decoder_names())
    plan = Plan(
        options.decoder,
        options.snr_db,
        options.snr_reference,
        options.codebook,
        layer=options.layer,
        side_information=options.side_information,
        num_slots=options.slots,
        num_active=options.num_active,
        seed=options.seed,
        device=options.device,
        yardstick=options.yardstick,
    )
    config = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(options).items()}
    with (
        output_directory(options.out, "evaluate") as out,
        open_directory(out, "evaluate", overwrite=options.overwrite),
    ):
        with progress_bar("evaluate", 1) as (progress, task):
            rows = evaluate(
                options.fragments,
                plan,
                num_workers=options.workers,
                on_step=lambda note, done, total: progress.update(task, completed=done, total=total, note=note),
            )
        results.write_result(out / "result.json", "evaluate", config, options.seed, rows)
    print_table(f"{options.fragments}, {plan.snr_reference} SNR", rows, columns_of(COLUMNS))
    if options.yardstick:
        print_table("beside the posterior and the information of a slot", rows, columns_of(YARDSTICK))
    print(out / "result.json")
