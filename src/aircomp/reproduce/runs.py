"""Results of federated runs: over SNR, with variants of training, on another architecture, with corrupted devices.

The network is the paper's: the package's layer `paper`, or layers that are trained here as the paper trains them.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

from aircomp.common.results import Row
from aircomp.measure.fields import label_of
from aircomp.report.rows import bars_of, lines_of, present, series_of, table_of
from aircomp.reproduce import paper
from aircomp.reproduce.jobs import Job
from aircomp.reproduce.parts import Found, Outcome, as_published, federated, fragments, trained
from aircomp.reproduce.scales import Scale
from aircomp.reproduce.summary import over_seeds, working_range
from aircomp.reproduce.table_one import table_one_jobs

# ── federated accuracy (Table I) ─────────────────────────────────────────────────────────────────────────────────────


def fed_accuracy_jobs(scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    """Return a run for each contender, SNR and seed, and perfect aggregation."""
    return table_one_jobs(scale, seeds)


def fed_accuracy(scale: Scale, found: Found) -> Outcome:
    """Show accuracy and stability over SNR, and the decibels gained."""
    fields = ("test_accuracy_last5", "stability", "count_accuracy", "update_nmse", "num_active_mae", "seconds")
    averaged = [(row, payload | {"rows": _averaged(payload["rows"])}) for row, payload in found]
    rows = over_seeds(averaged, ("uplink", "snr_db"), fields)
    for row in rows:
        row["paper_test_accuracy"] = paper.TEST_ACCURACY.get((row["uplink"], row["snr_db"]))
    noisy = [row for row in rows if row["snr_db"] is not None]
    ranges = working_range(noisy, "amp-da", rows[0]["test_accuracy_last5"])
    headings = (
        "uplink",
        "snr_db",
        "test_accuracy_last5",
        "paper_test_accuracy",
        "stability",
        "count_accuracy",
        "update_nmse",
        "seeds",
    )
    tables = (
        table_of("Test accuracy and stability", rows, headings, f"{paper.NOTE} {OURS_NOTE}"),
        table_of(
            "The lowest SNR that works, and decibels gained over AMP-DA",
            ranges,
            ("within", "uplink", "lowest_snr_db", "gain_db"),
            RANGE_NOTE,
        ),
    )
    levels = {"perfect": rows[0]["test_accuracy_last5"]}
    series = series_of(noisy, ["uplink"], "snr_db", "test_accuracy_last5")
    drawn = present(
        [
            lines_of(series, label_of("snr_db"), label_of("test_accuracy_last5"), "Test accuracy", references=levels),
            lines_of(
                series_of(noisy, ["uplink"], "snr_db", "stability"),
                label_of("snr_db"),
                label_of("stability"),
                "Stability",
            ),
        ]
    )
    return Outcome(rows + ranges, tables, drawn)


def _averaged(rows: list[Row]) -> list[Row]:
    """Leave out the treatments of buffers that are not the package's own."""
    return [row for row in rows if row["buffers"] in ("average", "none")]


OURS_NOTE = (
    "Ours: our own decoders, used as the paper's. Best: gamp-net told each slot's layer and the base station's own codeword, "
    "its unbiased readout, and slots sent several times where the estimated SNR is low, at the same channel uses and energy."
)
RANGE_NOTE = (
    "The lowest SNR from which on an uplink ends so near to perfect aggregation, interpolated between those measured; the "
    "lowest one measured means that or less, with a gain of that or more, and nothing that it never does. Where AMP-DA works "
    "at all that were measured, no gain is known."
)

# ── variants ─────────────────────────────────────────────────────────────────────────────────────────────────────────

VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "baseline": ({}, {}),
    "curvature-aware": ({"data.curvature_aware": True}, {"quantize.curvature_aware": True}),
    "quantisation loss": ({"loss.quantization": 0.1}, {}),
}


