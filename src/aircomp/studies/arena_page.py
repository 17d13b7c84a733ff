"""result.json and report.html of a comparison: who wins where, then every challenge with its figure and its costs."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aircomp.common.results import Row, write_result
from aircomp.measure.fields import columns_of, label_of
from aircomp.measure.limits import cut_set, modulo_lattice
from aircomp.quantize.settings import FragmentSettings
from aircomp.report.page import Figure, Section, Table, write_figures, write_page
from aircomp.report.rows import SHARE, lines_of, panels_of, present, series_of, table_of, varies
from aircomp.schemes.outputs import Counts, Mean, Output, Vectors, Vote
from aircomp.studies.arena import COST_FIELDS, ROUND_FIELDS, ROUND_ITSELF, SLOT_USES, Comparison, Plan
from aircomp.studies.entrants import REFERENCES, entrant_names, find_entrant, find_entrants
from aircomp.studies.ranking import CONFIDENCE, MEASURES, Measure, overview
from aircomp.studies.scales import SCALES
from aircomp.studies.study import Challenge
from aircomp.studies.verdicts import TITLES, claim_tables, judge

WINNERS = (
    "challenge",
    "axis",
    "value",
    "winner",
    "won_with",
    "runner_up",
    "margin",
    "verdict",
    "margin_low",
    "margin_high",
)
OVERVIEW = ("challenge", "points", "winners", "our_best", "our_lowest", "our_highest", "our_verdicts")
OURS = ("challenge", "axis", "value", "our_best", "best_rival", "our_margin", "our_verdict")
TASKS = {
    "round": "Every scheme sends the same round of real updates, and the error of the mean that arrives counts (NMSE, raw). "
    "Three rounds are sent before those that are measured, so that the scheme knows what it would in a run.",
    "training": "Every scheme trains the same model, and the test accuracy counts, as a mean of the last five tests. A round "
    "takes the same channel uses and mean energy with every scheme, so accuracy over rounds is also accuracy over air time "
    "and over energy.",
}
BESIDE = {"round": (Measure("update_nmse", higher_is_better=False, unit="dB"),), "training": ()}
"""Drawn but not judged: the error against what was sent, which leaves out the loss of quantisation."""
FAMILIES: dict[type[Output], str] = {
    Mean: "parameters, all at once",
    Counts: "codewords, all at once",
    Vectors: "bits, in turns",
    Vote: "signs, all at once",
}
"""Kinds of schemes, by what arrives."""
OTHERS = "others"
LIMITS = {"cut-set, Gaussian": cut_set, "ideal modulo lattice, Gaussian": modulo_lattice}
"""Lines of theory; `measure/limits.py` has the formulas."""
WHITE = {
    "channel.snr_db",
    "channel.snr_reference",
    "devices.total",
    "model.name",
    "model.stem_stride",
    "participation.kind",
    "participation.number",
    "partition.alpha",
    "partition.kind",
    "uplink.quantize.fragment_length",
}
"""Settings of challenges that the theory is about."""
USUAL_DEVICES = 10
"""The mean number of devices, where a challenge does not say one."""
FAIR = (
    "All schemes have the same messages, gains, noise, channel uses and mean energy. The tables of costs say what each "
    "scheme is told for free. Every scheme has error feedback in training, and votes a step of their own; no setting was "
    "tuned for a challenge."
)


def write_comparison(comparison: Comparison, out: Path) -> Path:
    """Write all files of a comparison and return the page."""
    plan, challenges = comparison.plan, comparison.plan.chosen()
    config = asdict(plan) | {"refused": comparison.refused, "failed": comparison.failed}
    write_result(out / "result.json", f"arena {plan.task}", config, plan.seeds[0], comparison.rows)
    sections = [_first(comparison)]
    for name, challenge in challenges.items():
        rows = [row for row in comparison.rows if row["challenge"] == name]
        drawn = [figure_of(challenge, rows, measure) for measure in (MEASURES[plan.task], *BESIDE[plan.task])]
        drawn += [curves(challenge, rows, value, comparison) for value in names_of(rows, "value")]
        figures = present(drawn)
        links = {"result.json": "result.json"} | write_figures(out, figures)
        sections.append(_section(name, challenge, rows, figures, links, comparison))
    if comparison.failed:
        columns = columns_of(["challenge", "value", "scheme", "seed", "reason"])
        sections.append(Section("Jobs that failed", tables=(Table("Failures", columns, comparison.failed),)))
    asked = " ".join(challenge.question for challenge in challenges.values()) if len(challenges) < 3 else ""
    lead = asked or f"{len(challenges)} questions about schemes for over-the-air computation, at equal uses and energy."
    return write_page(out / "report.html", "Arena", sections, lead=lead)


def figure_of(challenge: Challenge, rows: Sequence[Row], measure: Measure) -> Figure | None:
    """Draw a challenge: a panel for every family of schemes, one line a scheme, references in grey."""
    drawn = [row | {challenge.axis: row["value"]} for row in rows]
    series = series_of(drawn, ["scheme"], challenge.axis, measure.field)
    grey: dict[str, Any] = {name: series.pop(name) for name in REFERENCES if name in series}
    families: dict[str, dict[str, Any]] = {}
    for name, points in series.items():
        families.setdefault(family_of(name), {})[name] = points
    order = [*FAMILIES.values(), OTHERS]
    families = {name: families[name] for name in order if name in families}
    references = dict.fromkeys(families, grey)
    if measure == MEASURES["round"] and references:  # where schemes come near
        best = next(iter(references))
        references[best] = grey | limits_of(challenge, rows)
    axis: Row = {"limits": SHARE} if measure.higher_is_better else {"log": True}
    title = f"{challenge.title}: {label_of(measure.field)}"
    return panels_of(families, label_of(challenge.axis), label_of(measure.field), title, references=references, **axis)


def family_of(scheme: str) -> str:
    """Return the family of a scheme; one of the user's own is among the others."""
    return FAMILIES[find_entrant(scheme).offers] if scheme in entrant_names() else OTHERS


