"""Why AMP-DA collapses in Table I: federated runs tested under every treatment of BatchNorm's statistics.

The authors' federated code sums the BatchNorm buffers of all active devices exactly and divides them by the rounded estimate
of their number. Here each run is tested so, and with buffers that are averaged, local, or recomputed.
"""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from aircomp.common.results import Row
from aircomp.measure.fields import label_of
from aircomp.report.rows import lines_of, present, series_of, table_of
from aircomp.reproduce import paper
from aircomp.reproduce.jobs import Job
from aircomp.reproduce.parts import Found, Outcome, central, federated, fragments, trained
from aircomp.reproduce.scales import Scale
from aircomp.reproduce.summary import over_seeds
from aircomp.reproduce.treatments import scale_after, settled_scale

CONTENDERS: dict[str, dict[str, Any]] = {
    "amp-da": {"uplink": "amp-da"},
    "gamp-net": {"uplink": "gamp-net", "side_information": "none"},
    "best": {
        "uplink": "gamp-net",
        "side_information": "both",
        "aggregate.readout": "unbiased",
        "air.repeat": "auto",
    },
}
"""The uplinks of Table I and the best of this package."""

SCALED = (0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.45, 1.7, 2.0)
"""Factors of the running statistics that the trained model is tested with."""
STEPS_SNR_DB = (0.0, 5.0)


def table_one_run(scale: Scale, seed: int, name: str, snr_db: float | None, settings: dict[str, Any]) -> Job:
    """Return one run of Table I: a contender at an SNR, or perfect aggregation.

    Where the scale tests treatments of buffers, AMP-DA-Net is trained and run in the paper's configuration.
    """
    if name == "perfect":
        job = federated(scale, seed, {"uplink": "perfect"} | settings)
    else:
        noise = {"channel.snr_db": snr_db, "channel.snr_reference": "slot"}
        as_published = bool(scale.tested) and name == "gamp-net"
        layer = trained(scale, 0, {}, fragments(scale, 0)) if as_published else None
        job = federated(scale, seed, CONTENDERS[name] | noise | settings, layer)
    return tested_after(job, scale.tested) if scale.tested else job


def tested_after(job: Job, rounds: Sequence[int]) -> Job:
    """Return a federated run that is tested under every treatment of buffers after some rounds."""
    return Job("treatments", job.params | {"tested": list(rounds)}, job.needs)


def table_one_jobs(
    scale: Scale, seeds: Sequence[int], snrs_db: Sequence[float], settings: dict[str, Any] | None = None
) -> list[tuple[Row, Job]]:
    """Return a run for each contender, SNR and seed, and perfect aggregation."""
    found = []
    for seed in seeds:
        runs = [("perfect", None), *((name, snr_db) for name in CONTENDERS for snr_db in snrs_db)]
        for name, snr_db in runs:
            job = table_one_run(scale, seed, name, snr_db, settings or {})
            found.append(({"uplink": name, "snr_db": snr_db}, job))
    return found


# ── treatments of BatchNorm's statistics ─────────────────────────────────────────────────────────────────────────────


