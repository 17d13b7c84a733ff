"""Output directories: nothing that lies in one is lost, and no two commands share one.

Every directory that a command writes carries a marker, `.aircomp.json`, which tells the command and the version. Only a
directory with the marker of the same command is replaced, and of it only the files that the command writes.
"""

import contextlib
import itertools
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aircomp
from aircomp.common.artefact import InUse, leftovers, lock, read_json, write_json
from aircomp.common.interrupt import telling
from aircomp.errors import ArtefactError, ConfigError

MARKER = ".aircomp.json"
RUNS = Path("runs")
"""Where output goes by default."""


@dataclass(frozen=True)
class Kind:
    """What a command writes."""

    files: tuple[str, ...]
    """Patterns of its files, in the order of deletion: first those that make it a result, last those that it was made
    from."""
    signs: tuple[str, ...] = ("result.json",)
    """Files whose presence means that there is something to lose."""
    continued_by: str | None = None
    """What to add to the command to go on with it, if it can be stopped."""


_PAGE = ("result.json", "report.html")
_RUN = (
    "result.json",
    "model.safetensors",
    "checkpoint/state.safetensors",
    "checkpoint/memory_*.safetensors",
    "checkpoint/fixed.safetensors",
    "metrics.jsonl",
)
_RUN += ("events.out.tfevents.*", "metrics.csv", "curves.png", "partition.png", "report.html")
_RUN += ("arithmetic.json", "config.toml")
_LAYER = ("result.json", "layer.json", "layer.safetensors", "last/layer.json", "last/layer.safetensors")
_LAYER += ("checkpoint/training.safetensors", "metrics.jsonl", "events.out.tfevents.*", "report.html")
_LAYER += ("arithmetic.json", "config.toml")
KINDS = {
    "simulate": Kind(_RUN, ("config.toml",), "with --resume --out {}"),
    "collect": Kind(("fragments.json", "round_*.safetensors", *_RUN), ("config.toml",), "with --resume --out {}"),
    "pretrain": Kind(_LAYER, ("config.toml", "layer.json"), "with --resume --out {}"),
    "demo": Kind((*_PAGE, "accuracy.png"), continued_by="without --overwrite"),
    "reproduce": Kind((*_PAGE, "scale.json"), (), "with --out {}"),
    "central": Kind((*_PAGE, "model.safetensors"), ("result.json", "model.safetensors")),
    "evaluate": Kind(_PAGE),
    "explain": Kind(_PAGE),
    "arena": Kind(_PAGE, (), "with --out {}"),
    "sweep": Kind(("simulate-*.json",), ()),
    "schemes": Kind(_PAGE),
    "layers": Kind(_PAGE),
    "cost": Kind(_PAGE),
    "report": Kind(("report.html",), ("report.html",)),
    "export": Kind(
        ("decoder.onnx", "decoder.pt2", "device_*.sigmf-*", "received.sigmf-*"),
        ("decoder.onnx", "decoder.pt2", "received.sigmf-meta"),
    ),
}
"""Commands that write directories."""


@contextlib.contextmanager
def open_directory(directory: Path, command: str, *, overwrite: bool = False, resume: bool = False) -> Iterator[None]:
    """Make, lock and mark a directory for a command, and delete what the command replaces.

    A command that fails before it writes anything leaves nothing behind. Ctrl-C within the block says what was saved.

    Args:
        directory: The directory.
        command: The command that writes; one of `KINDS`.
        overwrite: Replace what the same command wrote there.
        resume: Go on with it instead.

    Raises:
        ArtefactError: If the directory cannot be used, is in use, or holds something that would be lost.
        ConfigError: If both `overwrite` and `resume` are asked for.
    """
    kind = KINDS[command]
    if overwrite and resume:
        raise ConfigError("both resume and overwrite were given; expected one: go on with the run, or replace it")
    _check(directory, command, overwrite=overwrite, resume=resume)  # before anything is put there
    is_new = not os.path.lexists(directory)
    with telling(_stopped(directory, kind)), lock(directory):
        _check(directory, command, overwrite=overwrite, resume=resume)
        is_fresh = not (directory / MARKER).exists()
        try:
            if is_fresh:
                write_json(directory / MARKER, {"kind": command, "version": aircomp.__version__})
            else:
                _remove_leftovers(directory, kind)
            if overwrite:
                _clear(directory, kind)
            yield
        finally:
            if is_fresh:
                _remove_if_unused(directory, is_new=is_new)


def check_page(directory: Path, *, overwrite: bool) -> None:
    """Check that a report may be written to a directory: the run's own, or a new one; a stale report may be replaced."""
    page = directory / "report.html"
    if not os.path.lexists(page):
        return
    if owner_of(directory) is None:
        raise _foreign(directory, "report.html")
    if not overwrite and not _is_stale(page):
        raise ArtefactError(f"{page} exists; replace it with --overwrite or choose another --out")


def _is_stale(page: Path) -> bool:
    """Tell whether a page is older than the result beside it, because its run was continued.

    Only of runs that `aircomp report` alone writes pages of: other commands write their page first, then the result.
    """
    result = page.with_name("result.json")
    if owner_of(page.parent) not in ("simulate", "collect", "pretrain") or not os.path.lexists(result):
        return False
    return os.lstat(page).st_mtime_ns < os.lstat(result).st_mtime_ns


def mark_page(directory: Path) -> None:
    """Mark a directory that holds nothing of ours but a report."""
    if owner_of(directory) is None:
        write_json(directory / MARKER, {"kind": "report", "version": aircomp.__version__})


