"""Results on saved rounds: decoding them, what the codebook brings and looks like, how to quantise."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from aircomp.common.results import Row
from aircomp.layer.zoo import DEFAULT, PAPER
from aircomp.measure.fields import label_of
from aircomp.report.figures import heatmap
from aircomp.report.rows import (
    SHARE,
    bars_of,
    beside_decoders,
    information_by_snr,
    lines_of,
    present,
    series_of,
    table_of,
)
from aircomp.reproduce import paper
from aircomp.reproduce.jobs import Job, Payload
from aircomp.reproduce.parts import Found, Outcome, fragments, trained
from aircomp.reproduce.scales import Scale
from aircomp.reproduce.summary import over_seeds

# ── decoding saved rounds ────────────────────────────────────────────────────────────────────────────────────────────


def decoding_jobs(scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    """Return the decoding of rounds that no layer was trained on, without side information."""
    plan = {
        "decoders": ["amp-da", "amp-da-net", *OURS],
        "snr_db": list(scale.snr_db),
        "snr_reference": "slot",
        "side_information": "none",
        "num_slots": scale.slots,
    }
    return [
        ({}, Job("evaluate", plan | {"seed": seed}, (fragments(scale, 100 + seed, scale.measured),))) for seed in seeds
    ]


OURS = ("gamp-net", "gamp")
"""Decoders of this package beside the paper's and its rival."""


def _with_ours_named(found: Found) -> Found:
    """Say of our decoders, and of the layer that one of them has, that they are ours."""
    return [(about, payload | {"rows": [_named(row) for row in payload["rows"]]}) for about, payload in found]


def _named(row: Row) -> Row:
    if row["decoder"] not in OURS:
        return row
    ours = {"decoder": f"ours: {row['decoder']}"}
    return row | ours | ({"codebook": "layer, ours"} if row.get("codebook") == "layer" else {})


def _decoding(scale: Scale, found: Found, name: str, title: str, **axis: Any) -> Outcome:
    fields = ("count_accuracy", "update_nmse_hard", "update_nmse_soft", "num_active_mae")
    rows = over_seeds(_with_ours_named(found), ("decoder", "codebook", "snr_db"), (*fields, *INFORMATION))
    columns = ("decoder", "codebook", "snr_db", name, *(f for f in fields if f != name), "seeds")
    line = lines_of(series_of(rows, ["decoder"], "snr_db", name), label_of("snr_db"), label_of(name), title, **axis)
    return Outcome(rows, (table_of(title, rows, columns, paper.FIGURES_ONLY),), present([line]))


INFORMATION = ("entropy_bits", "signal_bits", "capacity_bits", "count_accuracy_limit")


def k_error(scale: Scale, found: Found) -> Outcome:
    """Show the error of the number of devices."""
    return _decoding(scale, found, "num_active_mae", "Error of the estimated number of devices before rounding")


def decoding_accuracy(scale: Scale, found: Found) -> Outcome:
    """Show the count accuracy below what the signal allows."""
    rows = over_seeds(_with_ours_named(found), ("decoder", "codebook", "snr_db"), INFORMATION)
    _, limits = beside_decoders(rows, ["decoder"])
    outcome = _decoding(scale, found, "count_accuracy", "Count accuracy", limits=SHARE, references=limits)
    return replace(outcome, figures=(*outcome.figures, *present([information_by_snr(rows, ["decoder"])])))


# ── the codebook (Table II) ──────────────────────────────────────────────────────────────────────────────────────────

CODEBOOKS: dict[str, dict[str, Any]] = {
    "learned, popularity order": {},
    "learned, no order": {"data.order": "none"},
    "fixed Gaussian, no order": {"codebook.learned": False, "data.order": "none"},
    "fixed Bernoulli, no order": {"codebook.start": "bernoulli", "codebook.learned": False, "data.order": "none"},
    "learned, cosine order": {"data.order": "cosine"},
    "learned, one matrix": {"codebook.form": "single"},
    "ours: learned from two bases": {"codebook.start": "two-bases"},
}
"""Settings of the paper's training, whose codebook starts as Gaussian and is ordered by popularity."""


