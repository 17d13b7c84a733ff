"""The arena: one job for every challenge, point, scheme and seed, and the rows that they give."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aircomp
from aircomp.channel.base import make_channel
from aircomp.common.results import Row, environment
from aircomp.common.settings import Elsewhere, SettingsError
from aircomp.errors import AirCompError, ConfigError
from aircomp.federation.configure import check_phase, configure
from aircomp.federation.experiment import Experiment
from aircomp.measure.fields import label_of
from aircomp.schemes.outputs import check_rule
from aircomp.studies.entrants import OWN_UPDATE, ROBUST, Entrant, entrant_names, find_entrants, is_ours
from aircomp.studies.expected import deviations, expectation_of, expected, write_expected
from aircomp.studies.jobs import (
    SERIAL,
    Forecast,
    Job,
    OnJob,
    Payload,
    Workers,
    forecast,
    known_seconds,
    run_jobs,
    run_params,
    seconds_by_kind,
)
from aircomp.studies.kinds import collection, run_job
from aircomp.studies.ranking import MEASURES, winners
from aircomp.studies.study import CHALLENGES, EMBEDDED, Challenge, Task, challenge_names, find_challenge
from aircomp.studies.summary import over_seeds

SLOT_USES = 64
"""Channel uses by which rounds may differ: one slot."""
COLLECTED = ("data.", "devices.", "local.", "model.", "participation.", "partition.")
"""Groups of settings that change the messages of the devices; all schemes at a point share them."""
ROUND_FIELDS = ("raw_nmse", "raw_gain", "update_nmse", "update_gain", "count_accuracy", "vote_error")
ROUND_ITSELF = "update_correlation"
"""Measured on the messages before they are sent: the same for all schemes."""
COST_FIELDS = ("channel_uses", "energy_per_device", "energy_max", "energy_nominal", "peak_power", "downlink_bits")
TRAINING_FIELDS = ("test_accuracy", "test_accuracy_last5", "test_loss")
KEPT = {"round": ("raw_nmse", "raw_gain", ROUND_ITSELF), "training": ("test_accuracy_last5",)}
"""The fields that are expected of each task."""
PLACE = ("challenge", "value", "scheme")


@dataclass(frozen=True)
class Plan:
    """What is compared."""

    challenges: tuple[str, ...] = ()
    """Names or TOML files; empty: all challenges whose data come with the package."""
    schemes: tuple[str, ...] = ()
    """Names, TOML files or MODULE:CLASS; empty: those of each challenge."""
    task: Task = "round"
    seeds: tuple[int, ...] = (0, 1, 2)
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the experiment for all schemes, by path."""
    collected_rounds: int = 8
    """How many rounds are trained and saved."""
    measured_rounds: int = 2
    """How many of them are sent: the last ones."""
    training_rounds: int = 30
    """How many rounds models are trained for, unless `settings` has `rounds`."""

    def chosen(self) -> dict[str, Challenge]:
        """Return the challenges by name; two files of one name have their paths.

        Raises:
            ConfigError: If one is given twice.
        """
        names = self.challenges or [name for name in challenge_names() if find_challenge(name).preset == EMBEDDED]
        if len(set(names)) < len(names):
            raise ConfigError(f"a challenge was given twice among {', '.join(names)}; leave one out")
        return {name: find_challenge(name) for name in names}


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


def compare(plan: Plan, work: Path, crew: Workers = SERIAL, on_job: OnJob | None = None) -> Comparison:
    """Run a comparison; jobs that `work` already holds are not done again.

    Args:
        plan: What to compare.
        work: The directory in which jobs keep their results.
        crew: The processes that do the jobs.
        on_job: Called after each job.
    """
    wanted, refused = jobs_of(plan)
    reasons = run_jobs([job for _, job in wanted], work, run_job, crew, on_job, tolerant=True)
    failed = [row | {"reason": reasons[job.key]} for row, job in wanted if job.key in reasons]
    none: Payload = {"rows": []}
    found = [(row, none if job.key in reasons else _with_words(job.done(work))) for row, job in wanted]
    fields = (*((*ROUND_FIELDS, ROUND_ITSELF) if plan.task == "round" else TRAINING_FIELDS), *COST_FIELDS)
    rows = summary(found, fields)
    uneven = unequal(rows)
    equal = [row for row in rows if _place(row) not in map(_place, uneven)]
    axes = {name: challenge.axis for name, challenge in plan.chosen().items()}
    won = [row | {"axis": label_of(axes[row["challenge"]])} for row in winners(equal, MEASURES[plan.task])]
    told = (rows, won, refused, failed + uneven, curves_of(found))
    return Comparison(plan, *([_at(row, axes[row["challenge"]]) for row in each] for each in told))


