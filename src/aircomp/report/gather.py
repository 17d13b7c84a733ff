"""From finished runs to the sections of a page: one for each kind of command, several runs side by side."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from aircomp.common.results import Row
from aircomp.report.page import Section, as_number, cell_text
from aircomp.report.rows import (
    SHARE,
    accuracy_by_snr,
    bars_of,
    curves_of,
    decoding_by_snr,
    fields_of,
    information_by_snr,
    present,
    table_of,
    varies,
)
from aircomp.report.runs import Run, command_of, own_parts, read_runs

NOISELESS = ("ideal", "perfect")
"""Uplinks that the SNR does not touch."""
BOOKKEEPING = ("workers", "engine", "ray_address", "device", "checkpoint_seconds", "evaluate_every")
"""Settings that do not tell two runs apart."""


def sections_of(directories: Sequence[Path], *, beside: Path | None = None) -> list[Section]:
    """Read finished runs of any kind and return a section for each kind.

    Args:
        directories: Each holds a result.json; what lies beside it is used as well.
        beside: Directory that the page will be in, which links start from; the current one by default.

    Raises:
        ArtefactError: If a directory is missing, or holds no result or a damaged one.
    """
    kinds: dict[str, list[Run]] = {}
    for run in read_runs(directories):
        kinds.setdefault(run.command, []).append(run)
    places = {word: place for place, word in enumerate(SECTIONS)}
    order = sorted(kinds, key=lambda kind: (places.get(_word(kind), len(places)), kind))
    start = Path(os.path.realpath(beside or Path()))
    return [_finished(SECTIONS.get(_word(kind), _other)(kinds[kind]), kinds[kind], start) for kind in order]


def _finished(section: Section, runs: Sequence[Run], start: Path) -> Section:
    """Add what every section has: how it was made, configurations, commands, links to the raw data."""
    made_with = "; ".join(dict.fromkeys(run.made_with for run in runs))
    links = {}
    for run in runs:
        prefix = "" if len(runs) == 1 else f"{run.name}: "
        for name in ("result.json", "metrics.jsonl", "config.toml"):
            if (run.directory / name).is_file():
                links[prefix + name] = Path(
                    os.path.relpath(Path(os.path.realpath(run.directory)) / name, start)
                ).as_posix()
    config = runs[0].config if len(runs) == 1 else {run.name: run.config for run in runs}
    text = " ".join([section.text, *_from_python(runs), f"Made with {made_with}."]).strip()
    commands = tuple(dict.fromkeys(command for run in runs if (command := command_of(run))))
    return replace(section, text=text, commands=commands, links=links, config=config or None)


def _from_python(runs: Sequence[Run]) -> list[str]:
    """Say of which runs there is no command, because parts of them are the user's own."""
    sentences = []
    for run in runs:
        if parts := own_parts(run):
            what = ", ".join(f"{name} {part}" for name, part in parts.items())
            which = "The run" if len(runs) == 1 else f"The run {run.name}"
            sentences.append(f"{which} was started from Python with parts of its own: {what}.")
    return sentences


def _simulate(runs: Sequence[Run], title: str = "Federated runs") -> Section:
    changed = _differences(runs)
    rows = [_noiseless(row) | changed[run.name] | {"run": run.name} for run in runs for row in run.rows]
    extra = list(dict.fromkeys(name for found in changed.values() for name in found))
    curves = {_curve_name(run): run.metrics for run in runs}
    decoded = {_curve_name(run): run.metrics for run in runs if _uplink(run) not in NOISELESS}
    drawn = [
        curves_of(curves, "round", "test_accuracy", "Test accuracy by round", limits=SHARE),
        curves_of(curves, "round", "test_loss", "Test loss by round", log=True),
        curves_of(decoded, "round", "count_accuracy", "Count accuracy by round", limits=SHARE),
        curves_of(decoded, "round", "update_nmse", "Error of the decoded update by round", log=True),
    ]
    if len({row["snr_db"] for row in rows if as_number(row.get("snr_db")) is not None}) > 1:
        unlike = ["rounds"] if varies(rows, "rounds") else []  # a shorter run is no point of a longer one's line
        drawn.insert(0, accuracy_by_snr(rows, [*(name for name in extra if name != "seed"), *unlike]))
    table = table_of(
        "What the runs came to", rows, ("run", "uplink", "snr_db", *extra, "seeds", "rounds", *_ACCURACIES, *_COSTS)
    )
    return Section(title, figures=present(drawn), tables=(table,))


_ACCURACIES = (
    "test_accuracy_last5",
    "test_accuracy",
    "best_test_accuracy",
    "stability",
    "count_accuracy",
    "update_nmse",
    "num_active_mae",
)
_COSTS = ("channel_uses_per_parameter", "seconds")


def _curve_name(run: Run) -> str:
    """Name a run in a figure: its directory, and what it was if that fits."""
    row = _noiseless(run.rows[0]) if run.rows else {}
    uplink = cell_text(row.get("uplink"))
    parts = [] if row.get("uplink") is None or uplink in run.name else [uplink]
    parts += [f"{cell_text(row['snr_db'])} dB"] if row.get("snr_db") is not None else []
    return f"{run.name} ({', '.join(parts)})" if parts else run.name


def _demo(runs: Sequence[Run]) -> Section:
    rows, several = _rows(runs)
    rows = [_noiseless(row) for row in rows]
    table = table_of("Uplinks at several SNRs", rows, (*several, "uplink", "snr_db", "rounds", *_ACCURACIES, *_COSTS))
    return Section("Demo", figures=present([accuracy_by_snr(rows, several)]), tables=(table,))


