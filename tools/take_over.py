"""Take over a long run of Table I that other code measured: whole, or until it ended early.

    python tools/take_over.py from_scratch --place '{"uplink": "amp-da", "snr_db": 0.0}' \
        --run DIRECTORY --steps 147 --commit 709d650 --out runs/from-scratch

The run's directory is that of a job of the kind `treatments`: `metrics.jsonl` and the last `treatments_….safetensors`.
What it found becomes the result of the present job at that place, marked "commit X, N rounds". `aircomp reproduce` then
goes on with the others, and `--update-expected` keeps the mark.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from aircomp.common.artefact import read_lines
from aircomp.common.results import Row
from aircomp.common.tensors import read_metadata
from aircomp.errors import ArtefactError
from aircomp.federation.round import Record
from aircomp.studies.jobs import Payload
from aircomp.studies.results import jobs_of
from aircomp.studies.runs import treated
from aircomp.studies.scales import scale_of


def found_so_far(directory: Path, steps: int) -> Payload:
    """Return what a run that was tested under two treatments found until it ended, early or not.

    Args:
        directory: Of the run.
        steps: Local steps of a round.

    Raises:
        ArtefactError: If nothing was tested.
    """
    metrics = read_lines(directory / "metrics.jsonl")
    kept = sorted(directory.glob("treatments_*.safetensors"))
    tests = json.loads(read_metadata(kept[-1]).get("rows", "[]")) if kept else _tests_of_told(metrics)
    if not tests:
        raise ArtefactError(f"{directory} holds no tests of a run; give the directory of a job of the kind treatments")
    errors = [r["update_nmse"] for r in metrics if r.get("update_nmse") is not None]
    row: Row = {"update_nmse": statistics.fmean(errors) if errors else None, "rounds": tests[-1]["round"]}
    return treated(tests, metrics, steps, row)


def _tests_of_told(metrics: Sequence[Record]) -> list[Row]:
    """Return the tests of a plain run under both treatments, which are one where the number of devices is known exactly."""
    if any(record["num_active"] != record.get("num_active_hat", 0) for record in metrics):
        return []
    tested = [record for record in metrics if record.get("test_accuracy") is not None]
    about = [{name: record[name] for name in ("round", "test_accuracy", "test_loss")} for record in tested]
    treatments = ("average", "estimated")
    return [test | {"buffers": name, "buffer_scale": 1.0} for test in about for name in treatments]


def main() -> None:
    """Write the job's file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result")
    parser.add_argument("--scale", default="desktop")
    parser.add_argument("--place", type=json.loads, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True, help="local steps of a round")
    parser.add_argument("--commit", required=True)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--out", type=Path, required=True)
    told = parser.parse_args()
    jobs = [job for place, job in jobs_of(told.result, scale_of(told.scale), [told.seed]) if place == told.place]
    if len(jobs) != 1:
        parser.error(f"{told.result} has {len(jobs)} jobs at {told.place}; expected one")
    found = found_so_far(told.run, told.steps)
    rounds = found["rows"][0]["rounds"]
    jobs[0].keep(told.out / "work", found, told.seconds, measured_at=f"commit {told.commit}, {rounds} rounds")
    print(jobs[0].path(told.out / "work"))


if __name__ == "__main__":
    main()
