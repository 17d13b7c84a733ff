"""What the paper claims, as comparisons of two measured numbers, and whether ours show it.

A claim compares A and B on pairs of equal seed, which share data and noise. The mean difference of n pairs lies within

    d ± q · s / √n,   q: the 95 % quantile of Student's t with n − 1 degrees of freedom,

and each end is wrong once in twenty times. "A is larger by more than the margin" is seen where the interval lies above the
margin and contradicted where it lies below. "A and B are near" is a test of equivalence, two one-sided tests: seen where the
interval lies within the margin on both sides, contradicted where it lies beyond. Otherwise the seeds do not tell.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from scipy.stats import t as student_t

from aircomp.common.results import Row
from aircomp.reproduce.scales import LEAST_SEEDS, Scale

CONFIDENCE = 0.95
"""Of each end of the interval."""
LOST = 0.1
"""Ten points of accuracy below perfect aggregation: a collapse."""
NEAR = 0.05
"""Five points: what the paper still calls near perfect aggregation (it lost three)."""
EQUAL = 0.02
TEST_IMAGE_FIELDS = ("test_accuracy", "test_accuracy_last5", "best_test_accuracy")
"""Fields that count test images: how many seeds they take depends on how many images the scale has."""

Where = dict[str, Any]
"""Fields that tell one row from the others."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper about two rows of a result, A and B."""

    says: str
    field: str
    a: Where
    b: Where
    kind: Literal["larger", "near"] = "larger"
    """A is larger than B, or they are near each other."""
    margin: float = 0.0
    """By how much larger, or how near."""

    @property
    def criterion(self) -> str:
        """What must hold for the claim, for people."""
        return f"A − B > {self.margin:g}" if self.kind == "larger" else f"|A − B| < {self.margin:g}"

    def seeds_needed(self, scale: Scale) -> int:
        """Return how many pairs of equal seed the claim takes."""
        return scale.seeds_for_points if self.field in TEST_IMAGE_FIELDS else LEAST_SEEDS


def judge(claims: Sequence[Claim], rows: Sequence[Row], scale: Scale) -> list[Row]:
    """Return a row for each claim whose numbers were measured: both with their spread, and a verdict at this scale."""
    found = []
    for claim in claims:
        a, b = _row(rows, claim.a), _row(rows, claim.b)
        if a is not None and b is not None and claim.field in a and claim.field in b:
            found.append(_judged(claim, a, b, scale))
    return found


def _row(rows: Sequence[Row], where: Where) -> Row | None:
    return next((row for row in rows if all(k in row and row[k] == v for k, v in where.items())), None)


def _judged(claim: Claim, a: Row, b: Row, scale: Scale) -> Row:
    name = claim.field
    differences = _differences(a.get(f"{name}_values", ()), b.get(f"{name}_values", ()))
    needed = claim.seeds_needed(scale)
    if f"{name}_values" not in a or f"{name}_values" not in b:
        verdict = f"not judged on {scale.name}"
    elif len(differences) < needed:
        seeds = "1 seed" if len(differences) == 1 else f"{len(differences)} seeds"
        verdict = f"undecided on {scale.name}: {seeds}, needs {needed}"
    else:
        verdict = f"{_verdict(claim, *interval(differences))} on {scale.name}"
    return {
        "claim": claim.says,
        "a": describe(claim.a),
        "a_value": a[name],
        "a_value_std": a.get(f"{name}_std"),
        "b": describe(claim.b),
        "b_value": b[name],
        "b_value_std": b.get(f"{name}_std"),
        "margin": claim.criterion,
        "verdict": verdict,
    }


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


HEADINGS = {
    "claim": "the paper says",
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
    "do not tell. A claim that two are near is a test of equivalence, two one-sided tests. Not judged: an older version did "
    "not keep the value of each seed; the command measures it again."
)

_PERFECT = {"uplink": "perfect"}


def _at(snr_db: float, **where: Any) -> Where:
    return where | {"snr_db": snr_db}


def _treated(buffers: str, **where: Any) -> Where:
    return where | {"buffers": buffers, "local_steps": 10, "norm": "batch"}


