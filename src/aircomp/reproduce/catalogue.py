"""The results of the paper by name: which jobs each is made of, and how their rows become tables and figures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aircomp.common.results import Row
from aircomp.errors import ConfigError, unknown_name
from aircomp.reproduce import codes, receivers, rounds, runs, table_one, worth
from aircomp.reproduce.jobs import Job
from aircomp.reproduce.parts import Found, Outcome
from aircomp.reproduce.scales import Scale


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
    only: tuple[str, ...] = ()
    """The scales that it can be run at; all if empty."""


def result_of(name: str, scale: str) -> Result:
    """Return a result by name, if it can be run at a scale."""
    if name not in RESULTS:
        raise unknown_name("result", name, [*RESULTS, "all"])
    result = RESULTS[name]
    if result not in results_at(scale):
        raise ConfigError(f"the result {name} is not for --scale {scale}; use --scale {' or '.join(result.only)}")
    return result


def results_at(scale: str) -> list[Result]:
    """Return the results that can be run at a scale."""
    return [result for result in RESULTS.values() if not result.only or scale in result.only]


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
            "batch_norm",
            "Why AMP-DA collapses in Table I",
            "AMP-DA collapses below 10 dB; the authors' code divides the exact sum of BatchNorm buffers by the estimated "
            "number of devices.",
            table_one.batch_norm_jobs,
            table_one.batch_norm,
            only=("desktop",),
        ),
        Result(
            "from_scratch",
            "Table I from scratch",
            "AMP-DA at 0 dB ends at .139, where perfect aggregation ends at .804.",
            table_one.from_scratch_jobs,
            table_one.from_scratch,
            only=("desktop",),
        ),
        Result(
            "decoding_worth",
            "What decoding is worth in training",
            "Better decoding trains better.",
            worth.worth_jobs,
            worth.worth,
            only=("digits",),
        ),
        Result(
            "codes",
            "Which code carries an update",
            "Codewords of equal energy (the paper's) carry the update best.",
            codes.codes_jobs,
            codes.codes,
            only=("digits", "laptop", "desktop"),
        ),
        Result(
            "receivers",
            "Which receiver counts behind fading",
            "Devices that know their channel (the paper's) are what lets counts be found.",
            receivers.receivers_jobs,
            receivers.receivers,
            only=("digits",),
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
