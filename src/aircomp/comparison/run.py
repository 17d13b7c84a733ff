"""The arena: one job for every challenge, point, scheme and seed, and the rows that they give."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from aircomp.common.results import Row
from aircomp.common.threads import one_thread
from aircomp.comparison.challenges import Challenge, challenge_names, find_challenge
from aircomp.comparison.entrants import ROBUST, Entrant, entrant_names, find_entrant
from aircomp.comparison.judge import MEASURES, winners
from aircomp.comparison.rounds import round_job, training_job
from aircomp.errors import AirCompError
from aircomp.fl.configure import check_phase, configure
from aircomp.measure.fields import label_of
from aircomp.reproduce.jobs import ALONE, Crew, Job, Payload, in_order, preset_params, run_jobs
from aircomp.reproduce.summary import over_seeds
from aircomp.reproduce.work import KINDS, run_job
from aircomp.uplinks.outputs import check_rule

SLOT_USES = 64
"""Channel uses by which rounds may differ: one slot."""
Task = Literal["round", "training"]
COLLECTED = ("data.", "devices.", "local.", "model.", "participation.", "partition.")
"""Groups of settings that change the messages of the devices; all schemes at a point share them."""
ROUND_FIELDS = ("raw_nmse", "raw_gain", "update_nmse", "update_gain", "count_accuracy", "vote_error")
ROUND_ITSELF = "update_correlation"
"""Measured on the messages before they are sent: the same for all schemes."""
COST_FIELDS = ("channel_uses", "energy_per_device", "energy_max", "energy_nominal", "peak_power", "downlink_bits")
TRAINING_FIELDS = ("test_accuracy", "test_accuracy_last5", "test_loss")


@dataclass(frozen=True)
class Plan:
    """What is compared."""

    challenges: tuple[str, ...] = ()
    """Names or TOML files; empty: all challenges."""
    schemes: tuple[str, ...] = ()
    """Names, TOML files or MODULE:CLASS; empty: those of each challenge."""
    task: Task = "round"
    seeds: tuple[int, ...] = (0, 1, 2)
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the experiment for all schemes, by path."""
    preset: str = "digits"
    collected_rounds: int = 8
    """How many rounds are trained and saved."""
    measured_rounds: int = 2
    """How many of them are sent: the last ones."""
    training_rounds: int = 30
    """How many rounds models are trained for, unless `settings` has `rounds`."""

    def chosen(self) -> dict[str, Challenge]:
        """Return the challenges by name."""
        return {name: find_challenge(name) for name in self.challenges or challenge_names()}


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison."""

    plan: Plan
    rows: list[Row]
    """One for every challenge, point and scheme."""
    winners: list[Row]
    """One for every challenge and point."""
    refused: list[Row]
    """Schemes that cannot serve a challenge, and why."""
    failed: list[Row]
    """Jobs that failed, and why."""
    curves: list[Row] = field(default_factory=list)
    """Of training: the test accuracy after every round, a mean over the seeds."""

    def __repr__(self) -> str:
        won = len({row["challenge"] for row in self.winners})
        return f"<Comparison: {won} challenges, {len(self.rows)} rows, {len(self.failed)} failed jobs>"


def compare(
    plan: Plan, work: Path, crew: Crew = ALONE, on_job: Callable[[Job, int, int], None] | None = None
) -> Comparison:
    """Run a comparison; jobs that `work` already holds are not done again.

    Args:
        plan: What to compare.
        work: The directory in which jobs keep their results.
        crew: The processes that do the jobs.
        on_job: Called after each job.
    """
    wanted, refused = jobs_of(plan)
    jobs = [job for _, job in wanted]
    forget_failed(jobs, work)
    run_jobs(jobs, work, run_or_tell, crew, on_job)
    found = [(row, _with_words(job.done(work))) for row, job in wanted]
    failed = [row | {"reason": payload["failed"]} for row, payload in found if payload.get("failed")]
    measure = MEASURES[plan.task]
    fields = (*((*ROUND_FIELDS, ROUND_ITSELF) if plan.task == "round" else TRAINING_FIELDS), *COST_FIELDS)
    rows = summary(found, fields)
    axes = {name: label_of(challenge.axis) for name, challenge in plan.chosen().items()}
    uneven = unequal(rows)
    equal = [row for row in rows if _place(row) not in map(_place, uneven)]
    won = [row | {"axis": axes[row["challenge"]]} for row in winners(equal, measure)]
    return Comparison(plan, rows, won, refused, failed + uneven, curves_of(found))


def summary(found: Sequence[tuple[Row, Payload]], fields: Sequence[str]) -> list[Row]:
    """Return a row for every challenge, point and scheme; a seed whose job failed has the value None.

    All schemes at a point thus have their values in the order of the same seeds.
    """
    measured: dict[tuple[Any, ...], list[Row]] = {}
    for row, payload in found:
        measured.setdefault(_place(row), []).extend(payload["rows"])
    whole = [(row, {"rows": payload["rows"] or [{}]}) for row, payload in found if measured[_place(row)]]
    rows = []
    for row in over_seeds(whole, ("challenge", "value", "scheme", "ours"), fields):
        done = measured[_place(row)]
        told = "; ".join(dict.fromkeys(each["side_information"] for each in done if "side_information" in each))
        rows.append(_without_empty(row) | {"side_information": told, "seeds": len(done)})
    return rows


def forget_failed(jobs: Sequence[Job], work: Path) -> None:
    """Delete failed jobs and what was made of them: they may have failed for want of something that is there now."""
    failed: set[str] = set()
    for job in in_order(jobs):
        if (job.payload(work) or {}).get("failed") or any(need.key in failed for need in job.needs):
            failed.add(job.key)
            job.path(work).unlink(missing_ok=True)


def _place(row: Row) -> tuple[Any, ...]:
    return row["challenge"], row["value"], row["scheme"]


def curves_of(found: Sequence[tuple[Row, Payload]]) -> list[Row]:
    """Return the test accuracy after every round, a mean over the seeds, of jobs that train."""
    told = [
        (row, {"rows": [{"round": number, "test_accuracy": accuracy} for number, accuracy in payload["curve"]]})
        for row, payload in found
        if "curve" in payload
    ]
    return over_seeds(told, ("challenge", "value", "scheme", "round"), ("test_accuracy",))


def unequal(rows: Sequence[Row]) -> list[Row]:
    """Name schemes whose channel uses differ by more than a slot from those of most; bounds may use none.

    At every point the schemes of this package say what is usual, where any takes part.
    """
    found = []
    for place in dict.fromkeys((row["challenge"], row["value"]) for row in rows):
        here = [row for row in rows if (row["challenge"], row["value"]) == place and row.get("channel_uses")]
        known = [row for row in here if row["scheme"] in entrant_names()] or here
        usual = statistics.mode(row["channel_uses"] for row in known) if known else 0.0
        for row in here:
            if abs(row["channel_uses"] - usual) > SLOT_USES:
                reason = f"it has {row['channel_uses']:,.0f} channel uses a round, the others {usual:,.0f}"
                found.append({name: row[name] for name in ("challenge", "value", "scheme")} | {"reason": reason})
    return found


def jobs_of(plan: Plan) -> tuple[list[tuple[Row, Job]], list[Row]]:
    """Return every job with the fields that identify it, and every scheme that cannot serve a point."""
    wanted: list[tuple[Row, Job]] = []
    refused: list[Row] = []
    for name, challenge in plan.chosen().items():
        for given in plan.schemes or challenge.schemes:
            entrant = find_entrant(given)
            for place in challenge.places(plan.task):
                about = {
                    "challenge": name,
                    "value": challenge.values[place],
                    "scheme": entrant.name,
                    "ours": entrant.ours,
                }
                settings = challenge.settings_at(place, plan.settings) | _entering(entrant, challenge)
                if reason := refusal(plan, entrant, settings):
                    refused.append(about | {"reason": reason})
                    continue
                wanted += [(about | {"seed": seed}, _job(plan, entrant, settings, seed)) for seed in plan.seeds]
    return wanted, refused


def _entering(entrant: Entrant, challenge: Challenge) -> dict[str, Any]:
    robust = {"aggregate.rule": ROBUST[entrant.offers]} if challenge.robust else {}
    return robust | entrant.settings


def refusal(plan: Plan, entrant: Entrant, settings: dict[str, Any]) -> str:
    """Return why a scheme cannot serve a point; empty if it can."""
    try:
        experiment = configure(plan.preset, settings)
        check_phase(experiment)
        check_rule(entrant.offers, experiment.aggregate.rule, experiment.aggregate.readout)
    except AirCompError as error:
        return str(error)
    return ""


def _job(plan: Plan, entrant: Entrant, settings: dict[str, Any], seed: int) -> Job:
    preset = preset_params(plan.preset)
    if plan.task == "training":
        params = preset | {"settings": {"rounds": plan.training_rounds} | settings | {"seed": seed}}
        return Job("arena-training", params | entrant.told) if entrant.own else Job("simulate", params)
    said = {path: value for path, value in settings.items() if path.startswith(COLLECTED)}
    said |= {"rounds": plan.collected_rounds, "seed": seed, "feedback.kind": "off"}
    collected = Job("collect", preset | {"settings": said, "raw": True})
    params = preset | {"settings": settings | {"seed": seed}, "own": ""} | entrant.told
    return Job("arena-round", params | {"rounds": plan.measured_rounds}, (collected,))


OWN_KINDS = {"arena-round": round_job, "arena-training": training_job}
"""The kinds of jobs of the arena alone; `aircomp reproduce` has the others."""


def run_or_tell(job: Job, work: Path) -> Payload:
    """Do one job; if it or one that it needs fails, return the reason, so that the other jobs go on."""
    for need in job.needs:
        if reason := need.done(work).get("failed"):
            return {"rows": [], "failed": reason}
    try:
        if job.kind in KINDS:
            return run_job(job, work)
        with one_thread():
            return OWN_KINDS[job.kind](job, work)
    except AirCompError as error:
        return {"rows": [], "failed": str(error)}


def _with_words(payload: Payload) -> Payload:
    """Tell side information in one line; a federated run has it as a list."""
    rows = [
        row | {"side_information": ", ".join(told) or "none"}
        if isinstance(told := row.get("side_information"), list)
        else row
        for row in payload["rows"]
    ]
    return payload | {"rows": rows}


def _without_empty(row: Row) -> Row:
    """Leave out fields that the scheme does not measure."""
    return {name: value for name, value in row.items() if value is not None and value != [None] * row["seeds"]}


def names_of(rows: Sequence[Row], field_name: str) -> list[Any]:
    """Return the different values of a field in order."""
    return list(dict.fromkeys(row[field_name] for row in rows))
