"""What the paper claims and what we add, as comparisons of two measured numbers; `verdicts.py` judges them.

A claim is the paper's only where it names the section that makes it. Where the paper gives no number, the margin is ours.
"""

from typing import Any

from aircomp.reproduce.scales import PAPER_SNR_DB
from aircomp.reproduce.verdicts import Claim, Where

LOST = 0.1
"""Ten points of accuracy below perfect aggregation: a collapse."""
NEAR = 0.05
"""Five points: what the paper still calls near perfect aggregation (it lost three)."""
EQUAL = 0.02
LOW_SNR_DB = (0.0, 3.0, 5.0)
"""Where Table I has AMP-DA far below perfect aggregation."""

_PERFECT = {"uplink": "perfect"}


def _paper(section: str, says: str, field: str, a: Where, b: Where, **criterion: Any) -> Claim:
    return Claim(says, field, a, b, **criterion, source="paper", section=section)


def _at(snr_db: float, **where: Any) -> Where:
    return where | {"snr_db": snr_db}


def _usual(contender: str) -> Where:
    return {"condition": "as usual", "contender": contender}


_ACCURACY = "test_accuracy_last5"
_TRAINED, _OFF = "trained_on", {"error_feedback": "off", "noise": "×10"}
CLAIMS: dict[str, tuple[Claim, ...]] = {
    "fed_accuracy": (
        *(
            _paper(
                "Sec. IV, Table I",
                f"AMP-DA ends more than ten points below perfect aggregation at {snr_db:g} dB",
                _ACCURACY,
                _PERFECT,
                _at(snr_db, uplink="amp-da"),
                margin=LOST,
            )
            for snr_db in LOW_SNR_DB
        ),
        *(
            _paper(
                "Sec. IV, Table I",
                f"AMP-DA-Net stays near perfect aggregation at {snr_db:g} dB",
                _ACCURACY,
                _PERFECT,
                _at(snr_db, uplink="amp-da-net"),
                kind="near",
                margin=NEAR,
            )
            for snr_db in LOW_SNR_DB
        ),
        *(
            _paper(
                "Sec. IV, Table I",
                f"AMP-DA-Net ends above AMP-DA at {snr_db:g} dB",
                _ACCURACY,
                _at(snr_db, uplink="amp-da-net"),
                _at(snr_db, uplink="amp-da"),
            )
            for snr_db in LOW_SNR_DB
        ),
    ),
    "batch_norm": (
        *(
            Claim(
                f"With the authors' buffers AMP-DA ends more than ten points below perfect aggregation at {snr_db:g} dB",
                _ACCURACY,
                {"uplink": "perfect", "buffers": "average"},
                _at(snr_db, uplink="amp-da", buffers="estimated"),
                margin=LOST,
            )
            for snr_db in LOW_SNR_DB
        ),
        *(
            Claim(
                f"With the authors' buffers AMP-DA-Net stays near perfect aggregation at {snr_db:g} dB",
                _ACCURACY,
                {"uplink": "perfect", "buffers": "average"},
                _at(snr_db, uplink="amp-da-net", buffers="estimated"),
                "near",
                NEAR,
            )
            for snr_db in LOW_SNR_DB
        ),
        *(
            Claim(
                f"With averaged buffers AMP-DA stays near perfect aggregation at {snr_db:g} dB",
                _ACCURACY,
                {"uplink": "perfect", "buffers": "average"},
                _at(snr_db, uplink="amp-da", buffers="average"),
                "near",
                NEAR,
            )
            for snr_db in LOW_SNR_DB
        ),
    ),
    "from_scratch": (
        *(
            _paper(
                "Sec. IV, Table I",
                f"AMP-DA ends more than ten points below perfect aggregation at {snr_db:g} dB (authors' buffers)",
                _ACCURACY,
                {"uplink": "perfect", "buffers": "average"},
                _at(snr_db, uplink="amp-da", buffers="estimated"),
                margin=LOST,
            )
            for snr_db in (0.0, 5.0)
        ),
        *(
            _paper(
                "Sec. IV, Table I",
                f"AMP-DA-Net stays near perfect aggregation at {snr_db:g} dB (authors' buffers)",
                _ACCURACY,
                {"uplink": "perfect", "buffers": "average"},
                _at(snr_db, uplink="amp-da-net", buffers="estimated"),
                kind="near",
                margin=NEAR,
            )
            for snr_db in (0.0, 5.0)
        ),
        *(
            Claim(
                f"With averaged buffers AMP-DA ends more than ten points below perfect aggregation at {snr_db:g} dB, too",
                _ACCURACY,
                {"uplink": "perfect", "buffers": "average"},
                _at(snr_db, uplink="amp-da", buffers="average"),
                margin=LOST,
            )
            for snr_db in (0.0, 5.0)
        ),
    ),
    "decoding_worth": (
        Claim(
            "Noise of five times the update's energy costs less than halving the update",
            "test_accuracy_last5",
            _usual("perfect, noise of NMSE 5"),
            _usual("perfect, half as long"),
        ),
        Claim(
            "GAMP-Net with integers trains better than AMP-DA at 0 dB",
            "test_accuracy_last5",
            _usual("GAMP-Net, integers"),
            _usual("AMP-DA, integers"),
        ),
    ),
    "codes": (
        *(
            Claim(
                f"Equal energies leave a larger error than matched ones at {snr_db:g} dB",
                "update_nmse",
                _at(snr_db, model=model, scheme="GAMP, equal energies", readout="soft"),
                _at(snr_db, model=model, scheme="GAMP, matched energies", readout="soft"),
            )
            for model in ("CNN", "ResNet", "VGG")
            for snr_db in (-5.0, 0.0, 5.0)
        ),
        *(
            Claim(
                f"Analog with gains by layer trains like the ideal link at {snr_db:g} dB",
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
                f"Matched energies train better than equal ones at {snr_db:g} dB",
                "test_accuracy_last5",
                _at(snr_db, scheme="GAMP, matched energies"),
                _at(snr_db, scheme="GAMP, equal energies"),
            )
            for snr_db in (-10.0, -5.0, 0.0)
        ),
        *(
            Claim(
                f"Matched energies train like perfect aggregation at {snr_db:g} dB",
                "test_accuracy_last5",
                {"scheme": "perfect aggregation"},
                _at(snr_db, scheme="GAMP, matched energies"),
                kind="near",
                margin=margin,
            )
            for snr_db, margin in ((-10.0, 0.03), (-5.0, 0.015), (0.0, 0.01))
        ),
        *(
            Claim(
                f"Rate by SNR, calibrated, trains no more than {margin:g} below {bound} at {snr_db:g} dB",
                "test_accuracy_last5",
                _at(snr_db, scheme="GAMP, matched energies, rate by SNR, calibrated"),
                {"scheme": bound},
                margin=-margin,
            )
            for snr_db, margin, bound in (
                (-10.0, 0.03, "perfect aggregation"),
                (-5.0, 0.015, "perfect aggregation"),
                (0.0, 0.01, "perfect aggregation"),
                (10.0, 0.01, "ideal"),
            )
        ),
        Claim(
            "The hybrid trains like the ideal link at 10 dB",
            "test_accuracy_last5",
            {"scheme": "ideal"},
            _at(10.0, scheme="hybrid"),
            kind="near",
            margin=0.01,
        ),
    ),
    "receivers": (
        *(
            Claim(
                f"Eight antennas that know no gains count better than one that devices invert for, at {snr_db:g} dB",
                "count_accuracy",
                _at(snr_db, known="no gains, blind", antennas=8),
                _at(snr_db, known="gain at devices, widened"),
            )
            for snr_db in (0.0, 5.0)
        ),
        *(
            Claim(
                f"What gains that stay tell is worth more than knowing them at the devices, at {snr_db:g} dB",
                "count_accuracy",
                _at(snr_db, known="no gains, semi-blind", antennas=8),
                _at(snr_db, known="gain at devices, md-aircomp", antennas=8),
            )
            for snr_db in (0.0, 5.0)
        ),
    ),
    "k_error": tuple(
        _paper(
            "Sec. IV, Fig. 4",
            f"AMP-DA-Net knows the number of devices better than AMP-DA at {snr_db:g} dB",
            "num_active_mae",
            _at(snr_db, decoder="amp-da"),
            _at(snr_db, decoder="amp-da-net"),
        )
        for snr_db in (0.0, 3.0, 5.0, 10.0)
    ),
    "decoding_accuracy": tuple(
        _paper(
            "Sec. IV, Fig. 5",
            f"AMP-DA-Net decodes counts better than AMP-DA at {snr_db:g} dB",
            "count_accuracy",
            _at(snr_db, decoder="amp-da-net"),
            _at(snr_db, decoder="amp-da"),
        )
        for snr_db in PAPER_SNR_DB
    ),
    "codebook_ablation": tuple(
        _paper(section, says, "count_accuracy", _at(5.0, setup=one), _at(5.0, setup=other))
        for section, says, one, other in (
            (
                "Sec. V-D, Table II",
                "Order by popularity helps a learned codebook",
                "learned, popularity order",
                "learned, no order",
            ),
            ("Sec. V-D, Table II", "Learning the codebook helps", "learned, no order", "fixed Gaussian, no order"),
            (
                "Sec. III-E, footnote",
                "Two matrices learn better than one",
                "learned, popularity order",
                "learned, one matrix",
            ),
            (
                "Sec. III-D",
                "Popularity orders better than cosine similarity",
                "learned, popularity order",
                "learned, cosine order",
            ),
        )
    ),
    "variants": tuple(
        _paper(
            "Sec. V-A, Fig. 6",
            f"{variant.capitalize()} ends where the baseline does at {snr_db:g} dB",
            _ACCURACY,
            _at(snr_db, variant=variant),
            _at(snr_db, variant="baseline"),
            kind="near",
            margin=EQUAL,
        )
        for variant in ("curvature-aware", "quantisation loss")
        for snr_db in PAPER_SNR_DB
    ),
    "generalisation": (
        _paper(
            "Sec. V-B, Fig. 7",
            "A layer trained on another architecture serves as well",
            _ACCURACY,
            {_TRAINED: "the other architecture"},
            {_TRAINED: "the same architecture"},
            kind="near",
            margin=EQUAL,
        ),
        Claim(
            "It stays near perfect aggregation",
            _ACCURACY,
            {_TRAINED: "the other architecture"},
            {_TRAINED: "perfect aggregation"},
            "near",
            NEAR,
        ),
    ),
    "aggregation_rules": (
        *(
            _paper(
                "Sec. V-C, Fig. 8",
                f"{says} withstands corruption better than the mean",
                _ACCURACY,
                _OFF | {"rule": rule},
                _OFF | {"rule": "mean"},
            )
            for says, rule in (("The trimmed mean", "trimmed-mean"), ("The majority vote", "majority-vote"))
        ),
        *(
            _paper(
                "Sec. V-C",
                f"Error feedback must be off for the {rule.replace('-', ' ')}",
                _ACCURACY,
                _OFF | {"rule": rule},
                _OFF | {"error_feedback": "plain", "rule": rule},
            )
            for rule in ("trimmed-mean", "majority-vote")
        ),
    ),
    "codebook_geometry": (
        _paper(
            "Sec. V-D, Fig. 9",
            "Learning lowers the correlation of popular codewords",
            "correlation_of_popular_half",
            {"setup": "fixed Gaussian, no order"},
            {"setup": "learned, popularity order"},
        ),
        _paper(
            "Sec. V-D",
            "Learning flattens the singular values",
            "condition_number",
            {"setup": "fixed Gaussian, no order"},
            {"setup": "learned, popularity order"},
        ),
    ),
    "quantisation": (
        _paper(
            "Sec. III-D, footnote",
            "k-means++ alone serves the devices better than ten Lloyd iterations after it",
            "device_nmse",
            {"way": "and 10 Lloyd iterations"},
            {"way": "k-means++ (the paper)"},
        ),
    ),
}
"""By result; A is the one that should be larger, for errors the rival's."""