def _evaluate(runs: Sequence[Run]) -> Section:
    rows, _ = _rows(runs)
    telling = [name for name in ("run", "codebook", "snr_reference") if varies(rows, name, "decoder")]
    fields = ("decoder", *telling, "codebook", "snr_db", "count_accuracy", *_YARDSTICK)
    fields += ("update_nmse_hard", "update_nmse_soft", "num_active_mae", "pupe", "slots_per_second")
    note = YARDSTICK_NOTE if any("posterior_count_accuracy" in row for row in rows) else ""
    tables = [table_of("Decoders on saved rounds", rows, fields, note)]
    labels = ["decoder", *telling]
    figures = [*decoding_by_snr(rows, labels)]
    if any(as_number(row.get("entropy_bits")) is not None for row in rows):
        books = ("codebook", *telling, "snr_db", "entropy_bits", "signal_bits", "capacity_bits", "count_accuracy_limit")
        once = {repr([row.get(name) for name in books]): row for row in rows}
        tables.append(table_of("Information of a slot", list(once.values()), books, INFORMATION_NOTE))
        figures += present([information_by_snr(rows, labels)])
    references = " or ".join(dict.fromkeys(cell_text(row.get("snr_reference")) for row in rows))
    text = f"Each run gave every decoder the same slots and noise; the SNR refers to the {references}."
    return Section("Decoders", text, tuple(figures), tuple(tables))


_YARDSTICK = ("posterior_count_accuracy", "below_posterior", "chains_disagree")
YARDSTICK_NOTE = (
    "The posterior is that of devices which agree a little, as gamp expects them to, with the rates and the noise that it "
    "estimates for the same slots and "
    "the true number of devices, which decoders have to estimate. The more its chains "
    "disagree, the less is it sampled to the end."
)
INFORMATION_NOTE = (
    "For devices that choose independently with the shares of their round, averaged over rounds. Where the signal tells "
    "less than the counts hold, no decoder is right in all slots; the accuracy is then at most the last column. Devices "
    "that agree hold less, so a decoder that knows how they agree may pass it."
)


def _pretrain(runs: Sequence[Run]) -> Section:
    rows, several = _rows(runs)
    curves = {}
    for run in runs:
        prefix = f"{run.name}, " if several else ""
        for part in ("train", "validation"):
            curves[prefix + part] = [{"epoch": r.get("epoch"), "loss": r.get(f"{part}_loss")} for r in run.metrics]
    loss = curves_of(curves, "epoch", "loss", "Loss by epoch", log=True)
    fields = ("snr_db", "count_accuracy", "count_nmse", "update_nmse_hard", "update_nmse_soft", "num_active_mae")
    table = table_of("Held-out rounds", rows, (*several, *fields))
    return Section("Pretraining", figures=(*present([loss]), *decoding_by_snr(rows, ["run"])), tables=(table,))


def _cost(runs: Sequence[Run]) -> Section:
    rows, several = _rows(runs)
    fields = ("uplink", *several, "num_slots", "channel_uses", "channel_uses_per_parameter", "air_seconds")
    table = table_of("One round", rows, (*fields, "energy_per_device", "base_station_gflop", "side_information"))
    measures = {"air_seconds": "Air time", "base_station_gflop": "Decoder work"}
    drawn = [bars_of(rows, "uplink", several, name, title) for name, title in measures.items()]
    return Section("Cost", figures=present(drawn), tables=(table,))


def _other(runs: Sequence[Run]) -> Section:
    rows, several = _rows(runs)
    title = cell_text(runs[0].command)
    labels = [name for name in ("uplink", "decoder", *several) if any(name in row for row in rows)]
    return Section(
        title, figures=decoding_by_snr(rows, labels), tables=(table_of(title, rows, (*several, *fields_of(rows))),)
    )


SECTIONS: dict[str, Callable[[Sequence[Run]], Section]] = {
    "simulate": _simulate,
    "demo": _demo,
    "evaluate": _evaluate,
    "pretrain": _pretrain,
    "collect": partial(_simulate, title="Collected fragments"),
    "cost": _cost,
}
"""How the results of each command are shown, by its first word, in the order of the page."""


def _uplink(run: Run) -> Any:  # Any: whatever a result file holds
    settings = run.config.get("uplink")
    return settings.get("name") if isinstance(settings, Mapping) else settings


def _word(command: str) -> str:
    return command.split()[0] if command.split() else ""


def _rows(runs: Sequence[Run]) -> tuple[list[Row], tuple[str, ...]]:
    """Return the rows of all runs with their names, and the column of the names if they are needed."""
    return [row | {"run": run.name} for run in runs for row in run.rows], ("run",) if len(runs) > 1 else ()


def _noiseless(row: Row) -> Row:
    """Return the row without an SNR that it does not depend on."""
    return row | {"snr_db": None} if row.get("uplink") in NOISELESS else row


def _differences(runs: Sequence[Run]) -> dict[str, Row]:
    """Return the settings that runs do not share and that no column tells yet, by run; at most six of them."""
    flat = {run.name: _flat(run.config) for run in runs}
    every = dict.fromkeys(name for settings in flat.values() for name in settings)
    told = {"uplink.name", "rounds", "channel.snr_db", *BOOKKEEPING}
    differing = [n for n in every if n not in told and len({repr(s.get(n)) for s in flat.values()}) > 1][:6]
    return {name: {n: settings.get(n) for n in differing} for name, settings in flat.items()}


def _flat(config: Mapping[str, Any], prefix: str = "") -> Row:
    found: Row = {}
    for name, value in config.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found
