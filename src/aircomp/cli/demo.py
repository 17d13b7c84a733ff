"""`aircomp demo`: the main job on data that comes with the package."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from aircomp import results
from aircomp.cli.common import default_out, parse, print_table, progress_bar
from aircomp.errors import ArtefactError
from aircomp.fl.simulate import configure, simulate
from aircomp.report.curves import draw_curves, draw_snr
from aircomp.report.page import Section, write_page
from aircomp.report.rows import HEADINGS, SHARE, accuracy_by_snr, curves_of, present, table_of

NOISY = ("amp-da", "gamp", "amp-da-net")
COLUMNS = {
    "uplink": "uplink",
    "snr_db": "SNR dB",
    "test_accuracy": "test accuracy",
    "accuracy": "count accuracy",
    "num_active_mae": "K MAE",
    "seconds": "seconds",
}


@dataclass(frozen=True)
class Options:
    """Train federated digits over the air with several uplinks at several SNRs, and draw the result.

    Examples:
      aircomp demo
      aircomp demo --rounds 60 --snr-db 0 5 10
    """

    snr_db: tuple[float, ...] = (0.0, 5.0, 10.0)
    """Signal-to-noise ratios of the noisy uplinks."""
    rounds: int = 40
    """Rounds of each run."""
    seed: int = 0
    """Everything random derives from it."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where to compute."""
    out: Path | None = None
    """Directory for result.json, report.html and figures; by default a new one under runs/."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace what is in --out."""


def run(args: Sequence[str]) -> None:
    """Run every uplink at every SNR."""
    options = parse(Options, args, "demo")
    out = options.out or default_out("demo", resume=False)
    if (out / "result.json").exists() and not options.overwrite:
        raise ArtefactError(f"{out} holds a finished demo; replace it with --overwrite or choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    plan: list[tuple[str, float | None]] = [("ideal", None), ("perfect", None)]
    plan += [(uplink, snr_db) for uplink in NOISY for snr_db in options.snr_db]
    rows, curves = [], {}
    begun = time.perf_counter()
    with progress_bar("demo", len(plan) * options.rounds) as (progress, task):
        for uplink, snr_db in plan:
            name = uplink if snr_db is None else f"{uplink}, {snr_db:g} dB"

            def show(record: dict[str, Any], _: Any, name: str = name) -> None:
                progress.update(task, advance=1, note=f"{name}  accuracy {record.get('test_accuracy', 0):.3f}")

            settings: dict[str, Any] = {"uplink": uplink, "rounds": options.rounds, "seed": options.seed}
            settings["device"] = options.device
            settings |= {} if snr_db is None else {"snr_db": snr_db}
            result = simulate(configure("digits", settings), on_round=show)
            rows.append(result.row | {"snr_db": snr_db})
            curves[name] = result.metrics
    config = {"preset": "digits", "rounds": options.rounds, "snr_db": list(options.snr_db)}
    results.write_result(out / "result.json", "demo", config, options.seed, rows)
    print_table(f"federated digits, {options.rounds} rounds", rows, COLUMNS)
    print(draw_snr(rows, out / "accuracy.png"))
    print(draw_curves(curves, out / "curves.png", title="digits"))
    print(write_page(out / "report.html", "Federated digits over the air", [_section(rows, curves, options)]))
    print(f"{out / 'result.json'}   ({time.perf_counter() - begun:.0f} s)")


def _section(rows: list[results.Row], curves: dict[str, list[Any]], options: Options) -> Section:
    text = (
        f"Forty devices, of which seven to thirteen train in each of {options.rounds} rounds; their quantised updates share "
        "the air. Perfect is the same without noise, ideal without quantisation too."
    )
    drawn = [
        accuracy_by_snr(rows, []),
        curves_of(curves, "round", "test_accuracy", HEADINGS["test_accuracy"], "Test accuracy by round", limits=SHARE),
    ]
    names = ("uplink", "snr_db", "test_accuracy", "stability", "accuracy", "update_nmse", "num_active_mae", "seconds")
    return Section(
        "Federated digits",
        text,
        present(drawn),
        (table_of("Uplinks", rows, names),),
        ("aircomp demo",),
        {"result.json": "result.json"},
    )
