"""`make bench [WHAT=decode|against|growth|train|simulate|schemes|together|flower|memory]`: one benchmark, or a short set."""

import sys
from pathlib import Path

import tyro

from aircomp.common.checks import check_choice
from aircomp.errors import AirCompError
from aircomp.schemes.registry import uplink_names
from benchmarks.timing import show


def short() -> None:
    """Print a short set: decoding, training, local training and three schemes, in some two minutes."""
    decode(slots=1000)
    train(slots=(64,), repeats=3)
    simulate(repeats=3)
    schemes(uplink=("gamp", "amp-da-net", "tuma"), slots=500)


def decode(slots: int = 13_487, repeats: int = 3) -> None:
    """Compare decoders, rounding and quantisation with their plain versions, and show how time grows; one thread.

    Args:
        slots: Slots of the round; 13,487 for the paper's ResNet.
        repeats: Interleaved repeats; the median counts.
    """
    from benchmarks.decode import bench_decode, bench_scaling
    from benchmarks.net import bench_net, bench_net_scaling

    rows = [*bench_decode(slots, repeats), bench_net(slots, repeats)]
    speed = ("contender", "slots_per_second", "plain_slots_per_second", "times_plain", "seconds")
    show(f"decoding, {slots} slots, one thread", rows, *speed)
    growth = bench_scaling(slots, repeats) + bench_net_scaling(slots, repeats)
    show("time against sizes", growth, "contender", "axis", "value", "slots", "seconds", "microseconds_per_slot")


def against(before: Path, slots: int = 10_000, repeats: int = 5, threads: int = 1) -> None:
    """Compare decoders with those of another checkout, whose processes take turns; see how many slots have equal counts.

    Args:
        before: The other checkout, as `git worktree add ../before COMMIT` makes one.
        slots: Slots of the round.
        repeats: Turns; the median counts.
        threads: Of each process.
    """
    from benchmarks.against import bench_against

    title = f"decoding here and there, {slots} slots, {threads} threads; equal slots at 0, 5 and 10 dB"
    columns = ("contender", "slots_per_second", "slots_per_second_before", "times_before", "equal_slots")
    show(title, bench_against(before, slots, repeats, threads), *columns)


def growth(contender: tuple[str, ...] = (), repeats: int = 3, figures: Path | None = None) -> None:
    """Show how time and memory grow with the sizes of a round: slopes on log axes, measured and expected.

    Args:
        contender: What to measure; by default all.
        repeats: Interleaved repeats; the median counts.
        figures: Directory for growth-time.svg and growth-memory.svg.
    """
    from benchmarks.growth import EXPECTED, bench_growth, draw_growth

    for name in contender:
        check_choice("--contender", name, list(EXPECTED))
    rows = bench_growth(repeats, contender or tuple(EXPECTED))
    columns = ("contender", "axis", "from_to", "milliseconds", "slope", "expected")
    show("growth, one thread", rows, *columns, "mib", "memory_slope", "memory_expected", "within")
    if figures is not None:
        draw_growth(rows, figures / "growth-time.svg")
        draw_growth(rows, figures / "growth-memory.svg", memory=True)


def train(slots: tuple[int, ...] = (64, 256), repeats: int = 7) -> None:
    """Compare a training step of codebook and decoder with autograd through the plain version; one thread.

    Args:
        slots: Slots of a batch, one or more sizes; the plain version needs some 2 MB for each slot.
        repeats: Interleaved repeats; the median counts.
    """
    from benchmarks.train import bench_train

    speed = ("batch_slots", "samples_per_second", "plain_samples_per_second", "times_plain")
    title = "training step, paper's shape, one thread"
    show(title, bench_train(slots, repeats), *speed, "loss_difference", "seconds")


def simulate(repeats: int = 7, workers: int = 2, ray_address: str = "") -> None:
    """Compare local training with a bare PyTorch loop, and Ray with processes; show the stages of a round.

    Args:
        repeats: Interleaved repeats; the median counts.
        workers: Processes to compare with one.
        ray_address: HOST:PORT of a Ray cluster; by default Ray is started on this machine.
    """
    from benchmarks.simulate import bench_engines, bench_round, bench_simulate

    speed = bench_simulate(repeats, workers)
    show("local training, paper's ResNet", speed, "contender", "samples_per_second", "times_bare_loop")
    engines = bench_engines(repeats, workers, ray_address)
    title = "training of a round with ten active devices"
    show(title, engines, "contender", "samples_per_second", "times_processes")
    show("a round over the ideal uplink", bench_round(4, workers), "contender", "share_of_round", "seconds")


def schemes(
    uplink: tuple[str, ...] = (), slots: int = 13_487, devices: int = 10, antennas: int = 1, access_points: int = 1
) -> None:
    """Compare a round of each scheme with one of amp-da: processor time of one thread, and memory.

    Schemes that need signals in phase meet white noise, the others fading. Every scheme has a process of its own.

    Args:
        uplink: Schemes; by default all.
        slots: Slots of the round; 13,487 for the paper's ResNet.
        devices: How many devices send.
        antennas: Of the base station, over fading.
        access_points: Places over which they are spread.
    """
    from benchmarks.schemes import RoundSize, bench_schemes

    for name in uplink:
        check_choice("--uplink", name, uplink_names())
    rows = bench_schemes(uplink or tuple(uplink_names()), RoundSize(slots, devices, antennas, access_points))
    title = f"{slots} slots, {devices} devices, one thread"
    show(title, rows, "uplink", "antennas", "seconds", "times_amp_da", "peak_gib")


def together(repeats: int = 5, devices: int = 8, steps: int = 5) -> None:
    """Compare devices that train together with devices that train one by one: the paper's ResNet at half resolution.

    Args:
        repeats: Interleaved repeats; the median counts.
        devices: Devices that train.
        steps: SGD steps of each.
    """
    from benchmarks.together import bench_together

    rows = bench_together(repeats, devices, steps)
    show("a step of a device, one core", rows, "contender", "milliseconds", "times_alone")


def flower(rounds: int = 8, devices: int = 4, workers: int = 2) -> None:
    """Compare a federated round of digits by `aircomp simulate`, by Flower alone and by Flower with our uplink.

    Args:
        rounds: Rounds of each contender; the first does not count.
        devices: Devices, all active in every round.
        workers: Processes that train devices, in each of the three.
    """
    from benchmarks.flower import bench_flower

    rows = bench_flower(rounds, devices, workers)
    columns = ("contender", "seconds_per_round", "times_simulate", "our_part_seconds", "times_sum")
    show(f"digits, {devices} devices, {workers} processes", rows, *columns)


def memory(scheme: tuple[str, ...] = (), millions: tuple[float, ...] = (1.0, 5.0)) -> None:
    """Show the peak memory and the time of one round of ten devices against the size of the model.

    Args:
        scheme: Names of schemes; by default one of each kind.
        millions: Millions of parameters.
    """
    from benchmarks.memory import SCHEMES, bench_memory

    for name in scheme:
        check_choice("--scheme", name, uplink_names())
    rows = [row for name in scheme or SCHEMES for row in bench_memory(name, millions)]
    columns = ("contender", "parameters", "messages_mib", "before_mib", "peak_mib", "round_times_messages")
    show("one round, ten devices", rows, *columns, "seconds", "size_times_smallest", "times_smallest")


BENCHMARKS = (short, decode, against, growth, train, simulate, schemes, together, flower, memory)

if __name__ == "__main__":
    try:
        tyro.extras.subcommand_cli_from_dict({run.__name__: run for run in BENCHMARKS}, prog="make bench WHAT=")
    except AirCompError as error:
        sys.exit(str(error))
