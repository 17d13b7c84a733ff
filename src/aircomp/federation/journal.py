"""The run directory: opened without losing anything, metrics appended round by round."""

import contextlib
import importlib.util
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol, runtime_checkable

from aircomp.common import artefact
from aircomp.common.arithmetic import keep_arithmetic
from aircomp.common.outdir import open_directory
from aircomp.errors import ArtefactError
from aircomp.federation.experiment import read_toml
from aircomp.federation.round import Record

log = logging.getLogger(__name__)

SUMMED = (
    "num_active",
    "num_active_hat",
    "test_accuracy",
    "test_loss",
    "seconds_left",
    "channel_uses",
    "energy_per_device",
    "energy_max",
    "energy_nominal",
    "peak_power",
)
"""Fields of a record that a resumed run computes with."""


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
    command: str,
    resume: bool,
    overwrite: bool,
    other_arithmetic: bool = False,
    read: Callable[[Path], RunSettings] = read_toml,
) -> Iterator[None]:
    """Hold a run directory and see that nothing in it is lost: new, replaced, or resumed with the same settings."""
    config = directory / "config.toml"
    with open_directory(directory, command, overwrite=overwrite, resume=resume):
        if os.path.lexists(config) and read(config).identity != settings.identity:
            raise ArtefactError(
                f"{directory} holds a run with other settings; resume with the same ones (see its config.toml), "
                "or choose another --out"
            )
        keep_arithmetic(directory, resume=resume, other=other_arithmetic)
        artefact.write_toml(config, settings.model_dump(mode="json"))
        yield


def read_metrics(path: Path, done: int, *, step: str = "round") -> list[Record]:
    """Read the records up to the checkpoint; later ones were made after it and are made again.

    Raises:
        ArtefactError: If the file is missing or damaged, or its records are not those of the steps 1, 2, … done.
    """
    if done == 0:
        return []
    records = artefact.read_lines(path)[:done]
    whole = all(isinstance(record.get(name, 0), int | float) for record in records for name in SUMMED)
    if not whole or [record.get(step) for record in records] != list(range(1, done + 1)):
        raise ArtefactError(
            f"{path} does not hold a record for each of the {done} {step}s that are done; start anew with --overwrite"
        )
    return records


class Journal:
    """metrics.jsonl and TensorBoard's events, both appended step by step: a round, or an epoch."""

    def __init__(self, out: Path | None, metrics: list[Record], *, step: str = "round"):
        self.metrics, self.step = metrics, step
        self._file = None
        self._events: _Events | None = None
        if out is not None:
            self.path = out / "metrics.jsonl"
            artefact.write_text(self.path, "".join(json.dumps(r) + "\n" for r in metrics))
            with _written(self.path):
                self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115
                self._events = _open_events(out, len(metrics))

    def add(self, record: Record) -> None:
        """Append the record of one step."""
        self.metrics.append(record)
        if self._file is None:
            return
        with _written(self.path):
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()
            if self._events is not None:
                numbers = {k: v for k, v in record.items() if isinstance(v, float | int) and k != self.step}
                self._events.add(record[self.step], numbers)

    def close(self) -> None:
        """Close the files; what was added is in them already."""
        for file in (self._file, self._events):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()


@contextlib.contextmanager
def _written(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise ArtefactError(f"cannot write {path}: {reason}; free some space, then --resume") from None


class _Events:
    """TensorBoard's file of events, written in this thread: a full disk is an error here, and nobody holds a lock."""

    def __init__(self, file: BinaryIO, rounds_done: int):
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._file, self._writer = file, RecordWriter(file)
        self._put(file_version="brain.Event:2")
        self._put(
            step=rounds_done + 1, session_log={"status": "START"}
        )  # an earlier run's events from here on are void

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        values = [{"tag": name, "simple_value": number} for name, number in numbers.items()]
        self._put(step=step, summary={"value": values})

    def close(self) -> None:
        self._file.close()

    def _put(self, **content: Any) -> None:  # Any: fields of a protocol buffer
        from tensorboard.compat.proto import event_pb2

        event = event_pb2.Event(wall_time=time.time(), **content)  # pyright: ignore[reportAttributeAccessIssue]  (generated)
        self._writer.write(event.SerializeToString())
        self._file.flush()


def _open_events(out: Path, rounds_done: int) -> _Events | None:
    if importlib.util.find_spec("tensorboard") is None:
        log.info("no TensorBoard events are written; install aircomp[tensorboard] for them")
        return None
    name = f"events.out.tfevents.{time.time_ns() // 10**9:010d}.{time.time_ns() % 10**9:09d}.{os.getpid()}"
    return _Events(open(out / name, "wb"), rounds_done)
