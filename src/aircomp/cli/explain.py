"""`aircomp explain`: one slot decoded layer by layer, drawn."""

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from aircomp.channel.snr import LOWEST_SNR_DB
from aircomp.cli.common import output_directory, parse, print_table
from aircomp.common import results
from aircomp.common.checks import check_number
from aircomp.common.outdir import open_directory
from aircomp.layer import CommunicationLayer
from aircomp.measure.fields import columns_of


@dataclass(frozen=True)
class Options:
    """Send one round over the air and show how the learned decoder decodes one of its slots, layer by layer.

    Examples:
      aircomp explain
      aircomp explain --snr-db 3 --slot 7 --num-active 12
      aircomp explain --layer runs/layer
    """

    snr_db: float = 5.0
    """Signal-to-noise ratio in decibels."""
    num_active: int = 10
    """Devices that send."""
    slot: int = 0
    """Which of the 512 slots."""
    layer: Path | None = None
    """Directory of a trained layer; by default the one that comes with the package."""
    seed: int = 0
    """Everything random derives from it."""
    out: Path | None = None
    """Directory for report.html and result.json; by default a new one under runs/."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace what is in --out."""


NUM_SLOTS = 512
"""Of the round: enough to estimate what its slots share."""


def run(args: Sequence[str]) -> None:
    """Trace a slot and write its page."""
    from aircomp.report.explain import example_round, rows_of, trace_slot, write_explanation

    options = parse(Options, args, "explain")
    check_number("slot", options.slot, low=0, high=NUM_SLOTS - 1, integer=True)
    check_number("num_active", options.num_active, low=1, high=100, integer=True)
    check_number("seed", options.seed, low=0, integer=True)
    check_number("snr_db", options.snr_db, low=LOWEST_SNR_DB, high=sys.float_info.max)
    layer = CommunicationLayer.load(options.layer)
    counts, popularity = example_round(
        len(layer.codebook), num_active=options.num_active, num_slots=NUM_SLOTS, seed=options.seed
    )
    config = {k: str(v) if isinstance(v, Path) else v for k, v in dataclasses.asdict(options).items()}
    command = f"aircomp explain --snr-db {options.snr_db:g} --num-active {options.num_active} --slot {options.slot}"
    text = (
        f"{options.num_active} devices each send one of {len(layer.codebook)} codewords at the same time, at "
        f"{options.snr_db:g} dB. The decoder starts from how often each codeword is used in the round, and every layer "
        "explains more of what the antenna received. Row 0 of the table is the start."
    )
    with output_directory(options.out, "explain") as out, open_directory(out, "explain", overwrite=options.overwrite):
        trace = trace_slot(layer, counts, popularity, snr_db=options.snr_db, slot=options.slot, seed=options.seed)
        rows = rows_of(trace)
        results.write_result(out / "result.json", "explain", config, options.seed, rows)
        page = write_explanation(trace, out, text=text, command=command, config=config)
    print_table("one slot, layer by layer", rows, columns_of(rows[0]))
    print(page)
