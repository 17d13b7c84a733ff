"""What the paper claims, as comparisons of two measured numbers; claims of ours are marked. `verdicts.py` judges them."""

from typing import Any

from aircomp.reproduce.verdicts import Claim, Where

LOST = 0.1
"""Ten points of accuracy below perfect aggregation: a collapse."""
NEAR = 0.05
"""Five points: what the paper still calls near perfect aggregation (it lost three)."""
EQUAL = 0.02

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
            _at(0.0, uplink="gamp-net"),
            "near",
            NEAR,
        ),
        *(
            Claim(
                f"AMP-DA-Net ends above AMP-DA at {snr_db:g} dB",
                "test_accuracy_last5",
                _at(snr_db, uplink="gamp-net"),
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
                    _at(0.0, **_treated("estimated", uplink="gamp-net")),
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
            _usual("GAMP-Net, integers"),
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
        *(
            Claim(
                f"Rate by SNR, calibrated, trains no more than {margin:g} below {bound} at {snr_db:g} dB (ours)",
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
            "The hybrid trains like the ideal link at 10 dB (ours)",
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
            _at(snr_db, decoder="gamp-net"),
        )
        for snr_db in (0.0, 5.0, 10.0)
    ),
    "decoding_accuracy": tuple(
        Claim(
            f"AMP-DA-Net decodes counts better than AMP-DA at {snr_db:g} dB",
            "count_accuracy",
            _at(snr_db, decoder="gamp-net"),
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
