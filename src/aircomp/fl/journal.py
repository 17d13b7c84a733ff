"""The run directory: opened without losing anything, metrics appended round by round."""

import contextlib
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from aircomp import artefact
from aircomp.errors import ArtefactError
from aircomp.fields import with_current_names
from aircomp.fl.experiment import read_toml
from aircomp.fl.round import Record

log = logging.getLogger(__name__)


@runtime_checkable
class RunSettings(Protocol):
    """Settings that tell which of them a resumed run must share."""

    @property
    def identity(self) -> dict[str, Any]:
        """What determines the bits of the run."""
        ...

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        """Return all of them."""
        ...


@contextlib.contextmanager
def open_run(
    directory: Path,
    settings: RunSettings,
    *,
    resume: bool,
    overwrite: bool,
    read: Callable[[Path], RunSettings] = read_toml,
) -> Iterator[None]:
    """Lock a run directory and see that nothing in it is lost: new, or resumed with the same settings."""
    with artefact.lock(directory):
        config = directory / "config.toml"
        if config.exists() and overwrite and not resume:
            for name in ("config.toml", "metrics.jsonl", "result.json", "model.safetensors"):
                (directory / name).unlink(missing_ok=True)
            shutil.rmtree(directory / "checkpoint", ignore_errors=True)
        if config.exists():
            if not resume:
                done = "finished" if (directory / "result.json").exists() else "unfinished"
                raise ArtefactError(
                    f"{directory} holds a {done} run; continue it with --resume, replace it with --overwrite, "
                    "or choose another --out"
                )
            if read(config).identity != settings.identity:
                raise ArtefactError(
                    f"{directory} holds a run with other settings; resume with the same ones (see its config.toml), "
                    "or choose another --out"
                )
        artefact.write_text(config, artefact.to_toml(settings.model_dump(mode="json")))
        yield


def read_metrics(path: Path, done: int, *, step: str = "round") -> list[Record]:
    """Read the records up to the checkpoint; later ones were made after it and are made again."""
    if not path.exists():
        return []
    records = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except ValueError:  # the line that was being written when the run was killed
            break
        if record[step] <= done:
            records.append(with_current_names(record, summary=False))
    if len(records) != done:
        raise ArtefactError(f"{path} has {len(records)} records for {done} {step}s; start anew with --overwrite")
    return records


class Journal:
    """metrics.jsonl and TensorBoard's events, both appended step by step: a round, or an epoch."""

    def __init__(self, out: Path | None, metrics: list[Record], *, step: str = "round"):
        self.metrics, self.step = metrics, step
        self._file = None
        self._events: Any = None  # a SummaryWriter, where tensorboard is installed
        if out is not None:
            artefact.write_text(out / "metrics.jsonl", "".join(json.dumps(r) + "\n" for r in metrics))
            self._file = open(out / "metrics.jsonl", "a", encoding="utf-8")  # noqa: SIM115
            self._events = _event_writer(out, len(metrics))

    def add(self, record: Record) -> None:
        """Append the record of one step."""
        self.metrics.append(record)
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()
        except OSError as error:
            raise ArtefactError(
                f"cannot write {self._file.name}: {error.strerror}; free some space, then --resume"
            ) from None
        if self._events is not None:
            for name, value in record.items():
                if isinstance(value, float | int) and name != self.step:
                    self._events.add_scalar(name, value, record[self.step])

    def close(self) -> None:
        """Close the files."""
        if self._file is not None:
            self._file.close()
        if self._events is not None:
            self._events.close()


def _event_writer(out: Path, rounds_done: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        log.info("no TensorBoard events are written; install aircomp[tensorboard] for them")
        return None
    return SummaryWriter(str(out), purge_step=rounds_done + 1)
