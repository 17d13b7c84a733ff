"""`aircomp bench [decode|simulate|train|flower|schemes]`: speed as ratios."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from aircomp.cli.common import parse, print_table, subcommand
from aircomp.common import results
from aircomp.common.checks import check_choice
from aircomp.common.memory import check_memory
from aircomp.common.outdir import open_directory
from aircomp.errors import ConfigError, unknown_name
from aircomp.measure.fields import columns_of
from aircomp.uplinks.schemes import uplink_names

MANY = 1_000_000_000
BYTES_PER_SLOT = 5_000
"""Eleven fragments of twenty, the counts before and after decoding, and two received signals."""
BYTES_PER_TRAINED_SLOT = 2_000_000
"""Measured: what autograd keeps of the plain version."""


@dataclass(frozen=True)
class ResultOptions:
    """Where a benchmark writes what it measured."""

    out: Path | None = None
    """Directory for result.json."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace the result in --out."""


@dataclass(frozen=True)
class SimulateOptions(ResultOptions):
    """Measure local training beside a bare PyTorch loop, and the stages of a round, on the paper's ResNet.

    Examples:
      aircomp bench simulate --workers 2
      aircomp bench simulate --ray-address HOST:6379
    """

    workers: int = 2
    """Processes to compare with one."""
    ray_address: str = ""
    """HOST:PORT of a Ray cluster to compare with local processes; by default Ray is started on this machine."""
    repeats: int = 7
    """Interleaved repeats; the median counts."""


@dataclass(frozen=True)
class DecodeOptions(ResultOptions):
    """Measure decoders, rounding and quantisation beside their plain versions on a paper-sized round, one thread.

    Examples:
      aircomp bench decode --slots 13487
    """

    slots: int = 13_487
    """Slots of the round; 13,487 for the paper's ResNet."""
    repeats: int = 3
    """Interleaved repeats; the median counts."""


@dataclass(frozen=True)
class TrainOptions(ResultOptions):
    """Measure a training step of codebook and decoder beside autograd through the plain version, one thread.

    Examples:
      aircomp bench train --slots 64 256
    """

    slots: tuple[int, ...] = (64, 256)
    """Slots of a batch, one or more sizes; the plain version needs some 2 MB for each slot."""
    repeats: int = 7
    """Interleaved repeats; the median counts."""


@dataclass(frozen=True)
class FlowerOptions(ResultOptions):
    """Measure a federated round of digits by `aircomp simulate` and by Flower's simulation engine.

    Flower runs alone and with our uplink: its own overhead is in both. All three take turns, a round each.

    Examples:
      aircomp bench flower --rounds 8
    """

    rounds: int = 8
    """Rounds of each contender; the first does not count."""
    devices: int = 4
    """Devices, all active in every round."""
    workers: int = 2
    """Processes that train devices, in each of the three."""


@dataclass(frozen=True)
class SchemesOptions(ResultOptions):
    """Measure a round of every scheme beside one of amp-da: processor time of one thread, and memory.

    Schemes that need signals in phase meet white noise, the others fading. Every scheme has a process of its own.

    Examples:
      aircomp bench schemes
      aircomp bench schemes --uplink tuma blind --antennas 16 --access-points 4
    """

    uplink: tuple[str, ...] = ()
    """Schemes; by default all."""
    slots: int = 13_487
    """Slots of the round; 13,487 for the paper's ResNet."""
    devices: int = 10
    """How many devices send."""
    antennas: int = 1
    """Of the base station, over fading."""
    access_points: int = 1
    """Places over which they are spread."""


def run(args: Sequence[str]) -> None:
    """Run the benchmark."""
    name, *rest = subcommand(args, "aircomp bench decode | simulate | train | flower | schemes")
    benches: dict[str, tuple[type[Any], Callable[[Any], None]]] = {  # Any: each has options of its own
        "decode": (DecodeOptions, _decode),
        "simulate": (SimulateOptions, _simulate),
        "train": (TrainOptions, _train),
        "flower": (FlowerOptions, _flower),
        "schemes": (SchemesOptions, _schemes),
    }
    if name not in benches:
        raise unknown_name("benchmark", name, benches)
    kind, bench = benches[name]
    options = parse(kind, rest, f"bench {name}")
    with open_directory(options.out, "bench", overwrite=options.overwrite) if options.out else nullcontext():
        bench(options)