def limits_of(challenge: Challenge, rows: Sequence[Row]) -> dict[str, list[tuple[float, float]]]:
    """Return what theory allows at every point, for Gaussian numbers as correlated as the updates; only of white noise."""
    alike = {row["value"]: row[ROUND_ITSELF] for row in rows if row.get(ROUND_ITSELF) is not None}
    if challenge.robust or not (challenge.settings.keys() | challenge.vary.keys()) <= WHITE:
        return {}
    found: dict[str, list[tuple[float, float]]] = {}
    for place, value in enumerate(challenge.values):
        if value in alike:
            at = challenge.settings_at(place, {})
            uses = SLOT_USES / at.get("uplink.quantize.fragment_length", FragmentSettings().fragment_length)
            given = (at["channel.snr_db"], at.get("participation.number", USUAL_DEVICES), max(alike[value], 0.0), uses)
            for name, limit in LIMITS.items():
                found.setdefault(name, []).append((value, limit(*given)))
    return found


def curves(challenge: Challenge, rows: Sequence[Row], value: float, comparison: Comparison) -> Figure | None:
    """Draw the test accuracy over the rounds at one point.

    All schemes have the same channel uses and mean energy in a round. Over air time and over energy the lines are therefore
    the same, and the axis says what a round is.
    """
    name = rows[0]["challenge"]
    here = [row for row in comparison.curves if (row["challenge"], row["value"]) == (name, value)]
    series = {
        scheme: [(row["round"], row["test_accuracy"]) for row in here if row["scheme"] == scheme]
        for scheme in names_of(here, "scheme")
    }
    costs = [row for row in rows if row["value"] == value and row.get("channel_uses")]
    if not costs:
        return None
    uses, energy = costs[0]["channel_uses"], costs[0]["energy_nominal"]
    accuracy = label_of("test_accuracy")
    title = f"{challenge.title}: {accuracy} over rounds, {label_of(challenge.axis)} {value:g}"
    return lines_of(series, f"rounds of {uses:,.0f} uses, energy {energy:,.0f} a device", accuracy, title, limits=SHARE)


