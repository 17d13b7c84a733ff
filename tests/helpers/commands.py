"""Commands, in this process and in one of their own."""

import contextlib
import os
import select
import signal
import sys
import time
import traceback
import uuid
from collections.abc import Callable

import pytest

from aircomp.cli import main
from helpers.processes import alive, descendants, marked

PATIENCE = 5.0
"""Seconds in which everything that a killed command had started must end."""


def call(*args: object) -> int:
    """Run a command in this process and return its exit code."""
    try:
        main([str(a) for a in args])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def wait_for(condition: Callable[[], object], seconds: float = 100) -> None:
    """Wait until something holds, or no longer than that."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.002)


class Command:
    """A command in a process group of its own, as a terminal starts it, forked from this one.

    Args:
        args: The command and its arguments.
        prepare: What its process does first.
    """

    def __init__(self, *args: object, prepare: Callable[[], object] | None = None):
        self._read_end, write_end = os.pipe()
        self._mark = uuid.uuid4().hex
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            os.environ["STARTED_BY"] = self._mark  # of all processes that it starts, and these start
            os.dup2(write_end, 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os._exit(_exit_code(args, prepare))
        os.close(write_end)
        self._errors = b""
        wait_for(lambda: os.getpgid(self.pid) == self.pid)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.killpg(self.pid, signal.SIGINT)

    def wait(self, seconds: float = 100) -> int:
        """Return the exit code, after the last process of the group; a command that hangs fails the test."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self._read_ended():
                os.close(self._read_end)
                return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        pytest.fail(f"it hangs; so far it said {self.said!r}")

    def kill_after(self, seconds: float) -> int | None:
        """Return the exit code, or None if it had to be killed: only itself, as by the kernel out of memory."""
        wait_for(lambda: os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT), seconds)
        ended, status = os.waitpid(self.pid, os.WNOHANG)
        if not ended:
            started = descendants(self.pid)
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            wait_for(lambda: not self._left(started), PATIENCE)  # they see that it died, and follow
            if left := self._left(started):
                pytest.fail(f"{len(left)} processes that it started, of {len(started)}, outlived it by {PATIENCE} s")
        while not self._read_ended():
            pass
        os.close(self._read_end)
        return os.waitstatus_to_exitcode(status) if ended else None

    def _left(self, started: set[int]) -> set[int]:
        return alive(started | marked(f"STARTED_BY={self._mark}"))

    @property
    def said(self) -> str:
        """What it wrote to stderr so far."""
        return self._errors.decode()

    def _read_ended(self) -> bool:
        if not select.select([self._read_end], [], [], 0.1)[0]:
            return False
        found = os.read(self._read_end, 65536)
        self._errors += found
        return not found


def _exit_code(args: tuple[object, ...], prepare: Callable[[], object] | None) -> int:
    sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))  # pytest put its own there
    try:
        if prepare:
            prepare()
        code = call(*args)
    except BaseException:
        traceback.print_exc()
        code = 70
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    sys.stderr.flush()
    return code
