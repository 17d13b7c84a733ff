"""A scheme of a stranger's before it enters the arena: its conformance, its budget, and a table for the pull request."""

from dataclasses import dataclass
from pathlib import Path

import aircomp
from aircomp.common.results import Row
from aircomp.errors import ConfigError
from aircomp.measure.fields import label_of
from aircomp.schemes.base import Scheme
from aircomp.studies.arena import Plan, compare, expected_rows
from aircomp.studies.entrants import REFERENCES, find_entrants, load_own
from aircomp.studies.jobs import SERIAL, OnJob, Workers
from aircomp.studies.ranking import MEASURES, compared, outcome, ranked_by
from aircomp.studies.sources import source_hash
from aircomp.studies.study import find_challenge
from aircomp.testing.uplinks import check_uplink

YARDSTICKS = ("baa", "tdma-vq")
"""Schemes that say what is the usual cost; one of them at least can serve every challenge."""


@dataclass(frozen=True)
class Checked:
    """What a check found."""

    given: str
    problems: list[str]
    """One sentence each; empty: the scheme may enter."""
    rows: list[Row]
    """One for every point: the scheme's error, and its margin over the best scheme that is expected there."""

    @property
    def markdown(self) -> str:
        """The table for a pull request."""
        names = list(dict.fromkeys(row["challenge"] for row in self.rows))
        frozen = [f"{name} v{find_challenge(name).version} `{find_challenge(name).fingerprint}`" for name in names]
        head = f"`{self.given}`, source `{source_hash(type(load_own(self.given)))}`, aircomp {aircomp.__version__}"
        lines = [f"{head}; challenges: {', '.join(frozen) or 'none measured'}", ""]
        lines += ["| challenge | point | NMSE, raw | best other | margin (dB) | verdict |", "|---|---|---|---|---|---|"]
        for row in self.rows:
            found = " | ".join(f"{value:.3g}" for value in row["raw_nmse_values"])
            beside = f"`{row['best']}` | {row['margin']:.2f} | {row['verdict']}" if row.get("best") else "– | – | –"
            point = f"{label_of(find_challenge(row['challenge']).axis)} {row['value']:g}"
            lines.append(f"| {row['challenge']} | {point} | {found.replace(' | ', ', ')} | {beside} |")
        return "\n".join(
            [*lines, "", *(f"- {problem}" for problem in self.problems or ["conformance and budgets hold"])]
        )


def check_entry(
    given: str, challenges: tuple[str, ...], seeds: int, work: Path, crew: Workers = SERIAL, on_job: OnJob | None = None
) -> Checked:
    """Check a scheme, and measure it where it conforms.

    Args:
        given: MODULE:CLASS.
        challenges: Names; `awgn` if there are none.
        seeds: How many, from 0 on.
        work: The directory in which jobs keep their results.
        crew: The processes that do the jobs.
        on_job: Called after each job.
    """
    if ":" not in given:
        raise ConfigError(f"--check {given}: expected MODULE:CLASS of a scheme of your own, say my_module:MyScheme")
    kind: type[Scheme] = type(load_own(given))
    try:
        check_uplink(kind)
    except AssertionError as error:
        return Checked(given, [f"conformance: {error}"], [])
    name = find_entrants((given, *YARDSTICKS))[0].name
    plan = Plan(challenges or ("awgn",), (given, *YARDSTICKS), seeds=tuple(range(seeds)))
    found = compare(plan, work, crew, on_job)
    problems = [
        f"{row['challenge']} {row['value']:g}: {row['reason']}"
        for row in (*found.refused, *found.failed)
        if row["scheme"] == name
    ]
    known = expected_rows("round", *plan.challenges)
    rows = [row | _beside(row, known) for row in found.rows if row["scheme"] == name]
    return Checked(given, list(dict.fromkeys(problems)), rows)


def _beside(row: Row, known: list[Row]) -> Row:
    """Compare with the best expected scheme at a point, by the seeds that both have."""
    measure = MEASURES["round"]
    here = [
        other | {"raw_nmse_values": _padded(other["raw_nmse_values"], row)}
        for other in known
        if (other["challenge"], other["value"]) == (row["challenge"], row["value"])
        and other["scheme"] not in REFERENCES
    ]
    if not here:
        return {}
    best = ranked_by(measure, here)[0]
    beside = compared(row, best, measure)
    return {"best": best["scheme"], "margin": beside["margin"], "verdict": outcome(beside)}


def _padded(values: list[float | None], row: Row) -> list[float | None]:
    """Return as many values as a row has, None where a seed was not measured."""
    number = len(row["raw_nmse_values"])
    return [*values[:number], *[None] * (number - len(values))]
