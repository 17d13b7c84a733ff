"""Whether measured numbers show what is claimed of them.

A claim compares A and B on pairs of equal seed, which share data and noise. The mean difference of n pairs lies within

    d ± q · s / √n,   q: the 95 % quantile of Student's t with n − 1 degrees of freedom,

and each end is wrong once in twenty times. "A is larger by more than the margin" is seen where the interval lies above the
margin and contradicted where it lies below. "A and B are near" is a test of equivalence, two one-sided tests: seen where the
interval lies within the margin on both sides, contradicted where it lies beyond. Otherwise the seeds do not tell.

A set-up in which every scheme ends alike contradicts nobody: it cannot tell good schemes from bad ones. So nothing is
contradicted where all rows that belong to the comparison tie, each with each: their means differ by no more than the margin
or than what nobody would call a difference, or else the interval of their differences holds zero.
"""

import statistics
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal

from scipy.stats import t as student_t

from aircomp.common.results import Row
from aircomp.report.page import Table
from aircomp.studies.scales import LEAST_SEEDS, Scale
from aircomp.studies.study import Claim, Source, Where

CONFIDENCE = 0.95
"""Of each end of the interval."""
TEST_IMAGE_FIELDS = ("test_accuracy", "test_accuracy_last5", "best_test_accuracy")
"""Fields that count test images: how many seeds they take depends on how many images the scale has."""

NEGLIGIBLE: dict[str, float] = dict.fromkeys((*TEST_IMAGE_FIELDS, "count_accuracy", "device_nmse"), 0.02)
"""Differences that nobody would call one, by field; of others none is."""


def seeds_needed(claim: Claim, scale: Scale) -> int:
    """Return how many pairs of equal seed a claim takes."""
    return scale.seeds_for_points if claim.field in TEST_IMAGE_FIELDS else LEAST_SEEDS


def tolerance(claim: Claim) -> float:
    """Return up to where two rows of a comparison are alike."""
    return claim.margin if claim.kind == "near" else max(claim.margin, NEGLIGIBLE.get(claim.field, 0.0))


def judge(claims: Sequence[Claim], rows: Sequence[Row], scale: Scale, source: Source | None = None) -> list[Row]:
    """Return a row for each claim whose numbers were measured: both with their spread, and a verdict at this scale.

    Args:
        claims: Of the result.
        rows: What the result measured.
        scale: Where.
        source: Whose claims; everybody's if None.
    """
    found = []
    for claim in claims:
        a, b = _row(rows, claim.a), _row(rows, claim.b)
        if source not in (None, claim.source):
            continue
        if a is not None and b is not None and claim.field in a and claim.field in b:
            found.append(_judged(claim, a, b, [row for row in rows if _belongs(row, claim)], scale))
    return found


def _belongs(row: Row, claim: Claim) -> bool:
    """Tell whether a row is part of what a claim compares."""
    return row.get(claim.field) is not None and all(row.get(k) in (v, None) for k, v in claim.common.items())


def _row(rows: Sequence[Row], where: Where) -> Row | None:
    return next((row for row in rows if all(k in row and row[k] == v for k, v in where.items())), None)


def _judged(claim: Claim, a: Row, b: Row, compared: Sequence[Row], scale: Scale) -> Row:
    name = claim.field
    differences = _differences(a.get(f"{name}_values", ()), b.get(f"{name}_values", ()))
    needed = seeds_needed(claim, scale)
    if f"{name}_values" not in a or f"{name}_values" not in b:
        verdict = f"not judged on {scale.name}"
    elif len(differences) < needed:
        seeds = "1 seed" if len(differences) == 1 else f"{len(differences)} seeds"
        verdict = f"undecided on {scale.name}: {seeds}, needs {needed}"
    else:
        verdict = f"{_verdict(claim, *interval(differences))} on {scale.name}"
        if verdict.startswith("contradicted") and all_tie(claim, compared):
            takes = f"it takes a set-up in which some differ by more than {tolerance(claim):g}"
            verdict = f"cannot judge: all schemes tie here, on {scale.name}; {takes}"
    return {
        "claim": claim.says,
        "section": claim.section,
        "a": describe(claim.a),
        "a_value": a[name],
        "a_value_std": a.get(f"{name}_std"),
        "b": describe(claim.b),
        "b_value": b[name],
        "b_value_std": b.get(f"{name}_std"),
        "margin": claim.criterion,
        "verdict": verdict,
    }


