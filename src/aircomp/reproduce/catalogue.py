"""The results of the paper: which jobs each is made of, and how their rows become tables and figures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from aircomp.errors import unknown_name
from aircomp.report.figures import heatmap
from aircomp.report.page import Figure, Table
from aircomp.report.rows import (
    HEADINGS,
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
from aircomp.reproduce.scales import Scale
from aircomp.reproduce.summary import decibels_gained, over_seeds
from aircomp.results import Row

Found = list[tuple[Row, Payload]]
"""What identifies each job within its result, and what the job found."""


@dataclass(frozen=True)
class Outcome:
    """A finished result."""

    rows: list[Row]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Result:
    """A table or figure of the paper."""

    name: str
    title: str
    claim: str
    """What the paper says."""
    jobs: Callable[[Scale, Sequence[int]], list[tuple[Row, Job]]]
    """Its jobs at a scale with some seeds, each with the fields that identify it."""
    present: Callable[[Scale, Found], Outcome]


def result_names() -> list[str]:
    """Return the names of all results, in the order in which `all` runs them."""
    return list(RESULTS)


def result_of(name: str) -> Result:
    """Return a result by name."""
    if name not in RESULTS:
        raise unknown_name("result", name, [*RESULTS, "all"])
    return RESULTS[name]


# ── jobs that several results share ──────────────────────────────────────────────────────────────────────────────────


def federated(scale: Scale, seed: int, settings: dict[str, Any], layer: Job | None = None) -> Job:
    """Return one federated run."""
    everything = scale.federated | {"seed": seed} | settings
    return Job("simulate", {"preset": scale.preset, "settings": everything}, () if layer is None else (layer,))


def fragments(scale: Scale, seed: int, settings: dict[str, Any] | None = None) -> Job:
    """Return a collection of fragments, the raw ones included."""
    everything = scale.collected | {"seed": seed} | (settings or {})
    return Job("collect", {"preset": scale.collect_preset, "settings": everything, "raw": True})


def trained(scale: Scale, seed: int, settings: dict[str, Any], *collections: Job) -> Job:
    """Return a layer trained on some collections."""
    everything = scale.pretrained | {"seed": seed} | settings
    return Job("pretrain", {"preset": scale.pretrain_preset, "settings": everything}, collections)


# ── federated accuracy (Table I) ─────────────────────────────────────────────────────────────────────────────────────

CONTENDERS: dict[str, dict[str, Any]] = {
    "amp-da": {"uplink": "amp-da"},
    "amp-da-net": {"uplink": "amp-da-net", "side_information": "none"},
    "best": {"uplink": "amp-da-net", "aggregate.readout": "unbiased", "air.repeat": "auto"},
}


def _fed_accuracy_jobs(scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    found = []
    for seed in seeds:
        found.append(({"uplink": "perfect", "snr_db": None}, federated(scale, seed, {"uplink": "perfect"})))
        for name, settings in CONTENDERS.items():
            for snr_db in scale.snr_db:
                noise = {"channel.snr_db": snr_db, "channel.snr_reference": "slot"}
                found.append(({"uplink": name, "snr_db": snr_db}, federated(scale, seed, settings | noise)))
    return found


def _fed_accuracy(scale: Scale, found: Found) -> Outcome:
    fields = ("test_accuracy", "stability", "accuracy", "update_nmse", "num_active_mae", "seconds")
    rows = over_seeds(found, ("uplink", "snr_db"), fields)
    for row in rows:
        row["paper_test_accuracy"] = paper.TEST_ACCURACY.get((row["uplink"], row["snr_db"]))
    noisy = [row for row in rows if row["snr_db"] is not None]
    gains = [decibels_gained(noisy, "amp-da", other, rows[0]["test_accuracy"]) for other in list(CONTENDERS)[1:]]
    headings = (
        "uplink",
        "snr_db",
        "test_accuracy",
        "paper_test_accuracy",
        "stability",
        "accuracy",
        "update_nmse",
        "seeds",
    )
    tables = (
        table_of("Test accuracy and stability", rows, headings, f"{paper.NOTE} {BEST_NOTE}"),
        table_of(
            "Decibels gained over AMP-DA", gains, ("uplink", "reference_snr_db", "reached_snr_db", "gain_db"), GAIN_NOTE
        ),
    )
    levels = {"perfect": rows[0]["test_accuracy"]}
    series = series_of(noisy, ["uplink"], "snr_db", "test_accuracy")
    drawn = present(
        [
            lines_of(
                series, HEADINGS["snr_db"], HEADINGS["test_accuracy"], "Test accuracy", references=levels, limits=SHARE
            ),
            lines_of(
                series_of(noisy, ["uplink"], "snr_db", "stability"),
                HEADINGS["snr_db"],
                "standard deviation of the last ten",
                "Stability",
            ),
        ]
    )
    return Outcome(rows + gains, tables, drawn)


BEST_NOTE = (
    "Best: the same decoder told each slot's layer and the base station's own codeword, its unbiased readout, and slots "
    "sent several times where the estimated SNR is low, at the same channel uses and energy."
)
GAIN_NOTE = (
    "The reference is the lowest SNR at which AMP-DA ends within two points of perfect aggregation; beside it the lowest "
    "measured or interpolated SNR at which the other decoder does, at most the range measured."
)

# ── decoding saved rounds ────────────────────────────────────────────────────────────────────────────────────────────


def _decoding_jobs(scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    plan = {
        "decoders": ["amp-da", "amp-da-net", "gamp"],
        "snr_db": list(scale.decode_snr_db),
        "snr_reference": "slot",
        "num_slots": scale.slots,
    }
    return [
        ({}, Job("evaluate", plan | {"seed": seed}, (fragments(scale, 100 + seed, scale.measured),))) for seed in seeds
    ]


def _decoding(scale: Scale, found: Found, name: str, title: str, **axis: Any) -> Outcome:
    fields = ("accuracy", "update_nmse_hard", "update_nmse_soft", "num_active_mae")
    rows = over_seeds(found, ("decoder", "codebook", "snr_db"), (*fields, *INFORMATION))
    columns = ("decoder", "codebook", "snr_db", name, *(f for f in fields if f != name), "seeds")
    line = lines_of(series_of(rows, ["decoder"], "snr_db", name), HEADINGS["snr_db"], HEADINGS[name], title, **axis)
    return Outcome(rows, (table_of(title, rows, columns, paper.FIGURES_ONLY),), present([line]))


INFORMATION = ("entropy_bits", "signal_bits", "capacity_bits", "accuracy_limit")


def _k_error(scale: Scale, found: Found) -> Outcome:
    return _decoding(scale, found, "num_active_mae", "Error of the estimated number of devices before rounding")


def _decoding_accuracy(scale: Scale, found: Found) -> Outcome:
    rows = over_seeds(found, ("decoder", "codebook", "snr_db"), INFORMATION)
    _, limits = beside_decoders(rows, ["decoder"])
    outcome = _decoding(scale, found, "accuracy", "Count accuracy", limits=SHARE, references=limits)
    return replace(outcome, figures=(*outcome.figures, *present([information_by_snr(rows, ["decoder"])])))


# ── the codebook (Table II) ──────────────────────────────────────────────────────────────────────────────────────────

GAUSSIAN = {"codebook.start": "gaussian"}
CODEBOOKS: dict[str, dict[str, Any]] = {
    "learned, popularity order": GAUSSIAN,
    "learned, no order": GAUSSIAN | {"data.order": "none"},
    "fixed Gaussian, no order": GAUSSIAN | {"codebook.learned": False, "data.order": "none"},
    "fixed Bernoulli, no order": {"codebook.start": "bernoulli", "codebook.learned": False, "data.order": "none"},
    "learned, cosine order": GAUSSIAN | {"data.order": "cosine"},
    "learned, one matrix": GAUSSIAN | {"codebook.form": "single"},
    "learned from two bases": {},
}


def _ablation_jobs(scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    return [
        ({"setup": name}, trained(scale, seed, settings, fragments(scale, seed)))
        for seed in seeds
        for name, settings in CODEBOOKS.items()
    ]


def _ablation(scale: Scale, found: Found) -> Outcome:
    rows = over_seeds(found, ("setup", "snr_db"), ("accuracy", "update_nmse_hard", "num_active_mae"))
    at_five = [row for row in rows if row["snr_db"] == 5.0]
    for row in at_five:
        row["paper_accuracy"] = paper.CODEBOOK.get(row["setup"])
    columns = ("setup", "accuracy", "paper_accuracy", "update_nmse_hard", "seeds")
    line = lines_of(
        series_of(rows, ["setup"], "snr_db", "accuracy"),
        HEADINGS["snr_db"],
        HEADINGS["accuracy"],
        "Count accuracy",
        limits=SHARE,
    )
    tables = (
        table_of("Count accuracy at 5 dB on held-out rounds", at_five, columns, paper.NOTE),
        table_of("All SNRs", rows, ("setup", "snr_db", "accuracy", "update_nmse_hard", "seeds")),
    )
    bars = bars_of(at_five, "setup", [], "accuracy", "Count accuracy at 5 dB")
    return Outcome(rows, tables, present([bars, line]))


# ── variants ─────────────────────────────────────────────────────────────────────────────────────────────────────────

VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "baseline": ({}, {}),
    "curvature-aware": ({"data.curvature_aware": True}, {"quantize.curvature_aware": True}),
    "quantisation loss": ({"loss.quantization": 0.1}, {}),
}


def _variants_jobs(scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    found = []
    for seed in seeds:
        for name, (training, running) in VARIANTS.items():
            layer = trained(scale, seed, training, fragments(scale, seed))
            for snr_db in scale.variants_snr_db:
                settings = {"uplink": "amp-da-net", "channel.snr_db": snr_db, "channel.snr_reference": "slot"}
                job = federated(scale, seed, settings | running, layer)
                found.append(({"variant": name, "snr_db": snr_db}, job))
    return found


def _variants(scale: Scale, found: Found) -> Outcome:
    fields = ("test_accuracy", "stability", "accuracy", "update_nmse")
    rows = over_seeds(found, ("variant", "snr_db"), fields)
    return _by_snr(rows, "variant", "Test accuracy of the variants", fields)


def _by_snr(rows: list[Row], label: str, title: str, fields: Sequence[str]) -> Outcome:
    table = table_of(title, rows, (label, "snr_db", *fields, "seeds"), paper.FIGURES_ONLY)
    series = series_of(rows, [label], "snr_db", "test_accuracy")
    line = lines_of(series, HEADINGS["snr_db"], HEADINGS["test_accuracy"], title, limits=SHARE)
    return Outcome(rows, (table,), present([line]))


# ── another architecture ─────────────────────────────────────────────────────────────────────────────────────────────


def _generalisation_jobs(scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    found = []
    for seed in seeds:
        layers = {
            "the other architecture": trained(scale, seed, {}, fragments(scale, seed)),
            "the same architecture": trained(scale, seed, {}, fragments(scale, seed, scale.other_collected)),
        }
        settings = scale.other_model | {"channel.snr_db": 10.0, "channel.snr_reference": "slot"}
        for name, layer in layers.items():
            job = federated(scale, seed, settings | {"uplink": "amp-da-net"}, layer)
            found.append(({"trained_on": name}, job))
        for uplink, name in (("perfect", "perfect aggregation"), ("amp-da-net", "the layer of the package")):
            found.append(({"trained_on": name}, federated(scale, seed, settings | {"uplink": uplink})))
    return found


def _generalisation(scale: Scale, found: Found) -> Outcome:
    fields = ("test_accuracy", "stability", "accuracy", "update_nmse")
    rows = over_seeds(found, ("trained_on",), fields)
    title = "The unseen architecture at 10 dB, by what the layer was trained on"
    curves = {row["trained_on"]: payload["curve"] for row, payload in found}
    line = lines_of(curves, "round", HEADINGS["test_accuracy"], "One seed's convergence", limits=SHARE)
    return Outcome(
        rows, (table_of(title, rows, ("trained_on", *fields, "seeds"), paper.FIGURES_ONLY),), present([line])
    )


# ── aggregation rules ────────────────────────────────────────────────────────────────────────────────────────────────


def _rules_jobs(scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    found = []
    for seed, length, rule, feedback in product(
        seeds, scale.noise_lengths, ("mean", "trimmed-mean", "majority-vote"), ("off", "plain")
    ):
        settings = {"uplink": "amp-da-net", "channel.snr_db": 10.0, "channel.snr_reference": "slot"}
        settings |= {"aggregate.rule": rule, "feedback.kind": feedback}
        settings |= {"corruption.kind": "noise", "corruption.length": length}
        identity = {"noise": f"×{length:g}", "rule": rule, "error_feedback": feedback}
        found.append((identity, federated(scale, seed, settings)))
    return found


def _rules(scale: Scale, found: Found) -> Outcome:
    fields = ("test_accuracy", "best_test_accuracy", "stability", "feedback_ratio", "accuracy")
    rows = over_seeds(found, ("noise", "rule", "error_feedback"), fields)
    title = "20 % of the devices send noise, 10 dB"
    bars = bars_of(rows, "rule", ["error_feedback", "noise"], "test_accuracy", title)
    table = table_of(
        title, rows, ("noise", "rule", "error_feedback", *fields, "seeds"), f"{NOISE_NOTE} {paper.FIGURES_ONLY}"
    )
    return Outcome(rows, (table,), present([bars]))


NOISE_NOTE = (
    "The noise is so many times as long as the update that it replaces; the paper does not tell how long its noise was."
)

# ── geometry of the codebook ─────────────────────────────────────────────────────────────────────────────────────────


def _geometry_jobs(scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    wanted = ("learned, popularity order", "learned, no order", "fixed Gaussian, no order", "learned from two bases")
    found = [
        ({"setup": name}, Job("geometry", {}, (trained(scale, seed, CODEBOOKS[name], fragments(scale, seed)),)))
        for seed in seeds
        for name in wanted
    ]
    return [*found, ({"setup": "the layer of the package"}, Job("geometry", {}))]


def _geometry(scale: Scale, found: Found) -> Outcome:
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


def _quantisation_jobs(scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    return [({}, Job("quantize", {"ways": WAYS, "seed": seed}, (fragments(scale, seed),))) for seed in seeds]


def _quantisation(scale: Scale, found: Found) -> Outcome:
    rows = over_seeds(found, ("way",), ("device_nmse", "base_station_nmse"))
    title = "Quantisation error on the devices' fragments and on the base station's own"
    columns = ("way", "device_nmse", "base_station_nmse", "seeds")
    bars = bars_of(rows, "way", [], "device_nmse", "Quantisation error on the devices' fragments")
    return Outcome(rows, (table_of(title, rows, columns, paper.APPENDIX),), present([bars]))


RESULTS = {
    result.name: result
    for result in (
        Result(
            "fed_accuracy",
            "Federated accuracy over SNR (Table I)",
            "AMP-DA-Net stays near perfect aggregation where AMP-DA collapses, which extends the range by more than 10 dB.",
            _fed_accuracy_jobs,
            _fed_accuracy,
        ),
        Result(
            "k_error",
            "Estimating the number of devices",
            "The error of the estimated number of devices stays below one half until very low SNR.",
            _decoding_jobs,
            _k_error,
        ),
        Result(
            "decoding_accuracy",
            "Decoding accuracy",
            "Counts are decoded better than by AMP-DA at every SNR.",
            _decoding_jobs,
            _decoding_accuracy,
        ),
        Result(
            "codebook_ablation",
            "What the codebook brings (Table II)",
            "Learning the codebook helps, ordering it by popularity helps further; one matrix instead of two costs 1.5 %.",
            _ablation_jobs,
            _ablation,
        ),
        Result(
            "variants",
            "Curvature-aware quantisation and quantisation loss",
            "The accuracies of the three variants overlap.",
            _variants_jobs,
            _variants,
        ),
        Result(
            "generalisation",
            "A layer meets another architecture",
            "A layer trained on one architecture serves another without loss.",
            _generalisation_jobs,
            _generalisation,
        ),
        Result(
            "aggregation_rules",
            "Corrupted devices",
            "Trimmed mean and majority vote withstand corruption better than the mean; error feedback had to be off.",
            _rules_jobs,
            _rules,
        ),
        Result(
            "codebook_geometry",
            "Geometry of the codebook",
            "Learning lowers the correlation of popular codewords most, and the singular values spread less.",
            _geometry_jobs,
            _geometry,
        ),
        Result(
            "quantisation",
            "Why k-means++ (Appendix A)",
            "Codewords that are fragments themselves serve the devices better than means of the base station's fragments.",
            _quantisation_jobs,
            _quantisation,
        ),
    )
}