@contextlib.contextmanager
def new_directory(stem: str) -> Iterator[Path]:
    """Make the first of runs/STEM, runs/STEM-2, … that is free; two commands at once never get the same.

    If nothing is put there, it is taken away again.
    """
    path = next(path for path in map(_make, _numbered(stem)) if path is not None)
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            path.rmdir()
            RUNS.rmdir()


def newest_directory(stem: str) -> Path | None:
    """Return the last of runs/STEM, runs/STEM-2, … that is there."""
    found = list(itertools.takewhile(os.path.lexists, _numbered(stem)))
    return found[-1] if found else None


def is_in_use(directory: Path) -> bool:
    """Tell whether another process works in a directory."""
    try:
        with lock(directory):
            return False
    except InUse:
        return True


def as_directory(out: str | Path) -> Path:
    """Return the output directory as a path. An empty string is refused: Python takes it for the current directory."""
    if isinstance(out, str) and not out.strip():
        raise ConfigError("the output directory is an empty string; give it a name, or . for the current directory")
    return Path(out)


def owner_of(directory: Path) -> str | None:
    """Return the command that wrote a directory: by its marker; None where there is none."""
    marker = directory / MARKER
    if not os.path.lexists(marker):
        return None
    found = read_json(marker)
    if not isinstance(found, dict) or not isinstance(found.get("kind"), str):
        raise ArtefactError(f"{marker} does not tell which command wrote {directory}; choose another --out")
    return found["kind"]


def _check(directory: Path, command: str, *, overwrite: bool, resume: bool) -> None:
    """Raise unless the command may write to the directory."""
    kind = KINDS[command]
    try:
        present = _files(directory, kind)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ArtefactError(f"cannot use {directory}: {reason}; choose another --out") from None
    owner = owner_of(directory)
    if owner is None and present:
        raise _foreign(directory, str(present[0].relative_to(directory)))
    if owner not in (None, command):
        raise ArtefactError(f"{directory} holds what aircomp {owner} wrote; choose another --out")
    sign = next((name for name in kind.signs if os.path.lexists(directory / name)), None)
    if sign is not None and not resume and not overwrite:
        raise ArtefactError(f"{directory} holds {_described(directory, sign)}, or choose another --out")


def _described(directory: Path, sign: str) -> str:
    if sign == "config.toml":
        done = "finished" if os.path.lexists(directory / "result.json") else "unfinished"
        return f"a {done} run; continue it with --resume, replace it with --overwrite"
    what = {
        "layer.json": "a communication layer",
        "result.json": "a result",
        "model.safetensors": "a trained model",
    }.get(sign, sign)
    return f"{what}; replace it with --overwrite"


def _foreign(directory: Path, name: str) -> ArtefactError:
    return ArtefactError(
        f"{directory} holds {name}, which aircomp did not write or cannot recognise; choose another --out"
    )


def _files(directory: Path, kind: Kind) -> list[Path]:
    """Return the files of a command that are there, in the order of their deletion."""
    if not os.path.lexists(directory):
        return []
    os.listdir(directory)  # raises, where globbing would find nothing
    return [path for pattern in kind.files for path in sorted(directory.glob(pattern))]


def _clear(directory: Path, kind: Kind) -> None:
    """Delete what is replaced; whatever else lies there stays."""
    try:
        for path in _files(directory, kind):
            if path.parent.is_symlink() and path.parent != directory:
                raise ArtefactError(
                    f"{path.parent} is a link to elsewhere, where nothing is deleted; choose another --out"
                )
            path.unlink(missing_ok=True)
    except OSError as error:
        if isinstance(error, ArtefactError):
            raise
        raise ArtefactError(f"cannot replace {error.filename}: {error.strerror}; choose another --out") from None


def _remove_leftovers(directory: Path, kind: Kind) -> None:
    """Delete what a command that was killed within a write left half written."""
    with contextlib.suppress(OSError):
        for path in [path for pattern in (MARKER, *kind.files) for path in leftovers(directory, pattern)]:
            path.unlink(missing_ok=True)


def _remove_if_unused(directory: Path, *, is_new: bool) -> None:
    """Take marker and lock away again if nothing else was written."""
    with contextlib.suppress(OSError):
        if set(os.listdir(directory)) <= {MARKER, ".lock"}:
            for name in (MARKER, ".lock"):
                (directory / name).unlink(missing_ok=True)
            if is_new:
                directory.rmdir()


def _stopped(directory: Path, kind: Kind) -> str:
    if kind.continued_by is None:
        return "nothing was saved"
    how = kind.continued_by.format(shlex.quote(str(directory)))
    return f"what was done is saved in {directory}, the same command {how} continues it"


def _numbered(stem: str) -> Iterator[Path]:
    return (RUNS / (stem if number == 1 else f"{stem}-{number}") for number in itertools.count(1))


def _make(path: Path) -> Path | None:
    """Make a directory; None if somebody else has."""
    for _ in range(100):
        try:
            RUNS.mkdir(exist_ok=True)
            path.mkdir()
            return path
        except FileExistsError as error:
            if error.filename == str(path):
                return None
            raise ArtefactError(f"{RUNS} is not a directory; move it away or choose --out") from None
        except FileNotFoundError:
            continue  # another command has just taken away runs/, which it left empty
        except OSError as error:
            raise ArtefactError(f"cannot make {path}: {error.strerror}; choose another --out") from None
    raise ArtefactError(f"cannot make {path}, because the current directory is gone; choose another --out")