def all_tie(claim: Claim, compared: Sequence[Row]) -> bool:
    """Tell whether all rows of a comparison end alike, each pair within the margin or the noise."""
    return all(_tie(claim, one, other) for one, other in combinations(compared, 2))


def _tie(claim: Claim, one: Row, other: Row) -> bool:
    name = claim.field
    if abs(one[name] - other[name]) <= tolerance(claim):
        return True
    differences = _differences(one.get(f"{name}_values", ()), other.get(f"{name}_values", ()))
    low, high = interval(differences) if len(differences) >= LEAST_SEEDS else (0.0, 0.0)
    return low <= 0 <= high


def _differences(a: Sequence[float | None], b: Sequence[float | None]) -> list[float]:
    """Return A − B of every seed that has both."""
    return [x - y for x, y in zip(a, b, strict=False) if x is not None and y is not None]


def interval(differences: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return between what the mean of two or more differences lies, each end with a confidence."""
    n = len(differences)
    mean, error = statistics.fmean(differences), statistics.stdev(differences) / n**0.5
    slack = float(student_t.ppf(confidence, n - 1)) * error
    return mean - slack, mean + slack


def _verdict(claim: Claim, low: float, high: float) -> Literal["seen", "contradicted", "undecided"]:
    margin = claim.margin
    if claim.kind == "near":
        seen, contradicted = -margin < low and high < margin, low > margin or high < -margin
    else:
        seen, contradicted = low > margin, high < margin
    return "seen" if seen else "contradicted" if contradicted else "undecided"


NAMES = {
    "perfect": "perfect aggregation",
    "amp-da": "AMP-DA",
    "amp-da-net": "AMP-DA-Net",
    "gamp-net": "GAMP-Net",
    "trimmed-mean": "trimmed mean",
    "majority-vote": "majority vote",
}
SPEAKING = (
    "model",
    "scheme",
    "known",
    "readout",
    "contender",
    "uplink",
    "decoder",
    "setup",
    "variant",
    "trained_on",
    "way",
    "rule",
)
"""Fields whose values need no name of the field beside them."""


def describe(where: Where) -> str:
    """Name what a row holds.

    >>> describe({"snr_db": 0.0, "uplink": "amp-da"})
    'AMP-DA at 0 dB'
    """
    text = ", ".join(NAMES.get(where[name]) or where[name] for name in SPEAKING if name in where)
    others = [name for name in where if name not in (*SPEAKING, "snr_db")]
    text += "".join(f", {name.replace('_', ' ')} {where[name]}" for name in others)
    return text + (f" at {where['snr_db']:g} dB" if "snr_db" in where else "")


TITLES: dict[Source, str] = {"paper": "The paper claims", "ours": "We add"}


def claim_tables(judged: Mapping[Source, list[Row]], first: Mapping[str, str] | None = None) -> tuple[Table, ...]:
    """Return a table of what the paper claims and one of what we add, where there is something to show.

    Args:
        judged: Rows of `judge`, by who says it.
        first: Columns before the others, by field.
    """
    tables = []
    for source, title in TITLES.items():
        where = {"section": "where"} if source == "paper" else {}
        columns = {**(first or {}), "claim": title.lower(), **where, **HEADINGS}
        note = NOTE if not tables else ""
        tables += [Table(title, columns, judged[source], note)] if judged.get(source) else []
    return tuple(tables)


HEADINGS = {
    "a": "A",
    "a_value": "value",
    "b": "B",
    "b_value": "value",
    "margin": "margin",
    "verdict": "verdict",
}
NOTE = (
    "Values are means ± standard deviations over the seeds; pairs of equal seed are compared. Seen: the difference meets the "
    "margin with 95 % confidence by Student's t. Contradicted: it does not, with the same confidence. Undecided: the seeds "
    "do not tell. Cannot judge: it would be contradicted, but all schemes of the comparison end alike here, within the "
    "margin or the noise, so that this set-up tells nothing of them. A claim that two are near is a test of equivalence, two "
    "one-sided tests. Not judged: an older version did not keep the value of each seed; the command measures it again."
)
