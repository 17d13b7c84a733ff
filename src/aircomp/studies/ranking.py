"""Who wins: paired differences over seeds, and their confidence interval. If the interval holds zero, it is a tie."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cmp_to_key

from aircomp.common.results import Row
from aircomp.studies.entrants import REFERENCES
from aircomp.studies.verdicts import interval

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Measure:
    """The field by which a task is judged."""

    field: str
    higher_is_better: bool
    unit: str
    """The unit of a margin."""

    def margin(self, better: float, other: float) -> float:
        """Return by how much one value beats another, in `unit`: decibels of an error, points of an accuracy."""
        if self.unit == "dB":
            floor = 1e-12  # an error below is that of single precision
            return 10 * math.log10(max(other, floor) / max(better, floor))
        return 100 * ((better - other) if self.higher_is_better else (other - better))


MEASURES = {
    "round": Measure("raw_nmse", higher_is_better=False, unit="dB"),
    "training": Measure("test_accuracy_last5", higher_is_better=True, unit="points"),
}


def winners(rows: Sequence[Row], measure: Measure) -> list[Row]:
    """Return who is best at every point of every challenge, and how our best scheme compares with the others.

    Args:
        rows: One for every challenge, point and scheme, with the values of all seeds.
        measure: The field by which they are judged.
    """
    places: dict[tuple[str, float], list[Row]] = {}
    for row in rows:
        if row["scheme"] not in REFERENCES and row.get(measure.field) is not None:
            places.setdefault((row["challenge"], row["value"]), []).append(row)
    found = []
    for (challenge, value), here in places.items():
        ranked = ranked_by(measure, here)
        verdict: Row = {"challenge": challenge, "value": value, "winner": ranked[0]["scheme"]}
        verdict |= {"won_with": ranked[0][measure.field]}
        if len(ranked) > 1:
            verdict |= {"runner_up": ranked[1]["scheme"]} | compared(ranked[0], ranked[1], measure)
        found.append(verdict | _ours(ranked, measure))
    return found


def ranked_by(measure: Measure, rows: Sequence[Row]) -> list[Row]:
    """Return rows of one point, the best first: of two, the one with the positive mean margin over the seeds of both."""

    def order(first: Row, second: Row) -> int:
        total = sum(_margins(first, second, measure))
        return -1 if total > 0 else 1 if total < 0 else 0

    return sorted(rows, key=cmp_to_key(order))


def compared(first: Row, second: Row, measure: Measure) -> Row:
    """Return the margin of one scheme over another, its interval over paired seeds, and the verdict."""
    margins = _margins(first, second, measure)
    if not margins:
        return {"margin": None, "verdict": "not judged: no seed in common"}
    found: Row = {"margin": statistics.fmean(margins)}
    if len(margins) == 1:
        return found | {"verdict": "not judged: one seed"}
    low, high = interval(margins, (1 + CONFIDENCE) / 2)
    return found | {"verdict": "tie" if low <= 0 <= high else "wins", "margin_low": low, "margin_high": high}


def _margins(first: Row, second: Row, measure: Measure) -> list[float]:
    """Return the margin of one scheme over another with every seed that both have a value of."""
    name = f"{measure.field}_values"
    pairs = zip(first[name], second[name], strict=True)
    return [measure.margin(a, b) for a, b in pairs if a is not None and b is not None]


def _ours(ranked: Sequence[Row], measure: Measure) -> Row:
    """Compare our best scheme with the best of all others; it loses if any of them is surely better.

    The best may scatter so much that it ties with ours, while another does not.
    """
    ours, others = ([row for row in ranked if bool(row.get("ours")) == own] for own in (True, False))
    if not ours or not others:
        return {}
    beside = compared(ours[0], others[0], measure)
    outcomes = [outcome(compared(ours[0], rival, measure)) for rival in others]
    return {
        "our_best": ours[0]["scheme"],
        "best_rival": others[0]["scheme"],
        "our_margin": beside["margin"],
        "our_verdict": "loses" if "loses" in outcomes else outcomes[0],
    }


def outcome(beside: Row) -> str:
    """Say how the first of two schemes that were `compared` did: it wins, it loses, or the verdict between them."""
    lost = beside["verdict"] == "wins" and (beside["margin"] or 0) <= 0
    return "loses" if lost else beside["verdict"]


def overview(won: Sequence[Row]) -> list[Row]:
    """Return one row a challenge: who is best at how many points, and how our best scheme does."""
    found = []
    for challenge in dict.fromkeys(row["challenge"] for row in won):
        here = [row for row in won if row["challenge"] == challenge]
        ours = [row for row in here if row.get("our_margin") is not None]
        row: Row = {"challenge": challenge, "points": len(here), "winners": _counted([row["winner"] for row in here])}
        if ours:
            margins = [row["our_margin"] for row in ours]
            row |= {"our_best": ", ".join(dict.fromkeys(row["our_best"] for row in ours))}
            row |= {"our_lowest": min(margins), "our_highest": max(margins)}
            row |= {"our_verdicts": _counted([row["our_verdict"] for row in ours])}
        found.append(row)
    return found


def _counted(words: Sequence[str]) -> str:
    """Tell how often each word occurs, the most frequent first."""
    return ", ".join(f"{word} {number}" for word, number in Counter(words).most_common())
