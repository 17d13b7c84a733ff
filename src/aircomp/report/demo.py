"""The page of the demo: each section begins with a sentence that is computed from its numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aircomp.common.results import Row
from aircomp.layer.communication import CommunicationLayer
from aircomp.layer.zoo import PAPER
from aircomp.measure.fields import label_of
from aircomp.report.explain import Trace, decoded_figure, trace_slot
from aircomp.report.page import Section
from aircomp.report.rows import SHARE, accuracy_by_snr, bars_of, lines_of, present, series_of, table_of
from aircomp.schemes.digital.drawn import drawn_choices

SLOT_SNR_DB, SLOT_DEVICES, SLOTS = 5.0, 10, 512
COLUMNS = ("uplink", "snr_db", "test_accuracy_last5", "test_accuracy", "stability", "count_accuracy", "update_nmse")


LOW_FIELDS = ("test_accuracy_last5", "count_accuracy", "update_nmse", "channel_uses_per_parameter", "energy_per_device")
"""What is averaged over the seeds at low SNR."""


@dataclass(frozen=True)
class Low:
    """The runs at low SNR."""

    snr_db: float
    rows: Sequence[Row]
    """A scheme each, over several seeds: exact updates first, the paper's baseline second."""


def sections_of(
    rows: Sequence[Row], curves: Mapping[str, Sequence[Sequence[float]]], low: Low, seed: int, command: str
) -> list[Section]:
    """Return the page: a slot, who finds the counts, what is learned, and low SNR."""
    return [_slot(seed), _counts(rows), _training(rows, curves, command), _low(low)]


def _slot(seed: int) -> Section:
    layer = CommunicationLayer.load(PAPER)
    chosen, popularity = drawn_choices(len(layer.codebook), num_active=SLOT_DEVICES, num_slots=SLOTS, seed=seed)
    trace = trace_slot(layer, chosen, popularity, snr_db=SLOT_SNR_DB, slot=0, seed=seed)
    signals = {"received": trace.received, "without noise": trace.truth.to(layer.codebook) @ layer.codebook}
    drawn = lines_of(
        {name: list(enumerate(signal.tolist(), 1)) for name, signal in signals.items()},
        "channel use",
        "amplitude",
        "What the antenna sees in one slot",
    )
    return Section("What arrives, and what is decoded", slot_finding(trace), present([drawn, decoded_figure(trace)]))


def slot_finding(trace: Trace) -> str:
    """Say what became of the slot."""
    sent = int(trace.truth.sum())
    right = sent - int((trace.truth - trace.decoded).clamp(min=0).sum())
    return (
        f"{sent} devices sent a codeword each at the same time, at {SLOT_SNR_DB:g} dB. From the one noisy sum the decoder "
        f"found {right} of the {sent} rightly. Over all {SLOTS} slots it finds {trace.round_accuracy[-1]:.0%} of the counts. "
        "The decoder is the paper's, and the choices were drawn from an uneven popularity; the next figure has rounds "
        "of digits. A soft count is an expectation. The counts of a slot are rounded together, so that they add up to the "
        "estimated number of devices."
    )


def _counts(rows: Sequence[Row]) -> Section:
    noisy = [row for row in rows if row["snr_db"] is not None]
    series = series_of(noisy, ["uplink"], "snr_db", "count_accuracy")
    title = "Counts found, by decoder"
    drawn = lines_of(series, label_of("snr_db"), label_of("count_accuracy"), title, limits=SHARE)
    return Section("Which decoder finds the counts", counts_finding(rows), present([drawn]))