def variants_jobs(scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    """Return runs over layers trained in three ways."""
    found = []
    for seed in seeds:
        for name, (training, running) in VARIANTS.items():
            layer = trained(scale, seed, training, fragments(scale, seed))
            for snr_db in scale.snr_db:
                job = federated(scale, seed, as_published(snr_db) | running, layer)
                found.append(({"variant": name, "snr_db": snr_db}, job))
    return found


def variants(scale: Scale, found: Found) -> Outcome:
    """Show where the variants end."""
    fields = ("test_accuracy_last5", "stability", "count_accuracy", "update_nmse")
    rows = over_seeds(found, ("variant", "snr_db"), fields)
    note = f"{LOSS_NOTE} {paper.FIGURES_ONLY}"
    table = table_of("Test accuracy of the variants", rows, ("variant", "snr_db", *fields, "seeds"), note)
    drawn = [
        lines_of(series_of(rows, ["variant"], "snr_db", name), label_of("snr_db"), label_of(name), title)
        for name, title in (("test_accuracy_last5", "Test accuracy of the variants"), ("stability", "Their stability"))
    ]
    return Outcome(rows, (table,), present(drawn))


LOSS_NOTE = (
    "The quantisation loss shifts the loss and no gradient, because nothing that is trained moves the quantiser: its layer "
    "is that of the baseline."
)


# ── another architecture ─────────────────────────────────────────────────────────────────────────────────────────────


def generalisation_jobs(scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    """Return runs of the other architecture, over layers trained on either."""
    found = []
    for seed in seeds:
        layers = {
            "the other architecture": trained(scale, seed, {}, fragments(scale, seed)),
            "the same architecture": trained(scale, seed, {}, fragments(scale, seed, scale.other_collected)),
        }
        noisy = as_published(10.0)
        others = {
            "perfect aggregation": {"uplink": "perfect"},
            "the package's paper layer": noisy,
            "ours: gamp-net": noisy | {"uplink": "gamp-net"},
        }
        for name, layer in layers.items():
            found.append(({"trained_on": name}, federated(scale, seed, scale.other_model | noisy, layer)))
        for name, settings in others.items():
            found.append(({"trained_on": name}, federated(scale, seed, scale.other_model | settings)))
    return found


def generalisation(scale: Scale, found: Found) -> Outcome:
    """Show where they end and how one seed got there."""
    fields = ("test_accuracy_last5", "stability", "count_accuracy", "update_nmse")
    rows = over_seeds(found, ("trained_on",), fields)
    title = "The unseen architecture at 10 dB, by what the layer was trained on"
    curves = {row["trained_on"]: [tuple(point) for point in payload["curve"]] for row, payload in found}
    line = lines_of(curves, "round", label_of("test_accuracy"), "One seed's convergence")
    return Outcome(
        rows, (table_of(title, rows, ("trained_on", *fields, "seeds"), paper.FIGURES_ONLY),), present([line])
    )


# ── aggregation rules ────────────────────────────────────────────────────────────────────────────────────────────────


def rules_jobs(scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    """Return a run for each rule, error feedback and length of the noise."""
    found = []
    for seed, length, rule, feedback in product(
        seeds, scale.noise_lengths, ("mean", "trimmed-mean", "majority-vote"), ("off", "plain")
    ):
        settings = as_published(10.0)
        settings |= {"aggregate.rule": rule, "feedback.kind": feedback}
        settings |= {"corruption.kind": "noise", "corruption.length": length}
        identity = {"noise": f"×{length:g}", "rule": rule, "error_feedback": feedback}
        found.append((identity, federated(scale, seed, settings)))
    return found


def rules(scale: Scale, found: Found) -> Outcome:
    """Show where the rules end."""
    fields = ("test_accuracy_last5", "best_test_accuracy", "stability", "feedback_ratio", "count_accuracy")
    rows = over_seeds(found, ("noise", "rule", "error_feedback"), fields)
    title = "20 % of the devices send noise, 10 dB"
    bars = bars_of(rows, "rule", ["error_feedback", "noise"], "test_accuracy_last5", title)
    table = table_of(
        title, rows, ("noise", "rule", "error_feedback", *fields, "seeds"), f"{NOISE_NOTE} {paper.FIGURES_ONLY}"
    )
    return Outcome(rows, (table,), present([bars]))


NOISE_NOTE = (
    "The noise is so many times as long as the update that it replaces; the paper does not tell how long its noise was."
)
