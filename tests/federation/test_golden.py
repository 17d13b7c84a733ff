"""Short seeded runs against stored numbers: a change here is a change of results, and is reviewed as one.

All of them decode without error. Where decoding errs, the last bits of a processor decide which counts are wrong.

`AIRCOMP_REGEN=1 pytest tests/federation/test_golden.py` writes those that are not stored yet; to change one, delete it first.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from aircomp.common.artefact import read_json
from aircomp.federation.simulate import simulate
from helpers.commands import call
from helpers.settings import QUICK, flags

STORED = Path(__file__).with_name("golden.json")
FIELDS = (
    "test_accuracy",
    "test_loss",
    "num_active",
    "num_active_hat",
    "count_accuracy",
    "update_nmse",
    "feedback_ratio",
)
EVALUATED = ("decoder", "codebook", "snr_db", "snr_reference", "rounds", "count_accuracy", "update_nmse_hard", "pupe")
QUIET = {"snr_db": 10.0}
RUNS = {
    "ideal": ("ideal", {}),
    "perfect": ("perfect", {}),
    "gamp": ("gamp", QUIET),
    "amp-da": ("amp-da", QUIET),
    "gamp-net": ("gamp-net", QUIET),
}
EXACT = ("test_accuracy", "num_active", "rounds", "decoder", "codebook", "snr_db", "snr_reference")
"""Whole numbers, shares of 360 test images, and words: rounding does not reach them."""
TOLERANCE = 1e-4
"""Processors round differently, by 1e-7 at most; from the fourth round on a fragment may take another codeword for it, and
the run is another one."""


def compare(name: str, found: Any) -> None:
    """See that numbers are those stored under a name."""
    everything = json.loads(STORED.read_text())
    if os.environ.get("AIRCOMP_REGEN") and name not in everything:
        STORED.write_text(json.dumps(everything | {name: found}, indent=1) + "\n")
        return
    stored = everything[name]
    assert stored.keys() == found.keys()
    for field, values in stored.items():
        expected = values if field in EXACT else pytest.approx(values, rel=TOLERANCE, abs=TOLERANCE)
        assert found[field] == expected, field


pytestmark = pytest.mark.usefixtures("torch_alone")


@pytest.mark.parametrize("name", RUNS)
def test_three_rounds_of_digits_give_the_stored_numbers(name, digits):
    uplink, settings = RUNS[name]
    run = simulate("digits", uplink=uplink, dataset=digits, **{"rounds": 3, "engine": "serial"} | settings)
    compare(name, {field: [r[field] for r in run.metrics] for field in FIELDS if field in run.metrics[0]})


def test_evaluating_collected_fragments_gives_the_stored_rows(tmp_path):
    fragments, out = tmp_path / "fragments", tmp_path / "evaluated"
    assert call("collect", "digits", *flags(QUICK | {"rounds": 2}), "--out", fragments) == 0
    asked = ["--decoder", "gamp", "amp-da", "gamp-net", "omp", "--snr-db", "10", "20", "--slots", "60"]
    assert call("evaluate", "--fragments", fragments, *asked, "--out", out) == 0
    rows = read_json(out / "result.json")["rows"]
    compare("evaluate", {field: [row[field] for row in rows] for field in EVALUATED})
