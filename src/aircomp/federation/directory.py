"""The directory of a run: its records as they come, checkpoints, and at the end the model and the row of its result."""

import csv
import io
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from aircomp.common import artefact, results
from aircomp.common.outdir import as_directory
from aircomp.device.update import FlatModel
from aircomp.federation.checkpoint import load_checkpoint, load_fixed, save_checkpoint, save_fixed
from aircomp.federation.experiment import Experiment
from aircomp.federation.journal import Journal, open_run, read_metrics
from aircomp.federation.round import FederationState, Record
from aircomp.federation.start import save_model


class RunDirectory:
    """What one run keeps on disk.

    Args:
        out: Where.
        experiment: Its settings.
        command: What the result calls it.
        resume: Whether it goes on with what is there.
    """

    def __init__(self, out: Path, experiment: Experiment, command: str, *, resume: bool):
        self.out, self.experiment, self.command, self.resume = out, experiment, command, resume
        self._checkpoint, self._identity = out / "checkpoint", artefact.config_hash(experiment.identity)
        self._journal: Journal | None = None
        self._saved: FederationState | None = None
        self._saved_at = 0.0

    def start(self, model: FlatModel, state: FederationState) -> tuple[FederationState, list[Record]]:
        """Return the state that the run begins with, and the records before it.

        Args:
            model: Gets the frozen values of a run that is resumed.
            state: The state before the first round.
        """
        saved = load_checkpoint(self._checkpoint, self._identity, state) if self.resume else None
        if saved is None:
            save_fixed(self._checkpoint, model)
            return state, []
        load_fixed(self._checkpoint, model)
        return saved, read_metrics(self.out / "metrics.jsonl", saved.rounds_done)

    def open(self, metrics: Sequence[Record]) -> None:
        """Begin the journal with the records so far."""
        self._journal, self._saved_at = Journal(self.out, list(metrics)), time.perf_counter()

    def add(self, record: Record) -> None:
        """Append the record of a round."""
        assert self._journal is not None  # from `open`
        self._journal.add(record)

    @property
    def is_due(self) -> bool:
        """Whether the last checkpoint is long ago."""
        return time.perf_counter() - self._saved_at >= self.experiment.checkpoint_seconds

    def save(self, state: FederationState) -> None:
        """Write a checkpoint, if it is another state than the last one."""
        if state is not self._saved:
            save_checkpoint(self._checkpoint, state, self._saved, self._identity)
            self._saved, self._saved_at = state, time.perf_counter()

    def close(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Close the journal, and write the records as a table."""
        assert self._journal is not None  # from `open`
        self._journal.close()
        artefact.write_text(self.out / "metrics.csv", as_csv(rows))

    def finish(self, module: nn.Module, row: results.Row) -> None:
        """Write the model and the result."""
        save_model(self.out, module)
        config = self.experiment.model_dump(mode="json")
        results.write_result(self.out / "result.json", self.command, config, self.experiment.seed, [row])


@contextmanager
def run_directory(
    out: str | Path, experiment: Experiment, *, command: str, resume: bool, overwrite: bool, other_arithmetic: bool
) -> Iterator[RunDirectory]:
    """Hold the directory of a run; see `open_run`."""
    path = as_directory(out)
    with open_run(
        path, experiment, command=command, resume=resume, overwrite=overwrite, other_arithmetic=other_arithmetic
    ):
        yield RunDirectory(path, experiment, command, resume=resume)


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows of the same names as comma-separated text with a line of names."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["round"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
