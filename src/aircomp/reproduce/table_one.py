"""Table I, and why AMP-DA collapses in it: federated runs tested under two treatments of BatchNorm's statistics.

The authors' federated code sums the BatchNorm buffers of all active devices exactly and divides them by the rounded estimate
of their number. Here each run is tested so, and with buffers that are averaged over the true number.
"""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from aircomp.common.results import Row
from aircomp.measure.fields import label_of
from aircomp.report.page import Figure
from aircomp.report.rows import lines_of, present, series_of, table_of
from aircomp.reproduce import paper
from aircomp.reproduce.jobs import Job
from aircomp.reproduce.parts import Found, Outcome, as_published, at, central, federated
from aircomp.reproduce.scales import Scale
from aircomp.reproduce.summary import over_seeds
from aircomp.reproduce.treatments import scale_after, settled_scale

PUBLISHED = ("amp-da", "amp-da-net")
"""The contenders of Table I beside perfect aggregation."""
OURS: dict[str, dict[str, Any]] = {
    "ours: gamp-net": {"uplink": "gamp-net", "side_information": "none"},
    "ours: gamp": {"uplink": "gamp", "side_information": "none"},
    "ours: best": {
        "uplink": "gamp-net",
        "side_information": "both",
        "aggregate.readout": "unbiased",
        "air.repeat": "auto",
    },
}
"""Contenders of this package, by what results call them."""

SCALED = (0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.45, 1.7, 2.0)
"""Factors of the running statistics that the trained model is tested with."""


def table_one_run(scale: Scale, seed: int, name: str, snr_db: float | None) -> Job:
    """Return one run of Table I: a contender at an SNR, or perfect aggregation without one."""
    job = federated(scale, seed, _settings(name, snr_db))
    return tested_after(job, scale.tested) if scale.tested else job


def _settings(name: str, snr_db: float | None) -> dict[str, Any]:
    if snr_db is None:
        return {"uplink": name}
    return as_published(snr_db) | {"uplink": name} | OURS.get(name, {}) | at(snr_db)


def tested_after(job: Job, rounds: Sequence[int]) -> Job:
    """Return a federated run that is tested under both treatments of buffers after some rounds."""
    return Job("treatments", job.params | {"tested": list(rounds)}, job.needs)


