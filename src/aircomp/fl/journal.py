"""The run directory: opened without losing anything, metrics appended round by round."""

import contextlib
import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aircomp import artefact
from aircomp.errors import ArtefactError
from aircomp.fl.experiment import Experiment, read_toml
from aircomp.fl.round import Record

log = logging.getLogger(__name__)


@contextlib.contextmanager
def open_run(directory: Path, experiment: Experiment, *, resume: bool, overwrite: bool) -> Iterator[None]:
    """Lock a run directory and see that nothing in it is lost: new, or resumed with the same settings."""
    with artefact.lock(directory):
        config = directory / "config.toml"
        if config.exists() and overwrite and not resume:
            for name in ("config.toml", "metrics.jsonl", "result.json"):
                (directory / name).unlink(missing_ok=True)
            shutil.rmtree(directory / "checkpoint", ignore_errors=True)
        if config.exists():
            if not resume:
                done = "finished" if (directory / "result.json").exists() else "unfinished"
                raise ArtefactError(
                    f"{directory} holds a {done} run; continue it with --resume, replace it with --overwrite, "
                    "or choose another --out"
                )
            if read_toml(config).identity != experiment.identity:
                raise ArtefactError(
                    f"{directory} holds a run with other settings; resume with the same ones (see its config.toml), "
                    "or choose another --out"
                )
        artefact.write_text(config, artefact.to_toml(experiment.model_dump(mode="json")))
        yield


def read_metrics(path: Path, rounds_done: int) -> list[Record]:
    """Read the records up to the checkpoint; later ones were made after it and are made again."""
    if not path.exists():
        return []
    records = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except ValueError:  # the line that was being written when the run was killed
            break
        if record["round"] <= rounds_done:
            records.append(record)
    if len(records) != rounds_done:
        raise ArtefactError(f"{path} has {len(records)} records for {rounds_done} rounds; start anew with --overwrite")
    return records


class Journal:
    """metrics.jsonl and TensorBoard's events, both appended round by round."""

    def __init__(self, out: Path | None, metrics: list[Record]):
        self.metrics = metrics
        self._file = None
        self._events: Any = None  # a SummaryWriter, where tensorboard is installed
        if out is not None:
            artefact.write_text(out / "metrics.jsonl", "".join(json.dumps(r) + "\n" for r in metrics))
            self._file = open(out / "metrics.jsonl", "a", encoding="utf-8")  # noqa: SIM115
            self._events = _event_writer(out, len(metrics))

    def add(self, record: Record) -> None:
        """Append one round."""
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
                if isinstance(value, float | int) and name != "round":
                    self._events.add_scalar(name, value, record["round"])

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