def _at(row: Row, axis: str) -> Row:
    """Return a row that has its value by the name of its axis, too: `snr_db` beside `value`."""
    place = {name: row[name] for name in ("challenge", "value")}
    return place | {axis: row["value"]} | {name: value for name, value in row.items() if name != axis}


def forecast_of(plan: Plan, work: Path) -> Forecast:
    """Return what a comparison will cost."""
    known: dict[str, float] = {}
    for task in KEPT:
        known |= (expected("arena", task) or {}).get("seconds_by_kind", {})
    jobs = [job for _, job in jobs_of(plan)[0]]
    return forecast(jobs, work, known_seconds(jobs, known))


# ── jobs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def jobs_of(plan: Plan) -> tuple[list[tuple[Row, Job]], list[Row]]:
    """Return every job with the fields that identify it, and every scheme that cannot serve a point.

    Raises:
        ConfigError: If a challenge or the settings of all schemes cannot be, whoever is asked.
    """
    wanted: list[tuple[Row, Job]] = []
    refused: list[Row] = []
    for name, challenge in plan.chosen().items():
        if "seed" in challenge.settings or "seed" in challenge.vary:
            raise ConfigError(f"the challenge {name} sets a seed, but seeds are counted from 0 on; leave it out")
        for entrant in find_entrants(plan.schemes or challenge.schemes):
            for place in challenge.places(plan.task):
                about = {
                    "challenge": name,
                    "value": challenge.values[place],
                    "scheme": entrant.name,
                    "ours": entrant.ours,
                }
                settings = challenge.settings_at(place, plan.settings)
                try:
                    settings = _entering(entrant, challenge, settings)
                    if reason := refusal(plan.task, challenge.preset, entrant, settings):
                        refused.append(about | {"reason": reason})
                        continue
                except ConfigError as error:
                    raise ConfigError(f"the challenge {name} at {challenge.values[place]:g}: {error}") from None
                wanted += [
                    (about | {"seed": seed}, _job(plan, challenge.preset, entrant, settings, seed))
                    for seed in plan.seeds
                ]
    return wanted, refused


