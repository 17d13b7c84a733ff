"""`aircomp bench [decode|simulate|train|flower]`: speed as ratios."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from aircomp import results
from aircomp.cli.common import parse, print_table
from aircomp.errors import ConfigError, unknown_name
from aircomp.fields import columns_of
from aircomp.outdir import open_directory


@dataclass(frozen=True)
class SimulateOptions:
    """Measure local training beside a bare PyTorch loop, and the stages of a round, on the paper's ResNet.

    Example:
      aircomp bench simulate --workers 2
      aircomp bench simulate --ray-address HOST:6379
    """

    workers: int = 2
    """Processes to compare with one."""
    ray_address: str = ""
    """HOST:PORT of a Ray cluster to compare with local processes; by default Ray is started on this machine."""
    repeats: int = 7
    """Interleaved repeats; the median counts."""
    out: Path | None = None
    """Directory for result.json."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace the result in --out."""


@dataclass(frozen=True)
class DecodeOptions:
    """Measure decoders, rounding and quantisation beside their plain versions on a paper-sized round, one thread.

    Example:
      aircomp bench decode --slots 13487
    """

    slots: int = 13_487
    """Slots of the round; 13,487 for the paper's ResNet."""
    repeats: int = 3
    """Interleaved repeats; the median counts."""
    out: Path | None = None
    """Directory for result.json."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace the result in --out."""


@dataclass(frozen=True)
class TrainOptions:
    """Measure a training step of codebook and decoder beside autograd through the plain version, one thread.

    Example:
      aircomp bench train --slots 64 256
    """

    slots: tuple[int, ...] = (64, 256)
    """Slots of a batch, one or more sizes; the plain version needs some 2 MB for each slot."""
    repeats: int = 7
    """Interleaved repeats; the median counts."""
    out: Path | None = None
    """Directory for result.json."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace the result in --out."""


@dataclass(frozen=True)
class FlowerOptions:
    """Measure a federated round of digits by `aircomp simulate` and by Flower's simulation engine.

    Flower runs alone and with our uplink: its own overhead is in both. All three take turns, a round each.

    Example:
      aircomp bench flower --rounds 8
    """

    rounds: int = 8
    """Rounds of each contender; the first does not count."""
    devices: int = 4
    """Devices, all active in every round."""
    workers: int = 2
    """Processes that train devices, in each of the three."""
    out: Path | None = None
    """Directory for result.json."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace the result in --out."""


def run(args: Sequence[str]) -> None:
    """Run the benchmark."""
    if not args or args[0] in ("-h", "--help"):
        print("usage: aircomp bench decode | simulate | train | flower   (--help after any of them tells more)")
        return
    name, *rest = args
    benches: dict[str, tuple[type[Any], Callable[[Any], None]]] = {  # Any: each has options of its own
        "decode": (DecodeOptions, _decode),
        "simulate": (SimulateOptions, _simulate),
        "train": (TrainOptions, _train),
        "flower": (FlowerOptions, _flower),
    }
    if name not in benches:
        raise unknown_name("benchmark", name, benches)
    kind, bench = benches[name]
    options = parse(kind, rest, f"bench {name}")
    with open_directory(options.out, "bench", overwrite=options.overwrite) if options.out else nullcontext():
        bench(options)


def _simulate(options: SimulateOptions) -> None:
    from aircomp.bench.simulate import bench_engines, bench_round, bench_simulate

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

    _at_least_one(options.repeats, options.slots)
    net = bench_net(options.slots, options.repeats)
    rows = [*bench_decode(options.slots, options.repeats), net]
    scaling = bench_scaling(options.slots, options.repeats) + bench_net_scaling(options.slots, options.repeats)
    _write(options.out, "bench decode", rows + scaling)
    columns = ("contender", "slots_per_second", "plain_slots_per_second", "times_plain", "seconds")
    print_table(f"{options.slots} slots, one thread", rows, columns_of(columns))
    limits = ("largest_difference", "cnn_share_of_time", "cnn_gflops", "peak_gflops", "cnn_share_of_peak")
    print_table("amp-da-net", [net], columns_of(limits))
    heads = ("contender", "axis", "value", "slots", "seconds", "microseconds_per_slot")
    print_table("time against sizes", scaling, columns_of(heads))


def _train(options: TrainOptions) -> None:
    from aircomp.bench.train import bench_train

    _at_least_one(options.repeats, *options.slots)
    rows = bench_train(options.slots, options.repeats)
    _write(options.out, "bench train", rows)
    speed = ("batch_slots", "samples_per_second", "plain_samples_per_second", "times_plain")
    columns = columns_of((*speed, "loss_difference", "seconds"))
    print_table("training step, paper's shape, one thread", rows, columns)


def _flower(options: FlowerOptions) -> None:
    from aircomp.bench.flower import bench_flower

    if options.rounds < 2 or options.devices < 1 or options.workers < 1:
        raise ConfigError(
            f"--rounds {options.rounds} --devices {options.devices} --workers {options.workers}: expected two rounds or "
            "more, as the first is left out, and at least one of the others; raise them"
        )
    rows = bench_flower(options.rounds, options.devices, options.workers)
    _write(options.out, "bench flower", rows)
    columns = columns_of(("contender", "seconds_per_round", "times_simulate", "our_part_seconds", "times_sum"))
    print_table(f"digits, {options.devices} devices, {options.workers} processes", rows, columns)


def _at_least_one(repeats: int, *slots: int) -> None:
    if repeats < 1 or not slots or min(slots) < 1:
        given = " ".join(map(str, slots))
        raise ConfigError(f"--slots {given} --repeats {repeats}: expected whole numbers of one or more; raise them")


def _write(out: Path | None, command: str, rows: list[results.Row]) -> None:
    if out is not None:
        results.write_result(out / "result.json", command, {}, 0, rows)
