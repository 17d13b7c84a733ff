"""One case of the fuzzer, where it runs, how it is run and what it must hold to.

A case is made from its name alone (`arguments-17`, `files-3`): the name seeds every choice, so it can be repeated.
It runs in a place of its own:

    place/
      inputs/     what real commands left (see fuzz_material.py); shared, must stay as it is
      sentinel/   somebody else's files; shared, must stay as they are
      case/       made anew for each case
        foreign/  somebody else's directory that looks like a run; may be given as --out, but nothing in it may change
        here/     the working directory
"""

import contextlib
import faulthandler
import io
import logging
import os
import re
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

MEMORY = 6 << 30
"""Bytes of address space that a forked case may have; torch alone maps some two of them."""
SECONDS = 60.0
"""Longest time of a case; the longest valid one takes a tenth of it."""
LARGEST_FILE = 1 << 30
SENTENCE = 1200
"""Longest message: a sentence, not a dump."""

LOG_LINE = re.compile(r"^aircomp(\.\w+)+: ")


@dataclass
class Case:
    """What to run: a command with its arguments, or a call of a public function."""

    name: str
    args: list[str] = field(default_factory=list)
    call: Callable[[], object] | None = None
    """Instead of a command."""
    about: str = ""
    """What is odd about it, for people."""
    prepare: Callable[[Path], None] | None = None
    """Fills the working directory."""
    env: dict[str, str | None] = field(default_factory=dict)
    """Variables set, or with None removed."""
    stdout: str = "utf-8"
    """An encoding, or `broken` (nobody reads), `closed`, `full` (a full disk)."""


@dataclass
class Outcome:
    """How a case ended."""

    code: int | None
    """Exit code; None for a hang, negative for a signal."""
    out: str
    err: str
    seconds: float


def outcome_of_exit(error: SystemExit) -> int:
    """Return the exit code as the interpreter would, which prints anything that is not a number."""
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print(error.code, file=sys.stderr)
    return 1


# ── rules ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def complaint(case: Case, outcome: Outcome) -> str | None:
    """Return how an outcome breaks the rules, or None.

    A command ends with 0, and says nothing on stderr but log lines; or with 2, and says there one line more, which
    begins with `aircomp: `. A comparison ends with 1 where it says which of its jobs failed. A function returns or raises
    AirCompError.
    """
    lines = [line for line in outcome.err.splitlines() if line.strip() and not LOG_LINE.match(line)]
    if outcome.code is None:
        return f"hang: more than {outcome.seconds:.0f} s, at {last_frame(outcome.err)}"
    if "Traceback" in outcome.err:
        return f"traceback: {lines[-1][:160]}, at {last_frame(outcome.err)}"
    told = case.args[:1] == ["arena"] and outcome.code == 1 and re.search(r"^failed: .{20}", outcome.out, re.MULTILINE)
    if outcome.code not in (0, 2) and not told:
        return f"exit code {outcome.code}: {lines[-1][:160] if lines else 'no word'}"
    if outcome.code in (0, 1):
        return f"exit code {outcome.code}, but stderr says: {lines[0][:160]}" if lines else None
    if len(lines) != 1 or not lines[0].startswith("aircomp: "):
        return f"not one sentence but {len(lines)} lines: {' / '.join(lines)[:160]}"
    if not 20 <= len(lines[0]) <= SENTENCE:
        return f"a message of {len(lines[0])} characters: {lines[0][:160]}"
    return None


def last_frame(text: str) -> str:
    """Return the innermost line of the package in a traceback."""
    frames = re.findall(r'File "[^"]*(aircomp/[^"]+)", line (\d+)', text)
    if "most recent call first" in text:  # as faulthandler prints it
        frames = frames[:1]
    return ":".join(frames[-1]) if frames else "an unknown place"


Tree = dict[str, tuple[int, ...]]


def snapshot(*roots: Path) -> Tree:
    """Return what identifies every file below some directories without reading it."""
    found = {}
    for root in roots:
        for path in [root, *root.rglob("*")]:
            status = path.lstat()
            # a directory's time changes with its entries, which are listed themselves
            content = () if path.is_dir() else (status.st_size, status.st_mtime_ns, status.st_ino)
            found[str(path)] = (status.st_mode, *content)
    return found


def changes(before: Tree, after: Tree, *, additions: bool) -> list[str]:
    """Return the paths that were changed, removed or (if they count) added."""
    touched = [path for path, what in before.items() if after.get(path) != what]
    return touched + ([path for path in after if path not in before] if additions else [])


# ── the place ────────────────────────────────────────────────────────────────────────────────────────────────────────

FOREIGN = {
    "config.toml": "[server]\nport = 8080\n",
    "checkpoint/mine.txt": "months of work\n",
    "result.json": '{"mine": true}\n',
    "metrics.jsonl": '{"mine": 1}\n',
    "layer.json": '{"mine": true}\n',
    "report.html": "<p>mine</p>\n",
    "work/notes.txt": "mine\n",
    "notes.txt": "mine\n",
}


def write_foreign(directory: Path) -> None:
    """Write somebody else's files under names that we use, too."""
    for name, text in FOREIGN.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


