"""Take over a long run of Table I that other code measured: whole, or until it ended early.

    python tools/take_over.py from_scratch --place '{"uplink": "amp-da", "snr_db": 0.0}' \
        --run DIRECTORY --steps 147 --commit 709d650 --out runs/from-scratch

The run's directory is that of a job of the kind `treatments`: `metrics.jsonl` and the last `treatments_….safetensors`.
What it found becomes the result of the present job at that place, marked "commit X, N rounds". `aircomp reproduce` then
goes on with the others, and `--update-expected` keeps the mark.
"""

import argparse
import json
from pathlib import Path

from aircomp.studies.results import jobs_of
from aircomp.studies.runs import found_so_far
from aircomp.studies.scales import scale_of


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
