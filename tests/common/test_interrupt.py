"""Ctrl-C and a full disk at any instant: a true sentence, nothing lost, no process left."""

import contextlib
import importlib
import os
import resource
import select
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aircomp.cli import main
from aircomp.common.interrupt import Stopped, deferred, telling
from aircomp.data.images import load
from aircomp.train.fragments import FragmentRound, save_round

SMALL = ["--devices.total", "4", "--participation.low", "2", "--participation.high", "2", "--model.width", "4"]


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """Import once what every forked command would import for itself, some of which asks for files of its own."""
    for command in COMMANDS:
        importlib.import_module(f"aircomp.cli.{command}")
    load("digits")


@pytest.fixture
def fragments(tmp_path) -> Path:
    """Return a small collection."""
    for index in range(4):
        indices = torch.randint(0, 16, (3, 20), generator=torch.Generator().manual_seed(index))
        save_round(tmp_path / "fragments", index, FragmentRound(indices, torch.full((16,), 1 / 16), torch.randn(16, 4)))
    return tmp_path / "fragments"


class Command:
    """A command in a process group of its own, as a terminal starts it."""

    def __init__(self, *args: object, prepare: Callable[[], None] | None = None):
        self.read_end, write_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            os.dup2(write_end, 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os._exit(_exit_code([str(arg) for arg in args], prepare))
        os.close(write_end)
        self.errors = b""
        wait_for(lambda: os.getpgid(self.pid) == self.pid)

    def stop(self) -> None:
        os.killpg(self.pid, signal.SIGINT)

    def wait(self, seconds: float = 100) -> int:
        """Return the exit code; the pipe ends when the last process of the group has."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self.read_end], [], [], 0.1)[0]:
                found = os.read(self.read_end, 65536)
                self.errors += found
                if not found:
                    os.close(self.read_end)
                    return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        pytest.fail(f"it hangs; so far it said {self.errors.decode()!r}")

    @property
    def said(self) -> str:
        return self.errors.decode()


def _exit_code(args: list[str], prepare: Callable[[], None] | None) -> int:
    import sys

    sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))  # pytest put its own there
    try:
        if prepare:
            prepare()
        main(args)
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 70
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    sys.stderr.flush()
    return code


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 100
    while not condition() and time.monotonic() < end:
        time.sleep(0.002)


def rounds_in(run: Path) -> int:
    path = run / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def stop_sentence(run: Path) -> str:
    return f"what was done is saved in {run}, the same command with --resume --out {run} continues it"


@pytest.mark.parametrize("command", ["simulate", "collect", "pretrain"])
def test_ctrl_c_says_truly_where_it_is_saved(tmp_path, fragments, command):
    run = tmp_path / "run"
    args = ["digits", *SMALL, "--rounds", 5000, "--checkpoint-seconds", 1000, "--workers", 2]
    if command == "pretrain":
        args = [fragments, "--preset", "short", "--epochs", 5000, "--patience", 5000, "--codeword-length", 8]
        args += ["--net.num-layers", 1, "--net.filters", 2, "--data.batch-slots", 20, "--schedule", "halving"]
    process = Command(command, *args, "--out", run)
    wait_for(lambda: rounds_in(run) >= 2)
    process.stop()
    assert process.wait() == 130
    assert process.said == f"aircomp: stopped; {stop_sentence(run)}\n"
    assert any((run / "checkpoint").iterdir())


def test_ctrl_c_in_a_demo_ends_its_workers_quietly(tmp_path):
    demo, out = ["demo", "--rounds", 200, "--snr-db", 5], tmp_path / "demo"
    process = Command(*demo, "--out", out)
    wait_for(lambda: (out / ".aircomp.json").exists())
    time.sleep(1.0)  # the workers are starting, or at work
    process.stop()
    assert process.wait() == 130
    saved = f"what was done is saved in {out}, the same command without --overwrite continues it"
    assert process.said == f"aircomp: stopped; {saved}\n"


@pytest.mark.slow
@pytest.mark.parametrize("command", [["demo", "--rounds", 60], ["reproduce", "quantisation", "--seeds", 2]])
@pytest.mark.parametrize("seconds", [0.2, 0.5, 1.0, 2.0, 4.0, 8.0])
def test_ctrl_c_at_any_instant_prints_one_sentence(tmp_path, command, seconds):
    out = tmp_path / "out"
    process = Command(*command, "--out", out)
    time.sleep(seconds)
    process.stop()
    assert process.wait() == 130
    assert process.said.startswith("aircomp: stopped")
    assert process.said.count("\n") == 1


@pytest.mark.slow
def test_many_interruptions_never_hang(tmp_path):
    args = ["simulate", "digits", *SMALL, "--rounds", 100_000, "--checkpoint-seconds", 0, "--workers", 2]
    for attempt in range(60):
        run = tmp_path / "run"
        process = Command(*args, "--out", run, "--resume")
        before = rounds_in(run)
        wait_for(lambda run=run, before=before: rounds_in(run) > before)
        time.sleep(0.0013 * attempt)
        process.stop()
        process.stop()
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
    "simulate": ["digits", *SMALL, "--rounds", 1, "--engine", "serial"],
    "collect": ["digits", *SMALL, "--rounds", 1, "--engine", "serial"],
    "pretrain": ["FRAGMENTS", "--preset", "short", "--epochs", 1, "--codeword-length", 8, "--net.num-layers", 1],
    "evaluate": ["--fragments", "FRAGMENTS", "--decoder", "gamp", "--snr-db", 5, "--slots", 2],
    "explain": [],
    "cost": ["--parameters", 99],
    "demo": ["--rounds", 1, "--workers", 1, "--snr-db", 5],
    "reproduce": ["quantisation", "--workers", 1, "--seeds", 1],
}
QUICK = [("simulate", 0), ("collect", 2500), ("pretrain", 2500), ("evaluate", 2500), ("explain", 2500), ("cost", 100)]
CASES = [
    pytest.param(command, limit, marks=[] if (command, limit) in QUICK else [pytest.mark.slow])
    for command in COMMANDS
    for limit in (0, 100, 2500, 30_000)
]


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