def batch_norm_jobs(scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    """Return the runs of Table I; for one seed also with more local steps and with GroupNorm; and a scaled model."""
    seed = seeds[0]
    usual = {"local_steps": scale.steps[0], "norm": "batch"}
    found = [(row | usual, job) for row, job in table_one_jobs(scale, seeds, scale.snr_db)]
    for steps in scale.steps[1:]:
        rounds = 3 if steps > 100 else 4  # so many steps leave nothing of the statistics before
        settings = {"local.steps": steps, "rounds": rounds, "evaluate_every": rounds}
        for name, snr_db in (("perfect", None), *(("amp-da", snr_db) for snr_db in STEPS_SNR_DB)):
            job = tested_after(table_one_run(scale, seed, name, snr_db, settings), (rounds - 1, rounds))
            found.append(({"uplink": name, "snr_db": snr_db, "local_steps": steps, "norm": "batch"}, job))
    for row, job in table_one_jobs(scale, seeds[:1], STEPS_SNR_DB, {"model.norm": "group"}):
        found.append((row | usual | {"norm": "group"}, job))
    found.append(({"uplink": "scaled"}, Job("scaled", {"scales": list(SCALED)}, (central(scale, {}),))))
    return found


SCALES_OF = ("num_active_ratio", "settled_scale", "predicted_scale", "buffer_scale")
BY = ("uplink", "snr_db", "buffers", "local_steps", "norm")


def batch_norm(scale: Scale, found: Found) -> Outcome:
    """Show accuracy by treatment, beside Table I and the scale that K's error predicts."""
    runs = [(row | _counted(payload), payload) for row, payload in found if row["uplink"] != "scaled"]
    scaled = over_seeds(
        [each for each in found if each[0]["uplink"] == "scaled"], ("uplink", "scale"), ("test_accuracy",)
    )
    fields = ("test_accuracy_last5", *SCALES_OF, "update_nmse")
    rows = over_seeds(runs, BY, fields)
    for row in rows:
        if row["buffers"] != "estimated":
            row |= dict.fromkeys(SCALES_OF, None)
    usual = [row for row in rows if row["local_steps"] == scale.steps[0] and row["norm"] == "batch"]
    wide = [_beside(usual, name, snr_db) for name, snr_db in dict.fromkeys((r["uplink"], r["snr_db"]) for r in usual)]
    estimated = [row for row in rows if row["buffers"] == "estimated" and row["uplink"] != "perfect"]
    group = [row for row in rows if row["norm"] == "group"]
    tables = (
        table_of("Test accuracy by treatment of the buffers", wide, list(wide[0]), TREATMENTS_NOTE),
        table_of(
            "The scale of the statistics, measured and predicted",
            estimated,
            ("uplink", "snr_db", "local_steps", *SCALES_OF, fields[0]),
            SCALE_NOTE,
        ),
        table_of("GroupNorm, which has no buffers", group, ("uplink", "snr_db", fields[0], "update_nmse")),
        table_of("The trained model with scaled statistics", scaled, ("scale", "test_accuracy")),
    )
    by_scale = series_of(estimated, ["uplink", "local_steps"], "buffer_scale", fields[0])
    by_scale |= series_of(
        [{"model": "trained model, statistics scaled"} | r for r in scaled], ["model"], "scale", "test_accuracy"
    )
    by_treatment = series_of([r for r in usual if r["uplink"] == "amp-da"], ["buffers"], "snr_db", fields[0])
    by_treatment |= {"Table I": [(snr_db, paper.TEST_ACCURACY["amp-da", snr_db]) for snr_db in scale.snr_db]}
    drawn = present(
        [
            lines_of(
                by_treatment,
                label_of("snr_db"),
                label_of(fields[0]),
                "AMP-DA by treatment of the buffers, beside Table I",
            ),
            lines_of(
                {label: sorted(points) for label, points in by_scale.items()},
                "scale of the statistics (1 is right)",
                label_of(fields[0]),
                "Accuracy against the scale that dividing by the estimate leaves",
            ),
        ]
    )
    return Outcome([*rows, *scaled], tables, drawn)


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
    "Average: over their true number. Local: the base station's own. Recomputed: from the base station's data. The weights "
    "are the same under all four. Perfect aggregation knows the number, so that estimated and average are one."
)
SCALE_NOTE = (
    "K over its estimate is the mean over the rounds. The scale settles at r(1−m)/(1−rm), r that ratio, m = 0.9 to the "
    "number of local steps. The predicted scale follows K over its estimate from round to round; the measured one is that of "
    "the last round's buffers against averaged ones."
)

# ── from scratch ─────────────────────────────────────────────────────────────────────────────────────────────────────

SCRATCH = {"local.steps": 20, "local.learning_rate": 0.05, "rounds": 150, "evaluate_every": 150}


def from_scratch_jobs(scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    """Return runs of one seed from an untrained model at 0 dB, tested on their way."""
    found = []
    for name, snr_db in (("perfect", None), ("amp-da", 0.0), ("gamp-net", 0.0), ("best", 0.0)):
        job = table_one_run(replace(scale, central=None), seeds[0], name, snr_db, SCRATCH)
        job = tested_after(job, range(10, SCRATCH["rounds"] + 1, 10))
        found.append(({"uplink": name, "snr_db": snr_db}, job))
    return found


def from_scratch(scale: Scale, found: Found) -> Outcome:
    """Show how the runs learn, with averaged and with estimated buffers."""
    measured = ("test_accuracy_last5", "test_accuracy", "buffer_scale", "update_nmse")
    rows = [r for r in over_seeds(found, ("uplink", "snr_db", "buffers"), measured) if r["buffers"] in SHOWN]
    curves = {
        f"{run['uplink']}, {treatment}": [
            (row["round"], row["test_accuracy"]) for row in payload["rounds"] if row["buffers"] == treatment
        ]
        for run, payload in found
        for treatment in (SHOWN[:1] if run["uplink"] == "perfect" else SHOWN)
    }
    line = lines_of(curves, "round", label_of("test_accuracy"), "From scratch at 0 dB, by treatment of the buffers")
    table = table_of("From scratch at 0 dB", rows, ("uplink", "snr_db", "buffers", *measured), SCRATCH_NOTE)
    return Outcome(rows, (table,), present([line]))


SHOWN = ("average", "estimated")
SCRATCH_NOTE = (
    "One seed, 150 rounds, 20 local steps of batch 20 at rate 0.05, tested every ten rounds. Buffers as in the result "
    "batch_norm."
)