def command_of(plan: Plan, challenge: str, scheme: str = "") -> str:
    """Return the command that measures a challenge, or one scheme in it; settings that it has no flag for need Python."""
    given = {entrant.name: entrant.given for entrant in find_entrants(plan.schemes)}
    schemes = [given.get(scheme, scheme)] if scheme else list(plan.schemes)
    others = {path: value for path, value in plan.settings.items() if path != "channel.snr_db"}
    if others:
        return (
            f"aircomp.arena({[challenge]}, {schemes}, task={plan.task!r}, seeds={len(plan.seeds)}, **{plan.settings})"
        )
    words = ["aircomp", "arena", "--challenge", challenge, *(["--scheme", *schemes] if schemes else [])]
    words += ["--task", plan.task, "--seeds", str(len(plan.seeds))]
    words += [f"--snr-db={value:g}" for value in plan.settings.values()]
    return shlex.join(words)


def _first(comparison: Comparison) -> Section:
    plan, measure = comparison.plan, MEASURES[comparison.plan.task]
    better = "higher" if measure.higher_is_better else "lower"
    judged = f"Judged by: {label_of(measure.field)}; {better} is better. Margins are in {measure.unit}."
    if len(plan.seeds) > 1:
        judged += (
            f" They have a {100 * CONFIDENCE:.0f} % interval over {len(plan.seeds)} paired seeds. "
            "If the interval holds zero, it is a tie."
        )
    references = "; ".join(f"{name}: {what}" for name, what in REFERENCES.items())
    note = (
        f"{judged} References take no part, and bound nobody's error. {references[0].upper()}{references[1:]}. "
        "Grey lines are limits of theory for Gaussian numbers; updates are not Gaussian, so a scheme that knows more of them "
        "can be below."
    )
    first = next(iter(comparison.plan.chosen().items()))
    rows = [row for row in comparison.rows if row["challenge"] == first[0]]
    won = [row | {"command": command_of(plan, row["challenge"])} for row in comparison.winners]
    tables = [
        table_of("Winners", won, WINNERS, note),
        table_of("Our best scheme beside the best of the others", won, OURS, note),
    ]
    if len(plan.chosen()) > 1:
        each = [row | {"command": command_of(plan, row["challenge"])} for row in overview(won)]
        tables.insert(0, table_of("Winners of each challenge", each, OVERVIEW, note))
    return Section(
        "Who wins",
        f"{TASKS[plan.task]} {FAIR}",
        present([figure_of(first[1], rows, measure)]),
        tuple(tables),
    )


def _section(
    name: str,
    challenge: Challenge,
    rows: list[Row],
    figures: tuple[Figure, ...],
    links: dict[str, str],
    comparison: Comparison,
) -> Section:
    plan, measure = comparison.plan, MEASURES[comparison.plan.task]
    fields = ROUND_FIELDS if plan.task == "round" else (measure.field,)
    shown = [row | {"command": command_of(plan, name, row["scheme"])} for row in rows]
    tables = [table_of("Measured", shown, ("scheme", challenge.axis, *fields, "seeds"))]
    last = {row["scheme"]: row for row in shown}  # costs do not depend on the point, but where it changes the round
    costs = ("scheme", challenge.axis, "side_information", *COST_FIELDS)
    tables.append(table_of("What each was told for free, and what it cost a round", list(last.values()), costs))
    if varies(rows, ROUND_ITSELF, "challenge"):
        alike = list({row["value"]: row | {"command": command_of(plan, name)} for row in shown}.values())
        tables.append(table_of("The round before it is sent", alike, (challenge.axis, ROUND_ITSELF)))
    tables += claim_tables({source: judge(challenge.claims, rows, SCALES["digits"], source) for source in TITLES})
    refused = [row for row in comparison.refused if row["challenge"] == name]
    if refused:
        tables.append(table_of("Schemes that cannot serve it", refused, ("scheme", challenge.axis, "reason")))
    commands = [command_of(plan, name), *(command_of(plan, name, scheme) for scheme in names_of(rows, "scheme"))]
    changed = ", ".join(f"{path} = {value}" for path, value in plan.settings.items() if path not in challenge.vary)
    text = f"{challenge.question} Here with {changed}." if changed else challenge.question
    return Section(challenge.title, text, figures, tuple(tables), tuple(commands), links)


def names_of(rows: Sequence[Row], field_name: str) -> list[Any]:
    """Return the different values of a field in order."""
    return list(dict.fromkeys(row[field_name] for row in rows))
