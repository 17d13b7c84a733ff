"""The results of the paper by name: which jobs each is made of, and how their rows become tables and figures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aircomp.errors import unknown_name
from aircomp.reproduce import rounds, runs
from aircomp.reproduce.jobs import Job
from aircomp.reproduce.parts import Found, Outcome
from aircomp.reproduce.scales import Scale
from aircomp.results import Row


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


def result_of(name: str) -> Result:
    """Return a result by name."""
    if name not in RESULTS:
        raise unknown_name("result", name, [*RESULTS, "all"])
    return RESULTS[name]


RESULTS = {
    result.name: result
    for result in (
        Result(
            "fed_accuracy",
            "Federated accuracy over SNR (Table I)",
            "AMP-DA-Net stays near perfect aggregation where AMP-DA collapses, which extends the range by more than 10 dB.",
            runs.fed_accuracy_jobs,
            runs.fed_accuracy,
        ),
        Result(
            "k_error",
            "Estimating the number of devices",
            "The error of the estimated number of devices stays below one half until very low SNR.",
            rounds.decoding_jobs,
            rounds.k_error,
        ),
        Result(
            "decoding_accuracy",
            "Decoding accuracy",
            "Counts are decoded better than by AMP-DA at every SNR.",
            rounds.decoding_jobs,
            rounds.decoding_accuracy,
        ),
        Result(
            "codebook_ablation",
            "What the codebook brings (Table II)",
            "Learning the codebook helps, ordering it by popularity helps further; one matrix instead of two costs 1.5 %.",
            rounds.ablation_jobs,
            rounds.ablation,
        ),
        Result(
            "variants",
            "Curvature-aware quantisation and quantisation loss",
            "The accuracies of the three variants overlap.",
            runs.variants_jobs,
            runs.variants,
        ),
        Result(
            "generalisation",
            "A layer meets another architecture",
            "A layer trained on one architecture serves another without loss.",
            runs.generalisation_jobs,
            runs.generalisation,
        ),
        Result(
            "aggregation_rules",
            "Corrupted devices",
            "Trimmed mean and majority vote withstand corruption better than the mean; error feedback had to be off.",
            runs.rules_jobs,
            runs.rules,
        ),
        Result(
            "codebook_geometry",
            "Geometry of the codebook",
            "Learning lowers the correlation of popular codewords most, and the singular values spread less.",
            rounds.geometry_jobs,
            rounds.geometry,
        ),
        Result(
            "quantisation",
            "Why k-means++ (Appendix A)",
            "Codewords that are fragments themselves serve the devices better than means of the base station's fragments.",
            rounds.quantisation_jobs,
            rounds.quantisation,
        ),
    )
}