class Place:
    """Where cases run, one at a time."""

    def __init__(self, root: Path, inputs: Path):
        self.case = root / "case"
        self.sentinel = root / "sentinel"
        write_foreign(self.sentinel)
        (root / "inputs").symlink_to(inputs)
        self.shared = (self.sentinel, inputs)

    @contextlib.contextmanager
    def ready(self, case: Case) -> Iterator[list[str]]:
        """Prepare the working directory, yield a list, and fill it with what the case touched but should not have."""
        shutil.rmtree(self.case, ignore_errors=True)
        here = self.case / "here"
        here.mkdir(parents=True)
        write_foreign(self.case / "foreign")
        if case.prepare:
            case.prepare(here)
        shared, foreign = snapshot(*self.shared), snapshot(self.case / "foreign")
        touched: list[str] = []
        yield touched
        touched += changes(shared, snapshot(*self.shared), additions=True)
        touched += changes(foreign, snapshot(self.case / "foreign"), additions=False)

    @property
    def here(self) -> Path:
        """The working directory, beside `../foreign` and below `../../inputs` and `../../sentinel`."""
        return self.case / "here"


# ── running ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def perform(case: Case) -> None:
    """Do what the case asks, as the command line does: AirCompError is what a function may raise."""
    from aircomp.cli import main
    from aircomp.errors import AirCompError

    if case.call is None:
        main(case.args)
        return
    logging.basicConfig(format="%(name)s: %(message)s")  # as the command line does
    try:
        case.call()
    except AirCompError as error:
        print(f"aircomp: {error}", file=sys.stderr)
        sys.exit(2)


def run_here(case: Case, place: Place, seconds: float = SECONDS) -> tuple[Outcome, list[str]]:
    """Run a case in this process: fast, but nothing that needs a process of its own (`stdout`) is odd."""
    out, err, begun = io.StringIO(), io.StringIO(), time.perf_counter()
    limits, root = resource.getrlimit(resource.RLIMIT_AS), logging.getLogger()
    ours, handlers = logging.getLogger("aircomp"), root.handlers[:]
    level = ours.level
    with place.ready(case) as touched, _environment(case.env), contextlib.chdir(place.here):
        resource.setrlimit(resource.RLIMIT_AS, (min(_address_space() + (4 << 30), MEMORY * 4), limits[1]))
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _deadline(seconds):
                code = _code(case)
        except _Hang:
            code = None
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limits)
            ours.setLevel(level)
            root.handlers[:] = handlers
    return Outcome(code, out.getvalue(), err.getvalue(), time.perf_counter() - begun), touched


def _code(case: Case) -> int:
    try:
        perform(case)
    except SystemExit as stop:
        return outcome_of_exit(stop)
    except _Hang:
        traceback.print_exc()
        raise
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


class _Hang(BaseException):
    """The time of a case is up; no `except Exception` may catch it."""


@contextlib.contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _environment(changed: dict[str, str | None]) -> Iterator[None]:
    before = dict(os.environ)
    _change_environment(changed)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _change_environment(changed: dict[str, str | None]) -> None:
    for name, value in changed.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


class Forked:
    """A case in a process of its own, forked from this one, which has imported everything already."""

    def __init__(self, case: Case, place: Place, seconds: float = SECONDS):
        self.case, self.place, self.seconds, self.begun = case, place, seconds, time.perf_counter()
        self._ready = place.ready(case)
        self.touched = self._ready.__enter__()
        self.pid = os.fork()
        if self.pid == 0:
            self._child()

    def poll(self) -> Outcome | None:
        """Return the outcome if the case has ended; end it if its time is up."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        elapsed = time.perf_counter() - self.begun
        if pid == 0 and elapsed < self.seconds:
            return None
        hang = pid == 0
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # with all that it started
        if hang:
            os.waitpid(self.pid, 0)
        self._ready.__exit__(None, None, None)
        out, err = (self._file(name).read_text(errors="replace") for name in ("stdout", "stderr"))
        return Outcome(None if hang else os.waitstatus_to_exitcode(status), out, err, elapsed)

    def wait(self) -> Outcome:
        """Wait for the end."""
        while (outcome := self.poll()) is None:
            time.sleep(0.002)
        return outcome

    def _file(self, name: str) -> Path:
        return self.place.case / name

    def _child(self) -> None:
        code = 1
        try:
            os.setsid()
            self._redirect()
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
            faulthandler.dump_traceback_later(max(self.seconds - 2, self.seconds / 2), file=sys.stderr)
            os.chdir(self.place.here)
            _change_environment(self.case.env)
            code = _code(self.case)
            if sys.stdout is not None:
                sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:
            traceback.print_exc()
            code = 120
        finally:
            os._exit(code)

    def _redirect(self) -> None:
        """Give the process a stdin without end, a stderr to read later, and the stdout that the case asks for."""
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(self._file("stderr"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: SIM115
        self._file("stdout").write_text("")
        kind = self.case.stdout
        if kind == "broken":
            reader, writer = os.pipe()
            os.close(reader)
            os.dup2(writer, 1)
        elif kind == "closed":
            os.close(1)
            sys.stdout = None
            return
        else:
            target = "/dev/full" if kind == "full" else str(self._file("stdout"))
            os.dup2(os.open(target, os.O_WRONLY), 1)
        encoding = kind if kind in ("ascii", "latin-1") else "utf-8"
        sys.stdout = open(1, "w", encoding=encoding, errors="strict")  # noqa: SIM115


def verdict(case: Case, outcome: Outcome, touched: list[str]) -> str | None:
    """Return what is wrong with how a case ended, or None."""
    if touched:
        return f"touched {', '.join(sorted(touched)[:3])}"
    return complaint(case, outcome)
