"""Collecting training data for the communication layer (Sec. III-E, Dataset Collection).

A quantised perfect-aggregation run with error feedback and varying activity; every round's choices are saved as it goes.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from aircomp.common.checks import check_callable, check_path
from aircomp.common.outdir import as_directory
from aircomp.common.tensors import read_tensors
from aircomp.errors import ConfigError
from aircomp.federation.configure import check_overrides, configure
from aircomp.federation.experiment import Experiment
from aircomp.federation.round import Record, Round
from aircomp.federation.simulate import Simulation, simulate
from aircomp.quantize.fragment import split
from aircomp.schemes.digital.link import DigitalPrivate
from aircomp.train.fragments import FragmentRound, save_round, write_description


def collect(
    preset: str | Path | Experiment,
    out: str | Path,
    *,
    raw: bool = False,
    on_round: Callable[[Record], None] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    other_arithmetic: bool = False,
    data_dir: str | Path | None = None,
    **overrides: Any,
) -> Simulation:
    """Run perfect aggregation and save each round's fragments under `out`, streaming and resumable.

    Args:
        preset: What to run; its uplink is replaced by `perfect`.
        out: The fragments directory, which is a run directory too.
        raw: Also save the unquantised fragments of devices and base station (some 12 MB a round for the paper's ResNet).
        on_round: Called with each round's record.
        resume: Continue an interrupted collection.
        overwrite: Replace the collection in `out`.
        other_arithmetic: Continue it also where something else computes, as for `simulate`.
        data_dir: Where datasets lie.
        **overrides: Settings, as for `simulate`.
    """
    check_path("out", out)
    out = as_directory(out)
    if on_round is not None:
        check_callable("on_round", on_round, "of a record")
    if overrides.setdefault("uplink", "perfect") != "perfect":
        raise ConfigError(f"uplink = {overrides['uplink']!r}: a collection has perfect aggregation; leave it out")
    if resume:
        _check_raw(out, raw=raw)
    experiment = configure(preset, overrides)
    check_overrides(experiment, overrides)
    length = experiment.fragment_length

    def save(record: Record, happened: Round | None) -> None:
        if happened is not None:
            exchange = happened.exchange
            signal: Any = exchange.sent.signal  # Codewords, from perfect aggregation
            kept: DigitalPrivate = exchange.private
            fragments = FragmentRound(
                signal.indices,
                kept.quantizer.popularity,
                kept.quantizer.codebook,
                kept.quantizer.base_indices,
                kept.slot_layers,
                split(exchange.messages.cpu(), length) if raw else None,
                split(exchange.base_update.cpu(), length) if raw else None,
            )
            save_round(out, int(record["round"]) - 1, fragments)
        if on_round:
            on_round(record)

    run = simulate(
        experiment,
        out=out,
        resume=resume,
        other_arithmetic=other_arithmetic,
        overwrite=overwrite,
        data_dir=data_dir,
        on_round=save,
        command="collect",
    )
    write_description(out, experiment.model_dump(mode="json"), run.experiment.uplink.model_dump()["quantize"]["order"])
    return run


def _check_raw(out: Path, *, raw: bool) -> None:
    """Refuse to continue a collection whose rounds hold something else than the next ones would."""
    first = min(out.glob("round_*.safetensors"), default=None)
    if first is None or ("fragments" in read_tensors(first)[0]) == raw:
        return
    holds, remedy = ("no raw", "without") if raw else ("raw", "with")
    raise ConfigError(
        f"raw = {raw}, but the rounds in {out} hold {holds} fragments; resume {remedy} --raw, or choose another --out"
    )