def counts_finding(rows: Sequence[Row]) -> str:
    """Compare the decoders at the SNR where they differ most."""
    by_snr: dict[float, list[Row]] = {}
    for row in rows:
        if row["snr_db"] is not None and row.get("count_accuracy") is not None:
            by_snr.setdefault(row["snr_db"], []).append(row)
    if not by_snr:
        return "No device sent anything, so there are no counts to compare."
    ranked = {
        snr_db: sorted(same, key=lambda row: row["count_accuracy"], reverse=True) for snr_db, same in by_snr.items()
    }
    snr_db = max(ranked, key=lambda each: ranked[each][0]["count_accuracy"] - ranked[each][-1]["count_accuracy"])
    best, *_, worst = [*ranked[snr_db], ranked[snr_db][-1]]
    return (
        f"At {snr_db:g} dB {best['uplink']} finds {best['count_accuracy']:.0%} of the counts and {worst['uplink']} "
        f"{worst['count_accuracy']:.0%}. No decoder is told how many devices sent, or how strong the noise is."
    )


def _training(rows: Sequence[Row], curves: Mapping[str, Sequence[Sequence[float]]], command: str) -> Section:
    hardest = min(row["snr_db"] for row in rows if row["snr_db"] is not None)
    shown = ["perfect", *(name for name in curves if name.endswith(f", {hardest:g} dB"))]
    lines = {name: [tuple(point) for point in curves[name]] for name in shown}
    drawn = [
        accuracy_by_snr(rows, []),
        lines_of(lines, "round", label_of("test_accuracy"), f"Test accuracy by round, at {hardest:g} dB", limits=SHARE),
    ]
    table = table_of("Uplinks", list(rows), (*COLUMNS, "num_active_mae", "seconds"))
    links = {"result.json": "result.json"}
    return Section("What the model learns", training_finding(rows), present(drawn), (table,), (command,), links)


def training_finding(rows: Sequence[Row]) -> str:
    """Say how far the uplinks end below perfect aggregation."""
    perfect = next(row["test_accuracy_last5"] for row in rows if row["uplink"] == "perfect")
    noisy = [row for row in rows if row["snr_db"] is not None]
    best = max(noisy, key=lambda row: row["test_accuracy_last5"])
    worst = min(noisy, key=lambda row: row["test_accuracy_last5"])
    return (
        f"Forty devices, of which seven to thirteen train in each round. Without radio errors the model gets {perfect:.1%} "
        f"of the test images right. Over the noisy air it gets {best['test_accuracy_last5']:.1%} with {best['uplink']} at "
        f"{best['snr_db']:g} dB, and {worst['test_accuracy_last5']:.1%} with {worst['uplink']} at {worst['snr_db']:g} dB. "
        "A difference of two points may be chance: there are 360 test images."
    )


def _low(low: Low) -> Section:
    title = f"Four schemes at {low.snr_db:g} dB, and exact updates"
    drawn = bars_of(low.rows, "contender", [], "test_accuracy_last5", title)
    table = table_of(title, list(low.rows), ("contender", "seeds", *LOW_FIELDS))
    links = {"low-snr.json": "low-snr.json"}
    return Section("Where the scheme matters: low SNR", low_finding(low), present([drawn]), (table,), (), links)


def low_finding(low: Low) -> str:
    """Compare the schemes with exact updates, and the best with the paper's baseline."""
    exact, baseline, *_ = low.rows
    best = max(low.rows[1:], key=lambda row: row["test_accuracy_last5"])
    points = [100 * (a - b) for a, b in zip(best[_VALUES], baseline[_VALUES], strict=True)]
    name, other = best["contender"], baseline["contender"]
    ends = {row["contender"]: f"{row['test_accuracy_last5']:.1%}" for row in low.rows}
    return (
        f"At {low.snr_db:g} dB the noise is stronger than the signals of all devices together. {name} ends at {ends[name]}, "
        f"{other} at {ends[other]}, and exact updates without a radio at {ends[exact['contender']]}. With equal seeds {name} "
        f"differs from {other} by {min(points):+.1f} to {max(points):+.1f} points, at the same channel uses and energy. Bars "
        f"are means of {exact['seeds']} seeds, and lines their standard deviation."
    )


_VALUES = "test_accuracy_last5_values"