def ablation_jobs(scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    """Return a training for each codebook."""
    return [
        ({"setup": name}, trained(scale, seed, settings, fragments(scale, seed)))
        for seed in seeds
        for name, settings in CODEBOOKS.items()
    ]


def ablation(scale: Scale, found: Found) -> Outcome:
    """Show the count accuracy of each codebook."""
    rows = over_seeds(found, ("setup", "snr_db"), ("count_accuracy", "update_nmse_hard", "num_active_mae"))
    at_five = [row for row in rows if row["snr_db"] == 5.0]
    for row in at_five:
        row["paper_count_accuracy"] = paper.CODEBOOK.get(row["setup"])
    columns = ("setup", "count_accuracy", "paper_count_accuracy", "update_nmse_hard", "seeds")
    line = lines_of(
        series_of(rows, ["setup"], "snr_db", "count_accuracy"),
        label_of("snr_db"),
        label_of("count_accuracy"),
        "Count accuracy",
        limits=SHARE,
    )
    tables = (
        table_of("Count accuracy at 5 dB on held-out rounds", at_five, columns, paper.NOTE),
        table_of("All SNRs", rows, ("setup", "snr_db", "count_accuracy", "update_nmse_hard", "seeds")),
    )
    bars = bars_of(at_five, "setup", [], "count_accuracy", "Count accuracy at 5 dB")
    return Outcome(rows, tables, present([bars, line]))


# ── geometry of the codebook ─────────────────────────────────────────────────────────────────────────────────────────


def geometry_jobs(scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    """Return a look at some of these codebooks and at those of the package's layers."""
    wanted = ("learned, popularity order", "learned, no order", "fixed Gaussian, no order", "fixed Bernoulli, no order")
    found = [
        ({"setup": name}, Job("geometry", {}, (trained(scale, seed, CODEBOOKS[name], fragments(scale, seed)),)))
        for seed in seeds
        for name in wanted
    ]
    ready = {"the package's paper layer": PAPER, "ours: the package's layer": DEFAULT}
    return [*found, *(({"setup": name}, Job("geometry", {"layer": layer})) for name, layer in ready.items())]


def geometry(scale: Scale, found: Found) -> Outcome:
    """Show their correlations and singular values."""
    fields = ("largest_correlation", "correlation_of_popular_half", "correlation_of_rare_half", "condition_number")
    rows = over_seeds(found, ("setup",), fields)
    firsts: dict[str, Payload] = {}
    for row, payload in found:
        firsts.setdefault(row["setup"], payload)
    spectra = {name: list(enumerate(p["singular_values"], 1)) for name, p in firsts.items()}
    line = lines_of(spectra, "number", "singular value", "Singular values of one codebook each")
    maps = [
        heatmap(
            p["correlation"],
            rows=[str(i) for i in range(len(p["correlation"]))],
            columns=[str(i) for i in range(len(p["correlation"]))],
            x="codeword, by rank",
            y="codeword, by rank",
            unit="|correlation|",
            title=f"Cross-correlation: {name}",
            alt=f"Absolute correlation of every pair of codewords, {name}.",
        )
        for name, p in firsts.items()
    ]
    table = table_of("Correlation and conditioning", rows, ("setup", *fields, "seeds"), paper.FIGURES_ONLY)
    return Outcome(rows, (table,), (*present([line]), *maps))


# ── quantisation (Appendix A) ────────────────────────────────────────────────────────────────────────────────────────

WAYS = {
    "k-means++ (the paper)": {},
    "and 3 Lloyd iterations": {"lloyd_iterations": 3},
    "and 10 Lloyd iterations": {"lloyd_iterations": 10},
    "curvature-aware": {"curvature_aware": True},
}


def quantisation_jobs(scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    """Return quantisation in each of the ways."""
    return [({}, Job("quantize", {"ways": WAYS, "seed": seed}, (fragments(scale, seed),))) for seed in seeds]


def quantisation(scale: Scale, found: Found) -> Outcome:
    """Show the errors of devices and base station."""
    rows = over_seeds(found, ("way",), ("device_nmse", "base_station_nmse"))
    title = "Quantisation error on the devices' fragments and on the base station's own"
    columns = ("way", "device_nmse", "base_station_nmse", "seeds")
    bars = bars_of(rows, "way", [], "device_nmse", "Quantisation error on the devices' fragments")
    return Outcome(rows, (table_of(title, rows, columns, paper.APPENDIX),), present([bars]))
