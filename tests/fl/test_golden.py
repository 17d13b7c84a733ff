"""Short seeded runs against stored numbers: a change here is a change of results, and is reviewed as one.

`AIRCOMP_REGEN=1 pytest tests/fl/test_golden.py` writes those that are not stored yet; to change one, delete it first.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from aircomp.common.artefact import read_json
from aircomp.fl.simulate import simulate
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
QUIET = {"snr_db": 10.0}
LOUD = QUICK | {"snr_db": 0.0}  # of a smaller model: quicker, and as telling
RUNS = {
    "ideal": ("ideal", {}),
    "perfect": ("perfect", {}),
    "gamp": ("gamp", QUIET),
    "amp-da": ("amp-da", QUIET),
    "amp-da-net": ("amp-da-net", QUIET),
    "gamp-net": ("gamp-net", QUIET),
    "gamp at 0 dB": ("gamp", LOUD),
    "amp-da at 0 dB": ("amp-da", LOUD),
    "gamp-net at 0 dB": ("gamp-net", LOUD),
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
    asked = ["--decoder", "gamp", "amp-da", "gamp-net", "omp", "--snr-db", "0", "5", "--slots", "60"]
    assert call("evaluate", "--fragments", fragments, *asked, "--out", out) == 0
    rows = read_json(out / "result.json")["rows"]
    fields = [field for field in rows[0] if "second" not in field and field != "num_active_error"]  # amp-da has none
    compare("evaluate", {field: [row[field] for row in rows] for field in fields})
