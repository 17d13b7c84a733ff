"""`aircomp bench [decode|simulate]`: speed as ratios."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aircomp import results
from aircomp.cli.common import parse, print_table
from aircomp.errors import unknown_name


@dataclass(frozen=True)
class SimulateOptions:
    """Measure local training beside a bare PyTorch loop, and the stages of a round, on the paper's ResNet.

    Example:
      aircomp bench simulate --workers 2
    """

    workers: int = 2
    """Processes to compare with one."""
    repeats: int = 7
    """Interleaved repeats; the median counts."""
    out: Path | None = None
    """Directory for result.json."""


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


def run(args: Sequence[str]) -> None:
    """Run the benchmark."""
    if not args or args[0] in ("-h", "--help"):
        print("usage: aircomp bench decode | aircomp bench simulate   (--help after either tells more)")
        return
    name, *rest = args
    match name:
        case "simulate":
            _simulate(parse(SimulateOptions, rest, "bench simulate"))
        case "decode":
            _decode(parse(DecodeOptions, rest, "bench decode"))
        case _:
            raise unknown_name("benchmark", name, ["decode", "simulate"])


def _simulate(options: SimulateOptions) -> None:
    from aircomp.bench.simulate import bench_round, bench_simulate

    speed = bench_simulate(options.repeats, options.workers)
    print_table(
        "local training, paper's ResNet",
        speed,
        {"contender": "contender", "samples_per_second": "samples/s", "times_bare_loop": "times the bare loop"},
    )
    stages = bench_round(4, options.workers)
    print_table(
        "a round over the ideal uplink", stages, {"contender": "stage", "share_of_round": "share", "seconds": "s"}
    )
    _write(options.out, "bench simulate", speed + stages)


def _decode(options: DecodeOptions) -> None:
    from aircomp.bench.decode import bench_decode, bench_scaling

    rows = bench_decode(options.slots, options.repeats)
    columns = {
        "contender": "contender",
        "slots_per_second": "slots/s",
        "plain_slots_per_second": "plain slots/s",
        "times_plain": "times plain",
        "seconds": "s per round",
    }
    print_table(f"{options.slots} slots, one thread", rows, columns)
    scaling = bench_scaling(options.slots, options.repeats)
    heads = {"contender": "contender", "slots": "slots", "seconds": "s", "microseconds_per_slot": "µs per slot"}
    print_table("time against slots", scaling, heads)
    _write(options.out, "bench decode", rows + scaling)


def _write(out: Path | None, command: str, rows: list[results.Row]) -> None:
    if out is not None:
        results.write_result(out / "result.json", command, {}, 0, rows)
