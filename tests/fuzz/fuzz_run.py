"""`make fuzz`: thousands of cases, each in a process forked from this one; a line for each that fails.

python tests/fuzz/fuzz_run.py --cases 5000 --seed 0      all kinds in turn
python tests/fuzz/fuzz_run.py --only files-0-17          one case again, with all that it said
"""

import argparse
import contextlib
import functools
import gc
import inspect
import io
import os
import pkgutil
import shlex
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a forked process cannot use the threads of its parent

import fuzz_arguments
import fuzz_calls
import fuzz_files
import fuzz_objects
import fuzz_presets
import fuzz_studies
from fuzz_case import SECONDS, Case, Forked, Outcome, Place, verdict
from fuzz_material import make_material, use_tiny_scale

import aircomp.cli

KINDS = {
    "arguments": fuzz_arguments.make,
    "presets": fuzz_presets.make,
    "files": fuzz_files.make,
    "calls": fuzz_calls.make,
    "objects": fuzz_objects.make,
    "studies": fuzz_studies.make,
}
SHARES = {"arguments": 3, "presets": 1, "files": 3, "calls": 3, "objects": 3, "studies": 3}


def make_case(name: str) -> Case:
    """Make a case by its name: `KIND-SEED-NUMBER`."""
    kind = name.split("-")[0]
    if kind not in KINDS:
        raise SystemExit(f"there is no kind of case {kind!r}; expected one of {', '.join(KINDS)}")
    return KINDS[kind](name)


def case_names(number: int, seed: int) -> list[str]:
    """Return the names of so many cases, the kinds in turn."""
    turn = [kind for kind, share in SHARES.items() for _ in range(share)]
    return [
        f"{turn[i % len(turn)]}-{seed}-{i // len(turn) * SHARES[turn[i % len(turn)]] + _within(turn, i)}"
        for i in range(number)
    ]


def _within(turn: Sequence[str], index: int) -> int:
    place = index % len(turn)
    return turn[:place].count(turn[place])


def warm_up() -> None:
    """Import the commands, and read every source once: options are made of what stands in it, anew in every case."""
    import matplotlib.figure
    import torch.utils.tensorboard

    torch.set_num_threads(1)
    assert matplotlib.figure
    for module in pkgutil.iter_modules(aircomp.cli.__path__, "aircomp.cli."):
        import_module(module.name)
    inspect.getsource = functools.cache(inspect.getsource)
    for command in fuzz_arguments.COMMANDS:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
            aircomp.cli.main([*command.words, *command.positional, "--no-such-option"])
    use_tiny_scale()


def warm_up_like(modules: Sequence[str]) -> None:
    """Import what real commands imported, so that no forked case does: half of the time of a short run."""
    for name in modules:
        with contextlib.suppress(Exception):  # made by another, or for a script
            import_module(name)
    gc.collect()
    gc.freeze()  # no case's collector writes to pages that it shares with this process


def describe(case: Case) -> str:
    """Say what a case does, so that a shell can do it."""
    if case.call is not None:
        return case.about
    said = [f"{k}={shlex.quote(v)}" for k, v in case.env.items() if v is not None]
    said += [f"stdout={case.stdout}"] if case.stdout != "utf-8" else []
    words = " ".join(shlex.quote(word if len(word) < 80 else f"{word[:60]}…") for word in case.args)
    return f"{' '.join(said)} aircomp {words}{f'  ({case.about})' if case.about else ''}".strip()


def run_all(
    names: Sequence[str], root: Path, inputs: Path, jobs: int, seconds: float
) -> Iterator[tuple[Case, Outcome, str | None]]:
    """Run cases, several at a time, and yield how each ended."""
    places = []
    for number in range(jobs):
        (root / str(number)).mkdir(parents=True)
        places.append(Place(root / str(number), inputs))
    waiting, running = list(reversed(names)), []
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(Forked(make_case(waiting.pop()), places.pop(), seconds))
        for process in list(running):
            outcome = process.poll()
            if outcome is not None:
                running.remove(process)
                places.append(process.place)
                yield process.case, outcome, verdict(process.case, outcome, process.touched)
        time.sleep(0.002)


def material_in_a_child(root: Path) -> Path:
    """Make the material in a process of its own: this one must not compute, as threads do not survive a fork."""
    imported = root.with_name("imported.txt")
    pid = os.fork()
    if pid == 0:
        try:
            make_material(root)
            imported.write_text("\n".join(sys.modules))
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        raise SystemExit("the material could not be made; mend the commands first")
    warm_up_like(imported.read_text().splitlines())
    return root


def main() -> None:
    """Run the cases asked for; exit 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="longest time of a case, on a busy machine more")
    parser.add_argument("--kind", choices=list(KINDS), help="only cases of this kind")
    parser.add_argument("--only", nargs="*", help="these cases, with all that they said")
    parser.add_argument("--log", type=Path, default=Path("fuzz.log"))
    parser.add_argument("--keep", type=Path, help="where to leave the places of the cases")
    options = parser.parse_args()
    begun = time.perf_counter()
    warm_up()
    if options.kind:
        names = [f"{options.kind}-{options.seed}-{i}" for i in range(options.cases)]
    else:
        names = options.only or case_names(options.cases, options.seed)
    with tempfile.TemporaryDirectory() as temporary:
        root = options.keep or Path(temporary)
        inputs = material_in_a_child(root.resolve() / "material")
        failed = _run(names, root.resolve(), inputs, options)
    print(f"{len(names)} cases, {sum(failed.values())} failed, {time.perf_counter() - begun:.0f} s; see {options.log}")
    for what, number in failed.most_common():
        print(f"{number:5} {what}")
    sys.exit(bool(failed))


def _run(names: Sequence[str], root: Path, inputs: Path, options: argparse.Namespace) -> Counter[str]:
    failed: Counter[str] = Counter()
    with open(options.log, "w", encoding="utf-8", errors="backslashreplace") as log:
        for number, (case, outcome, wrong) in enumerate(run_all(names, root, inputs, options.jobs, options.seconds), 1):
            if options.only:
                print(
                    f"{describe(case)}\nexit {outcome.code}, {outcome.seconds:.1f} s\n{outcome.out}\n{outcome.err}\n{wrong}"
                )
            if wrong:
                failed[wrong.split(", at ")[-1] if ", at " in wrong else wrong[:60]] += 1
                repeat = f"python tests/fuzz/fuzz_run.py --only {case.name}"
                log.write(f"{case.name}: {wrong}\n    {describe(case)}\n    {repeat}\n")
                log.flush()
            elif number % 500 == 0:
                print(f"{number} of {len(names)}, {sum(failed.values())} failed", flush=True)
    return failed


if __name__ == "__main__":
    main()