def table_one_jobs(scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    """Return a run for each contender, SNR and seed, and perfect aggregation."""
    runs: list[tuple[str, float | None]] = [("perfect", None)]
    runs += [(name, snr_db) for name in PUBLISHED for snr_db in scale.snr_db]
    runs += [(name, snr_db) for name in scale.ours for snr_db in scale.snr_db if snr_db in scale.ours_snr_db]
    return [
        ({"uplink": name, "snr_db": snr_db}, table_one_run(scale, seed, name, snr_db))
        for seed in seeds
        for name, snr_db in runs
    ]


# ── treatments of BatchNorm's statistics ─────────────────────────────────────────────────────────────────────────────


def batch_norm_jobs(scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    """Return the runs of Table I, and a trained model whose statistics are scaled."""
    scaled = ({"uplink": "scaled"}, Job("scaled", {"scales": list(SCALED)}, (central(scale, {}),)))
    return [*table_one_jobs(scale, seeds), scaled]


SCALES_OF = ("num_active_ratio", "settled_scale", "predicted_scale", "buffer_scale")


def batch_norm(scale: Scale, found: Found) -> Outcome:
    """Show accuracy by treatment, beside Table I and the scale that K's error predicts."""
    runs = [(row | _counted(payload), payload) for row, payload in found if row["uplink"] != "scaled"]
    tests = [each for each in found if each[0]["uplink"] == "scaled"]
    scaled = over_seeds(tests, ("uplink", "scale"), ("test_accuracy",))
    accuracy = "test_accuracy_last5"
    rows = over_seeds(runs, ("uplink", "snr_db", "buffers"), (accuracy, *SCALES_OF, "update_nmse"))
    for row in rows:
        if row["buffers"] != "estimated":
            row |= dict.fromkeys(SCALES_OF, None)
    wide = [_beside(rows, name, snr_db) for name, snr_db in dict.fromkeys((r["uplink"], r["snr_db"]) for r in rows)]
    estimated = [row for row in rows if row["buffers"] == "estimated" and row["uplink"] != "perfect"]
    scales_title = "The scale of the statistics, measured and predicted"
    tables = (
        table_of("Test accuracy by treatment of the buffers", wide, list(wide[0]), TREATMENTS_NOTE),
        table_of(scales_title, estimated, ("uplink", "snr_db", *SCALES_OF, accuracy), SCALE_NOTE),
        table_of("The trained model with scaled statistics", scaled, ("scale", "test_accuracy")),
    )
    by_scale = series_of(estimated, ["uplink"], "buffer_scale", accuracy)
    by_scale |= {"trained model, statistics scaled": [(r["scale"], r["test_accuracy"]) for r in scaled]}
    drawn = present(
        [
            beside_table_one(rows),
            lines_of(
                {label: sorted(points) for label, points in by_scale.items()},
                "scale of the statistics (1 is right)",
                label_of(accuracy),
                "Accuracy against the scale that dividing by the estimate leaves",
            ),
        ]
    )
    return Outcome([*rows, *scaled], tables, drawn)


def beside_table_one(rows: Sequence[Row]) -> Figure | None:
    """Draw AMP-DA and AMP-DA-Net by treatment of the buffers, beside what Table I has for them."""
    name = "test_accuracy_last5"
    series = series_of([row for row in rows if row["uplink"] in PUBLISHED], ["uplink", "buffers"], "snr_db", name)
    snrs = sorted({row["snr_db"] for row in rows if row["uplink"] in PUBLISHED})
    for uplink in PUBLISHED if series else ():
        series[f"{uplink}, Table I"] = [(s, paper.TEST_ACCURACY[uplink, s]) for s in snrs]
    return lines_of(series, label_of("snr_db"), label_of(name), "By treatment of the buffers, beside Table I")


def _counted(payload: dict[str, Any]) -> Row:
    """Return the mean of K over its rounded estimate, where the buffers' scale settles by it, and where it should be."""
    ratios = [number / max(1, round(estimate)) for number, estimate in payload["num_active"]]
    ratio, steps = statistics.fmean(ratios), payload["local_steps"]
    predicted = {"settled_scale": settled_scale(ratio, steps), "predicted_scale": scale_after(ratios, steps)}
    return {"num_active_ratio": ratio} | predicted


def _beside(rows: Sequence[Row], uplink: str, snr_db: float | None) -> Row:
    """Put the treatments of one uplink and SNR into one row, beside the paper's number."""
    same = [row for row in rows if (row["uplink"], row["snr_db"]) == (uplink, snr_db)]
    wide: Row = {"uplink": uplink, "snr_db": snr_db, "seeds": same[0]["seeds"]}
    for row in same:
        wide |= {row["buffers"]: row["test_accuracy_last5"], f"{row['buffers']}_std": row["test_accuracy_last5_std"]}
    return wide | {"paper_test_accuracy": paper.TEST_ACCURACY.get((uplink, snr_db))}


TREATMENTS_NOTE = (
    "Estimated: the exact sum of the devices' buffers over the rounded estimate of their number, as in the authors' code. "
    "Average: over their true number. The weights are the same under both. Perfect aggregation knows the number, so that "
    "estimated and average are one."
)
SCALE_NOTE = (
    "K over its estimate is the mean over the rounds. The scale settles at r(1−m)/(1−rm), r that ratio, m = 0.9 to the "
    "number of local steps. The predicted scale follows K over its estimate from round to round; the measured one is that of "
    "the last round's buffers against averaged ones."
)

# ── from scratch ─────────────────────────────────────────────────────────────────────────────────────────────────────

SCRATCH = {"rounds": 300, "evaluate_every": 300, "model.stem_stride": 2}
"""The paper's federated training at half resolution."""
SCRATCH_RUNS = (("perfect", None), *((name, snr_db) for snr_db in (0.0, 5.0) for name in PUBLISHED))


def from_scratch_jobs(scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    """Return runs of one seed from an untrained model, tested on their way."""
    whole = replace(
        scale, preset="cifar10", federated=SCRATCH, central=None, tested=tuple(range(5, SCRATCH["rounds"] + 1, 5))
    )
    return [
        ({"uplink": name, "snr_db": snr_db}, table_one_run(whole, seeds[0], name, snr_db))
        for name, snr_db in SCRATCH_RUNS
    ]


def from_scratch(scale: Scale, found: Found) -> Outcome:
    """Show how the runs learn, with averaged and with estimated buffers."""
    measured = ("test_accuracy_last5", "test_accuracy", "buffer_scale", "update_nmse")
    rows = over_seeds(found, ("uplink", "snr_db", "buffers"), measured)
    curves = {
        f"{_name(run)}, {treatment}": [
            (row["round"], row["test_accuracy"]) for row in payload["rounds"] if row["buffers"] == treatment
        ]
        for run, payload in found
        for treatment in (("average",) if run["uplink"] == "perfect" else ("average", "estimated"))
    }
    line = lines_of(curves, "round", label_of("test_accuracy"), "From scratch, by treatment of the buffers")
    table = table_of("From scratch", rows, ("uplink", "snr_db", "buffers", *measured), SCRATCH_NOTE)
    return Outcome(rows, (table,), present([line]))


def _name(run: Row) -> str:
    return run["uplink"] if run["snr_db"] is None else f"{run['uplink']} at {run['snr_db']:g} dB"


SCRATCH_NOTE = (
    "One seed, 300 rounds of the paper's local training (three epochs of 80 % of a device's data, batches of 20, rate 0.01) "
    "on its ResNet at half resolution, tested every five rounds. Buffers as in the result batch_norm."
)
