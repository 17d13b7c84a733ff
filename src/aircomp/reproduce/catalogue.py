"""The results of the paper and ours by name: which jobs each is made of, and how their rows become tables and figures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aircomp.common.results import Row
from aircomp.errors import ConfigError, unknown_name
from aircomp.reproduce import codes, receivers, rounds, runs, table_one, worth
from aircomp.reproduce.jobs import Job
from aircomp.reproduce.parts import Found, Outcome
from aircomp.reproduce.scales import Scale
from aircomp.reproduce.verdicts import Source


@dataclass(frozen=True)
class Result:
    """A table or figure of the paper, or one that we add."""

    name: str
    title: str
    says: str
    """What the paper says of it; of ours, what we ask or found."""
    jobs: Callable[[Scale, Sequence[int]], list[tuple[Row, Job]]]
    """Its jobs at a scale with some seeds, each with the fields that identify it."""
    present: Callable[[Scale, Found], Outcome]
    source: Source = "ours"
    """Who says it."""
    section: str = ""
    """Where the paper does."""
    numbers: tuple[str, ...] = ()
    """What the paper calls it; names of `aircomp reproduce`, too."""
    only: tuple[str, ...] = ()
    """The scales that it can be run at; all if empty."""

    @property
    def statement(self) -> str:
        """What is said of it, and by whom."""
        return f"The paper ({self.section}): {self.says}" if self.source == "paper" else f"We add: {self.says}"


def result_of(name: str, scale: str) -> Result:
    """Return a result by name or number, if it can be run at a scale."""
    result = RESULTS.get(name) or NUMBERED.get(name)
    if result is None:
        raise unknown_name("result", name, [*RESULTS, *NUMBERED, "all"])
    if result not in results_at(scale):
        raise ConfigError(
            f"the result {result.name} is not for --scale {scale}; use --scale {' or '.join(result.only)}"
        )
    return result


def results_at(scale: str) -> list[Result]:
    """Return the results that can be run at a scale."""
    return [result for result in RESULTS.values() if not result.only or scale in result.only]


def _of_paper(section: str, *numbers: str) -> dict[str, Any]:
    """Return what marks a result as the paper's."""
    return {"source": "paper", "section": section, "numbers": numbers}


RESULTS = {
    result.name: result
    for result in (
        Result(
            "fed_accuracy",
            "Federated accuracy over SNR (Table I)",
            "AMP-DA-Net outperforms AMP-DA across the SNR range and approaches perfect aggregation at low SNRs, which "
            "extends the operable range by more than 10 dB.",
            runs.fed_accuracy_jobs,
            runs.fed_accuracy,
            **_of_paper("Sec. IV, Table I, Fig. 3", "table1", "fig3"),
        ),
        Result(
            "from_scratch",
            "Table I from scratch",
            "AMP-DA ends at .139 at 0 dB and at .525 at 5 dB, AMP-DA-Net at .776 and .798, perfect aggregation at .804.",
            table_one.from_scratch_jobs,
            table_one.from_scratch,
            **_of_paper("Sec. IV, Table I"),
            only=("desktop",),
        ),
        Result(
            "batch_norm",
            "Why AMP-DA collapses in Table I",
            "the authors' code divides the exact sum of BatchNorm buffers by the estimated number of devices, and the paper "
            "does not mention it. The same weights are tested so and with averaged buffers.",
            table_one.batch_norm_jobs,
            table_one.batch_norm,
            only=("desktop",),
        ),
        Result(
            "decoding_worth",
            "What decoding is worth in training",
            "does better decoding train better? Bias and noise of an update are told apart.",
            worth.worth_jobs,
            worth.worth,
            only=("digits",),
        ),
        Result(
            "codes",
            "Which code carries an update",
            "the paper's codewords have equal energies. Here they are compared with energies that match the codewords' use, "
            "and with analog and hybrid schemes.",
            codes.codes_jobs,
            codes.codes,
            only=("digits", "laptop", "desktop"),
        ),
        Result(
            "receivers",
            "Which receiver counts behind fading",
            "the paper has no fading. Here receivers are compared by what devices and base station must know of gains.",
            receivers.receivers_jobs,
            receivers.receivers,
            only=("digits",),
        ),
        Result(
            "k_error",
            "Estimating the number of devices",
            "the estimate is greatly improved, and its error remains well within one half until very low SNRs.",
            rounds.decoding_jobs,
            rounds.k_error,
            **_of_paper("Sec. IV, Fig. 4", "fig4"),
        ),
        Result(
            "decoding_accuracy",
            "Decoding accuracy",
            "the accuracy of the recovered counts is consistently higher than AMP-DA's across all SNRs.",
            rounds.decoding_jobs,
            rounds.decoding_accuracy,
            **_of_paper("Sec. IV, Fig. 5", "fig5"),
        ),
        Result(
            "codebook_ablation",
            "What the codebook brings (Table II)",
            "learning the codebook and ordering it by popularity both help; one matrix instead of two costs about 1.5 %; "
            "order by cosine similarity was much less impactful than by popularity.",
            rounds.ablation_jobs,
            rounds.ablation,
            **_of_paper("Sec. V-D, Table II; Sec. III-D and III-E", "table2"),
        ),
        Result(
            "variants",
            "Curvature-aware quantisation and quantisation loss",
            "the accuracies of the three variants largely overlap across SNRs.",
            runs.variants_jobs,
            runs.variants,
            **_of_paper("Sec. V-A, Fig. 6", "fig6"),
        ),
        Result(
            "generalisation",
            "A layer meets another architecture",
            "a layer trained on one architecture serves another with no noticeable degradation.",
            runs.generalisation_jobs,
            runs.generalisation,
            **_of_paper("Sec. V-B, Fig. 7", "fig7"),
        ),
        Result(
            "aggregation_rules",
            "Corrupted devices",
            "trimmed mean and majority vote substantially mitigate the bias of corrupted devices; error feedback had to be "
            "disabled to maintain stability.",
            runs.rules_jobs,
            runs.rules,
            **_of_paper("Sec. V-C, Fig. 8", "fig8"),
        ),
        Result(
            "codebook_geometry",
            "Geometry of the codebook",
            "learning lowers the correlation of popular codewords more than that of others, and the singular values spread "
            "less than those of fixed codebooks.",
            rounds.geometry_jobs,
            rounds.geometry,
            **_of_paper("Sec. V-D, Fig. 9", "fig9"),
        ),
        Result(
            "quantisation",
            "Why k-means++ (Appendix A)",
            "Lloyd iterations after k-means++ fit the base station's fragments and serve the other devices worse.",
            rounds.quantisation_jobs,
            rounds.quantisation,
            **_of_paper("Sec. III-D, footnote, and Appendix A"),
        ),
    )
}
NUMBERED = {number: result for result in RESULTS.values() for number in result.numbers}
"""Results by the number that the paper gives them."""