def _usual(contender: str) -> Where:
    return {"condition": "as usual", "contender": contender}


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
    "batch_norm": (
        *(
            Claim(
                f"AMP-DA collapses at {snr_db:g} dB (with the authors' buffers)",
                "test_accuracy_last5",
                _treated("average", uplink="perfect"),
                _at(snr_db, **_treated("estimated", uplink="amp-da")),
                margin=LOST,
            )
            for snr_db in (0.0, 3.0, 5.0)
        ),
        *(
            Claim(says, "test_accuracy_last5", _treated(treatment, uplink="perfect"), other, "near", NEAR)
            for says, treatment, other in (
                (
                    "AMP-DA-Net stays near perfect aggregation at 0 dB (with the authors' buffers)",
                    "average",
                    _at(0.0, **_treated("estimated", uplink="amp-da-net")),
                ),
                (
                    "AMP-DA stays near perfect aggregation at 0 dB with averaged buffers (ours)",
                    "average",
                    _at(0.0, **_treated("average", uplink="amp-da")),
                ),
                (
                    "AMP-DA stays near perfect aggregation at 0 dB with recomputed buffers (ours)",
                    "recomputed",
                    _at(0.0, **_treated("recomputed", uplink="amp-da")),
                ),
            )
        ),
    ),
    "from_scratch": tuple(
        Claim(
            f"AMP-DA from scratch collapses at 0 dB, {treatment} buffers",
            "test_accuracy_last5",
            {"buffers": "average", "uplink": "perfect"},
            _at(0.0, buffers=treatment, uplink="amp-da"),
            margin=LOST,
        )
        for treatment in ("estimated", "average")
    ),
    "decoding_worth": (
        Claim(
            "Noise of five times the update's energy costs less than halving the update (ours)",
            "test_accuracy_last5",
            _usual("perfect, noise of NMSE 5"),
            _usual("perfect, half as long"),
        ),
        Claim(
            "AMP-DA-Net with integers trains better than AMP-DA at 0 dB",
            "test_accuracy_last5",
            _usual("AMP-DA-Net, integers"),
            _usual("AMP-DA, integers"),
        ),
    ),
    "codes": (
        *(
            Claim(
                f"Equal energies leave a larger error than matched ones at {snr_db:g} dB (ours)",
                "update_nmse",
                _at(snr_db, model=model, scheme="GAMP, equal energies", readout="soft"),
                _at(snr_db, model=model, scheme="GAMP, matched energies", readout="soft"),
            )
            for model in ("CNN", "ResNet", "VGG")
            for snr_db in (-5.0, 0.0, 5.0)
        ),
        *(
            Claim(
                f"Analog with gains by layer trains like the ideal link at {snr_db:g} dB (ours)",
                "test_accuracy_last5",
                {"scheme": "ideal"},
                _at(snr_db, scheme="analog, gains by layer"),
                kind="near",
                margin=0.01,
            )
            for snr_db in (-10.0, -5.0, 0.0, 10.0)
        ),
        *(
            Claim(
                f"Matched energies train better than equal ones at {snr_db:g} dB (ours)",
                "test_accuracy_last5",
                _at(snr_db, scheme="GAMP, matched energies"),
                _at(snr_db, scheme="GAMP, equal energies"),
            )
            for snr_db in (-10.0, -5.0, 0.0)
        ),
        *(
            Claim(
                f"Matched energies train like perfect aggregation at {snr_db:g} dB (ours)",
                "test_accuracy_last5",
                {"scheme": "perfect aggregation"},
                _at(snr_db, scheme="GAMP, matched energies"),
                kind="near",
                margin=margin,
            )
            for snr_db, margin in ((-10.0, 0.03), (-5.0, 0.015), (0.0, 0.01))
        ),
    ),
    "receivers": (
        *(
            Claim(
                f"Eight antennas that know no gains count better than one that devices invert for, at {snr_db:g} dB (ours)",
                "count_accuracy",
                _at(snr_db, known="no gains, blind", antennas=8),
                _at(snr_db, known="gain at devices, widened"),
            )
            for snr_db in (0.0, 5.0)
        ),
        *(
            Claim(
                f"What gains that stay tell is worth more than knowing them at the devices, at {snr_db:g} dB (ours)",
                "count_accuracy",
                _at(snr_db, known="no gains, semi-blind", antennas=8),
                _at(snr_db, known="gain at devices, md-aircomp", antennas=8),
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
"""By result; A is the one that should be larger, for errors the rival's."""
