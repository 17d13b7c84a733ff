"""What the paper claims, as comparisons of two measured numbers, and whether ours show it."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from aircomp.results import Row

DECISIVE = 2.92
"""Standard errors of a difference from which on it counts as seen: chance gives as much to three seeds once in twenty."""
LOST = 0.1
"""Ten points of accuracy below perfect aggregation: a collapse."""
NEAR = 0.05
"""Five points: what the paper still calls near perfect aggregation (it lost three)."""
EQUAL = 0.02

Where = dict[str, Any]
"""Fields that tell one row from the others."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper about two rows of a result."""

    says: str
    field: str
    one: Where
    other: Where
    kind: Literal["larger", "near"] = "larger"
    """The first number is larger than the second, or they are near each other."""
    margin: float = 0.0
    """By how much larger, or how near."""


def judge(claims: Sequence[Claim], rows: Sequence[Row]) -> list[Row]:
    """Return a row for each claim whose numbers were measured: both with their spread, and a verdict."""
    found = []
    for claim in claims:
        one, other = _row(rows, claim.one), _row(rows, claim.other)
        if one is not None and other is not None:
            found.append(_judged(claim, one, other))
    return found


def _row(rows: Sequence[Row], where: Where) -> Row | None:
    return next((row for row in rows if all(k in row and row[k] == v for k, v in where.items())), None)


def _judged(claim: Claim, one: Row, other: Row) -> Row:
    name = claim.field
    difference, error = one[name] - other[name], _standard_error(one, other, name)
    if claim.kind == "near":
        difference = -abs(difference)
        margin = -claim.margin
    else:
        margin = claim.margin
    slack = DECISIVE * error
    verdict = "undecided"
    if difference >= margin and (claim.kind == "near" or difference - slack > 0):
        verdict = "seen"
    elif difference + slack < margin:
        verdict = "contradicted"
    numbers = {"one": one[name], "one_std": one.get(f"{name}_std"), "other": other[name]}
    return {"claim": claim.says, **numbers, "other_std": other.get(f"{name}_std"), "verdict": verdict}


def _standard_error(one: Row, other: Row, name: str) -> float:
    """Return that of the difference, from pairs of equal seed: they share data and noise. One seed tells nothing."""
    both = zip(one[f"{name}_values"], other[f"{name}_values"], strict=False)
    pairs = [(a, b) for a, b in both if a is not None and b is not None]
    return statistics.stdev(a - b for a, b in pairs) / len(pairs) ** 0.5 if len(pairs) > 1 else math.inf


HEADINGS = {"claim": "the paper says", "one": "this", "other": "against", "verdict": "here"}
NOTE = (
    "Seen: the difference is as claimed and larger than chance gives to pairs of equal seeds once in twenty times; "
    "contradicted: it is not, as clearly; undecided: the seeds do not tell."
)

_PERFECT = {"uplink": "perfect"}


def _at(snr_db: float, **where: Any) -> Where:
    return where | {"snr_db": snr_db}


_TRAINED, _OFF = "trained_on", {"error_feedback": "off", "noise": "×10"}
CLAIMS: dict[str, tuple[Claim, ...]] = {
    "fed_accuracy": (
        Claim("AMP-DA collapses at 0 dB", "test_accuracy_last5", _PERFECT, _at(0.0, uplink="amp-da"), margin=LOST),
        Claim(
            "AMP-DA-Net stays near perfect aggregation at 0 dB",
            "test_accuracy_last5",
            _PERFECT,
            _at(0.0, uplink="amp-da-net"),
            "near",
            NEAR,
        ),
        *(
            Claim(
                f"AMP-DA-Net ends above AMP-DA at {snr_db:g} dB",
                "test_accuracy_last5",
                _at(snr_db, uplink="amp-da-net"),
                _at(snr_db, uplink="amp-da"),
            )
            for snr_db in (0.0, 5.0)
        ),
    ),
    "k_error": tuple(
        Claim(
            f"AMP-DA-Net knows the number of devices better than AMP-DA at {snr_db:g} dB",
            "num_active_mae",
            _at(snr_db, decoder="amp-da"),
            _at(snr_db, decoder="amp-da-net"),
        )
        for snr_db in (0.0, 5.0, 10.0)
    ),
    "decoding_accuracy": tuple(
        Claim(
            f"AMP-DA-Net decodes counts better than AMP-DA at {snr_db:g} dB",
            "count_accuracy",
            _at(snr_db, decoder="amp-da-net"),
            _at(snr_db, decoder="amp-da"),
        )
        for snr_db in (0.0, 5.0, 10.0)
    ),
    "codebook_ablation": tuple(
        Claim(says, "count_accuracy", _at(5.0, setup=one), _at(5.0, setup=other))
        for says, one, other in (
            ("Order by popularity helps a learned codebook", "learned, popularity order", "learned, no order"),
            ("Learning the codebook helps", "learned, no order", "fixed Gaussian, no order"),
            ("Two matrices learn better than one", "learned, popularity order", "learned, one matrix"),
            ("Popularity orders better than cosine similarity", "learned, popularity order", "learned, cosine order"),
        )
    ),
    "variants": tuple(
        Claim(
            f"{variant.capitalize()} ends where the baseline does at {snr_db:g} dB",
            "test_accuracy_last5",
            _at(snr_db, variant=variant),
            _at(snr_db, variant="baseline"),
            "near",
            EQUAL,
        )
        for variant in ("curvature-aware", "quantisation loss")
        for snr_db in (0.0, 5.0, 10.0)
    ),
    "generalisation": (
        Claim(
            "A layer trained on another architecture serves as well",
            "test_accuracy_last5",
            {_TRAINED: "the other architecture"},
            {_TRAINED: "the same architecture"},
            "near",
            EQUAL,
        ),
        Claim(
            "It stays near perfect aggregation",
            "test_accuracy_last5",
            {_TRAINED: "the other architecture"},
            {_TRAINED: "perfect aggregation"},
            "near",
            NEAR,
        ),
    ),
    "aggregation_rules": (
        *(
            Claim(
                f"{says} withstands corruption better than the mean", "test_accuracy_last5", _OFF | {"rule": rule}, mean
            )
            for says, rule in (("The trimmed mean", "trimmed-mean"), ("The majority vote", "majority-vote"))
            for mean in [_OFF | {"rule": "mean"}]
        ),
        *(
            Claim(
                f"Error feedback must be off for the {rule.replace('-', ' ')}",
                "test_accuracy_last5",
                _OFF | {"rule": rule},
                _OFF | {"error_feedback": "plain", "rule": rule},
            )
            for rule in ("trimmed-mean", "majority-vote")
        ),
    ),
    "codebook_geometry": (
        Claim(
            "Learning lowers the correlation of popular codewords",
            "correlation_of_popular_half",
            {"setup": "fixed Gaussian, no order"},
            {"setup": "learned, popularity order"},
        ),
        Claim(
            "Learning flattens the singular values",
            "condition_number",
            {"setup": "fixed Gaussian, no order"},
            {"setup": "learned, popularity order"},
        ),
    ),
    "quantisation": (
        Claim(
            "k-means++ alone serves the devices better than ten Lloyd iterations after it",
            "device_nmse",
            {"way": "and 10 Lloyd iterations"},
            {"way": "k-means++ (the paper)"},
        ),
    ),
}
"""By result; the first number of each is the one that should be larger, for errors the rival's."""
