"""Ctrl-C and a full disk at any instant: a true sentence, nothing lost, no process left."""

import importlib
import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aircomp.common.interrupt import Stopped, deferred, telling
from aircomp.data.images import load
from helpers.commands import Command, wait_for
from helpers.fragments import save_small_rounds
from helpers.records import read_lines
from helpers.settings import RECIPE, SMALL, flags

SMALL_RUN = flags(SMALL)


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """Import once what every forked command would import for itself, some of which asks for files of its own."""
    for command in COMMANDS:
        importlib.import_module(f"aircomp.cli.{command}")
    load("digits")


@pytest.fixture(autouse=True)
def _heard():
    """Hear Ctrl-C as a command does: a shell that starts the tests in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def fragments(tmp_path) -> Path:
    """Return a small collection."""
    return save_small_rounds(tmp_path / "fragments")


def rounds_in(run: Path) -> int:
    return len(read_lines(run / "metrics.jsonl"))


def stop_sentence(run: Path) -> str:
    return f"what was done is saved in {run}, the same command with --resume --out {run} continues it"


@pytest.mark.process
@pytest.mark.parametrize("command", ["simulate", "collect", "pretrain"])
def test_ctrl_c_says_truly_where_it_is_saved(tmp_path, fragments, command):
    run = tmp_path / "run"
    args = ["digits", *SMALL_RUN, "--rounds", 5000, "--checkpoint-seconds", 1000, "--workers", 2]
    if command == "pretrain":
        args = [fragments, "--preset", "short", *flags(RECIPE | {"epochs": 5000, "schedule.patience": 5000})]
    process = Command(command, *args, "--out", run)
    wait_for(lambda: rounds_in(run) >= 2)
    process.interrupt()
    assert process.wait() == 130
    assert process.said == f"aircomp: stopped; {stop_sentence(run)}\n"
    assert any((run / "checkpoint").iterdir())


@pytest.mark.process
def test_ctrl_c_in_a_demo_ends_its_workers_quietly(tmp_path):
    demo, out = ["demo", "--rounds", 200, "--snr-db", 5], tmp_path / "demo"
    process = Command(*demo, "--out", out)
    wait_for(lambda: (out / ".aircomp.json").exists())
    time.sleep(1.0)  # the workers are starting, or at work
    process.interrupt()
    assert process.wait() == 130
    saved = f"what was done is saved in {out}, the same command without --overwrite continues it"
    assert process.said == f"aircomp: stopped; {saved}\n"


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("command", [["demo", "--rounds", 60], ["reproduce", "quantisation", "--seeds", 2]])
@pytest.mark.parametrize("seconds", [0.2, 0.5, 1.0, 2.0, 4.0, 8.0])
def test_ctrl_c_at_any_instant_prints_one_sentence(tmp_path, command, seconds):
    out = tmp_path / "out"
    process = Command(*command, "--out", out)
    time.sleep(seconds)
    process.interrupt()
    assert process.wait() == 130
    assert process.said.startswith("aircomp: stopped")
    assert process.said.count("\n") == 1


@pytest.mark.process
@pytest.mark.slow
def test_many_interruptions_never_hang(tmp_path):
    args = ["simulate", "digits", *SMALL_RUN, "--rounds", 100_000, "--checkpoint-seconds", 0, "--workers", 2]
    for attempt in range(60):
        run = tmp_path / "run"
        process = Command(*args, "--out", run, "--resume")
        before = rounds_in(run)
        wait_for(lambda run=run, before=before: rounds_in(run) > before)
        time.sleep(0.0013 * attempt)
        process.interrupt()
        process.interrupt()
        assert process.wait() == 130, process.said
        assert process.said == f"aircomp: stopped; {stop_sentence(run)}\n"


def interrupted(done, *, asked=False):
    """Press Ctrl-C in a block, and again in a block within it."""
    with deferred() as raise_if_stopped:
        raise_if_stopped()
        with deferred():
            signal.raise_signal(signal.SIGINT)
            done.append("inner")
        if asked:
            raise_if_stopped()
        done.append("outer")


@pytest.mark.parametrize(("asked", "expected"), [(False, ["inner", "outer"]), (True, ["inner"])])
def test_what_is_deferred_comes_at_the_end_or_where_it_is_asked_for(asked, expected):
    done = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(done, asked=asked)
    assert done == expected
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_defer_nothing():
    found = []

    def work():
        with deferred() as raise_if_stopped:
            raise_if_stopped()
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


def test_the_outermost_knows_what_is_saved():
    with pytest.raises(Stopped, match="all of it"), telling("all of it"), telling("a part of it"):
        raise KeyboardInterrupt


def small_disk(limit: int) -> Callable[[], None]:
    """Let no file grow beyond so many bytes, which fails as a full disk does."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


COMMANDS = {
    "simulate": ["digits", *SMALL_RUN, "--rounds", 1, "--engine", "serial"],
    "collect": ["digits", *SMALL_RUN, "--rounds", 1, "--engine", "serial"],
    "pretrain": ["FRAGMENTS", "--preset", "short", *flags(RECIPE)],
    "evaluate": ["--fragments", "FRAGMENTS", "--decoder", "gamp", "--snr-db", 5, "--slots", 2],
    "explain": [],
    "cost": ["--parameters", 99, "--uplink", "gamp"],
    "demo": ["--rounds", 1, "--workers", 1, "--snr-db", 5],
    "reproduce": ["quantisation", "--workers", 1, "--seeds", 1],
}
QUICK = [("simulate", 0), ("collect", 2500), ("pretrain", 2500), ("evaluate", 2500), ("explain", 2500), ("cost", 100)]
CASES = [
    pytest.param(command, limit, marks=[] if (command, limit) in QUICK else [pytest.mark.slow])
    for command in COMMANDS
    for limit in (0, 100, 2500, 30_000)
]


@pytest.mark.process
@pytest.mark.parametrize(("command", "limit"), CASES)
def test_a_full_disk_is_one_sentence_in_every_command(tmp_path, fragments, command, limit):
    args = [fragments if arg == "FRAGMENTS" else arg for arg in COMMANDS[command]]
    process = Command(command, *args, "--out", tmp_path / "out", prepare=small_disk(limit))
    code = process.wait(200)
    if code == 0:
        assert limit >= 2500
        return
    assert code == 2, process.said
    assert process.said.startswith("aircomp: cannot write")
    assert process.said.count("\n") == 1
    assert list(tmp_path.rglob("*.tmp")) == []