def _simulate(options: SimulateOptions) -> None:
    from aircomp.bench.simulate import bench_engines, bench_round, bench_simulate

    _check(options, workers=(1, 1024), repeats=(1, MANY))
    speed = bench_simulate(options.repeats, options.workers)
    engines = bench_engines(options.repeats, options.workers, options.ray_address)
    stages = bench_round(4, options.workers)
    _write(options.out, "bench simulate", speed + engines + stages)
    print_table(
        "local training, paper's ResNet",
        speed,
        columns_of(("contender", "samples_per_second", "times_bare_loop")),
    )
    print_table(
        "training of a round with ten active devices",
        engines,
        columns_of(("contender", "samples_per_second", "times_processes")),
    )
    print_table("a round over the ideal uplink", stages, columns_of(("contender", "share_of_round", "seconds")))


def _decode(options: DecodeOptions) -> None:
    from aircomp.bench.decode import bench_decode, bench_scaling
    from aircomp.bench.net import bench_net, bench_net_scaling

    _check(options, slots=(1, MANY), repeats=(1, MANY))
    check_memory({"a round of so many slots (--slots)": options.slots * BYTES_PER_SLOT})
    rows = [*bench_decode(options.slots, options.repeats), bench_net(options.slots, options.repeats)]
    scaling = bench_scaling(options.slots, options.repeats) + bench_net_scaling(options.slots, options.repeats)
    _write(options.out, "bench decode", rows + scaling)
    columns = ("contender", "slots_per_second", "plain_slots_per_second", "times_plain", "seconds")
    print_table(f"{options.slots} slots, one thread", rows, columns_of(columns))
    heads = ("contender", "axis", "value", "slots", "seconds", "microseconds_per_slot")
    print_table("time against sizes", scaling, columns_of(heads))


def _train(options: TrainOptions) -> None:
    from aircomp.bench.train import bench_train

    _check(options, slots=(1, MANY), repeats=(1, MANY))
    check_memory({"the plain version's batch (--slots)": max(options.slots) * BYTES_PER_TRAINED_SLOT})
    rows = bench_train(options.slots, options.repeats)
    _write(options.out, "bench train", rows)
    speed = ("batch_slots", "samples_per_second", "plain_samples_per_second", "times_plain")
    columns = columns_of((*speed, "loss_difference", "seconds"))
    print_table("training step, paper's shape, one thread", rows, columns)


def _flower(options: FlowerOptions) -> None:
    from aircomp.bench.flower import bench_flower

    _check(options, rounds=(2, MANY), devices=(1, 1000), workers=(1, 1024))  # the first round is left out
    rows = bench_flower(options.rounds, options.devices, options.workers)
    _write(options.out, "bench flower", rows)
    columns = columns_of(("contender", "seconds_per_round", "times_simulate", "our_part_seconds", "times_sum"))
    print_table(f"digits, {options.devices} devices, {options.workers} processes", rows, columns)


def _schemes(options: SchemesOptions) -> None:
    from aircomp.bench.schemes import RoundSize, bench_schemes

    _check(options, slots=(1, MANY), devices=(1, 1000), antennas=(1, 1024), access_points=(1, 1024))
    for name in options.uplink:
        check_choice("--uplink", name, uplink_names())
    check_memory({"a round of so many slots (--slots)": options.slots * BYTES_PER_SLOT})
    size = RoundSize(options.slots, options.devices, options.antennas, options.access_points)
    rows = bench_schemes(options.uplink or tuple(uplink_names()), size)
    _write(options.out, "bench schemes", rows)
    columns = columns_of(("uplink", "antennas", "seconds", "times_amp_da", "peak_gib"))
    print_table(f"{options.slots} slots, {options.devices} devices, one thread", rows, columns)


def _check(options: object, **ranges: tuple[int, int]) -> None:
    """See that each named option, a number or several, lies in its range."""
    for name, (low, high) in ranges.items():
        given = getattr(options, name)
        numbers = given if isinstance(given, tuple) else (given,)
        if not all(low <= number <= high for number in numbers):
            raise ConfigError(f"--{name} {' '.join(map(str, numbers))}: expected {low:,} to {high:,}")


def _write(out: Path | None, command: str, rows: list[results.Row]) -> None:
    if out is not None:
        results.write_result(out / "result.json", command, {}, 0, rows)