def _entering(entrant: Entrant, challenge: Challenge, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a point with those of a scheme."""
    if entrant.own == OWN_UPDATE:
        return {path: value for path, value in settings.items() if not path.startswith("uplink.")}
    robust = {"aggregate.rule": ROBUST[entrant.offers]} if challenge.robust else {}
    return settings | robust | entrant.settings


def refusal(task: Task, preset: str, entrant: Entrant, settings: Mapping[str, Any]) -> str:
    """Return why a scheme cannot serve a point; empty if it can.

    Raises:
        ConfigError: If the point itself cannot be: its settings exist for no scheme, or are wrong with all.
    """
    if entrant.own == OWN_UPDATE and task == "training":
        return "it is a reference for single rounds"
    try:
        experiment = configure(preset, dict(settings))
    except SettingsError as error:
        if all(isinstance(problem, Elsewhere) and problem.path.startswith("uplink.") for problem in error.problems):
            return str(error)
        raise
    make_channel(experiment.channel, experiment.power)  # refuses what cannot be
    return _verdict(entrant, experiment)


def _verdict(entrant: Entrant, experiment: Experiment) -> str:
    if entrant.own:
        return ""
    try:
        check_phase(experiment)
        check_rule(entrant.offers, experiment.aggregate.rule, experiment.aggregate.readout)
    except AirCompError as error:
        return str(error)
    return ""


def _job(plan: Plan, preset: str, entrant: Entrant, settings: dict[str, Any], seed: int) -> Job:
    if plan.task == "training":
        params = run_params(preset, {"rounds": plan.training_rounds} | settings | {"seed": seed})
        return Job("arena-training", params | entrant.told) if entrant.own else Job("simulate", params)
    said = {path: value for path, value in settings.items() if path.startswith(COLLECTED)}
    said |= {"rounds": plan.collected_rounds, "seed": seed, "feedback.kind": "off"}
    params = run_params(preset, settings | {"seed": seed}) | entrant.told | {"rounds": plan.measured_rounds}
    return Job("arena-round", params, (collection(preset, said),))


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def summary(found: Sequence[tuple[Row, Payload]], fields: Sequence[str]) -> list[Row]:
    """Return a row for every challenge, point and scheme; a seed whose job failed has the value None.

    All schemes at a point thus have their values in the order of the same seeds.
    """
    measured: dict[tuple[Any, ...], list[Row]] = {}
    for row, payload in found:
        measured.setdefault(_place(row), []).extend(payload["rows"])
    whole = [(row, {"rows": payload["rows"] or [{}]}) for row, payload in found if measured[_place(row)]]
    rows = []
    for row in over_seeds(whole, (*PLACE, "ours"), fields):
        done = measured[_place(row)]
        told = "; ".join(dict.fromkeys(str(each["side_information"]) for each in done if "side_information" in each))
        rows.append(_without_empty(row) | {"side_information": told, "seeds": len(done)})
    return rows


def _place(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in PLACE)


def _with_words(payload: Payload) -> Payload:
    """Tell side information in one line; a federated run has it as a list."""
    rows = [
        row | {"side_information": ", ".join(map(str, told)) or "none"}
        if isinstance(told := row.get("side_information"), list)
        else row
        for row in payload["rows"]
    ]
    return payload | {"rows": rows}


def _without_empty(row: Row) -> Row:
    """Leave out fields that the scheme does not measure."""
    return {name: value for name, value in row.items() if value is not None and value != [None] * row["seeds"]}


def curves_of(found: Sequence[tuple[Row, Payload]]) -> list[Row]:
    """Return the test accuracy after every round, a mean over the seeds, of jobs that train."""
    told = [
        (row, {"rows": [{"round": number, "test_accuracy": accuracy} for number, accuracy in payload["curve"]]})
        for row, payload in found
        if "curve" in payload
    ]
    return over_seeds(told, (*PLACE, "round"), ("test_accuracy",))


def unequal(rows: Sequence[Row]) -> list[Row]:
    """Name schemes whose channel uses differ by more than a slot from those of most; references may use none.

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
                found.append({name: row[name] for name in PLACE} | {"reason": reason})
    return found


# ── what is expected ─────────────────────────────────────────────────────────────────────────────────────────────────


def expected_rows(task: Task, *challenges: str) -> list[Row]:
    """Return what was measured of some challenges, or of all; every row says whether the scheme is ours."""
    found = expected("arena", task) or {"rows": []}
    return [
        row | {"ours": is_ours(row["scheme"])}
        for row in found["rows"]
        if row["challenge"] in (challenges or (row["challenge"],))
    ]


def out_of_band(rows: Sequence[Row], task: Task) -> list[str]:
    """Say which numbers lie outside their bands, and which schemes of the same challenges were never measured."""
    before = expected_rows(task)
    known = {_place(row) for row in before}
    missing = [f"{' '.join(map(str, _place(row)))} was never measured" for row in rows if _place(row) not in known]
    return missing + deviations([_kept(row, task) for row in rows], before)


def check_whole(plan: Plan) -> None:
    """Refuse a comparison that is not that of the challenges as they are: others would be compared with its numbers."""
    own = [name for name in plan.challenges if name not in CHALLENGES.names()]
    unknown = [name for name in plan.schemes if name not in entrant_names()]
    if unknown or plan.settings or own:
        raise ConfigError(
            "--update-expected takes schemes of the package and the challenges as they are; leave out --snr-db, and "
            "schemes and challenges of your own"
        )


def update_expected(comparison: Comparison, work: Path) -> Path:
    """Write what was measured with all seeds as the new expectation; what was not measured stays as it was."""
    plan = comparison.plan
    judged = f"{MEASURES[plan.task].field}_values"
    new = [_kept(row, plan.task) for row in comparison.rows if None not in row.get(judged, [None])]
    done = {_place(row) for row in new}
    before = expected("arena", plan.task) or {"rows": []}
    whole = plan.chosen() if not plan.schemes else {}
    rows = new + [row for row in before["rows"] if _place(row) not in done and row["challenge"] not in whole]
    order = challenge_names()
    rows.sort(key=lambda row: order.index(row["challenge"]))
    failed = {tuple(row.get(name) for name in (*PLACE, "seed")) for row in comparison.failed}
    jobs = [job for row, job in jobs_of(plan)[0] if tuple(row[name] for name in (*PLACE, "seed")) not in failed]
    seconds = before.get("seconds_by_kind", {}) | seconds_by_kind(jobs, work)
    about = {"version": aircomp.__version__, "environment": environment(), "seconds_by_kind": seconds}
    return write_expected("arena", plan.task, about, rows)


def _kept(row: Row, task: Task) -> Row:
    judged = MEASURES[task].field
    names = [name for name in KEPT[task] if row.get(name) is not None]
    fields = [f"{name}{about}" for name in names for about in ("", "_std", "_values")]
    told = {name: row[name] for name in (*PLACE, "seeds", *fields) if name in row}
    return expectation_of(told, judged)
