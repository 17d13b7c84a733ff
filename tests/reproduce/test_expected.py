import pytest

from aircomp.reproduce.catalogue import result_of
from aircomp.reproduce.expected import deviations, expectation_of, expected, folder
from aircomp.reproduce.jobs import Crew
from aircomp.reproduce.run import reproduce
from aircomp.reproduce.scales import SCALES

KEPT = [(path.parent.name, path.stem) for path in sorted(folder("digits").parent.glob("*/*.json"))]


def measured(accuracy, std):
    row = {"uplink": "gamp", "snr_db": 0.0, "seeds": 3, "test_accuracy_last5": accuracy, "test_accuracy_last5_std": std}
    row |= {"seconds": 9.0, "seconds_std": 0.1}
    about = {"command": "reproduce x", "version": "1", "environment": {}, "config": {"core_seconds": 5.0}}
    return about | {"rows": [row]}


@pytest.mark.parametrize(("accuracy", "std", "band"), [(0.9, 0.01, 0.03), (0.9, 0.001, 0.02), (50.0, 0.1, 1.0)])
def test_a_band_is_three_spreads_or_two_points_or_two_per_cent(accuracy, std, band):
    (row,) = expectation_of(measured(accuracy, std))["rows"]
    assert row["test_accuracy_last5_band"] == pytest.approx(band)
    assert "seconds" not in row, "time is the machine's"


def test_what_leaves_its_band_is_named():
    expectation = expectation_of(measured(0.9, 0.01))
    assert deviations(measured(0.92, 0.0)["rows"], expectation) == []
    (found,) = deviations(measured(0.94, 0.0)["rows"], expectation)
    assert found == "test_accuracy_last5 of snr_db 0.0, uplink gamp: 0.94 instead of 0.9 ± 0.03"
    other = measured(0.1, 0.0)["rows"]
    other[0]["uplink"] = "new"
    assert deviations(other, expectation) == [], "what was never measured has no band"


@pytest.mark.slow  # half a minute; of every kind of job test_versions.py has a small one
def test_quantisation_of_one_seed_is_as_expected(tmp_path):
    before = expected("quantisation", "digits")
    assert before is not None
    rows = reproduce([result_of("quantisation", "digits")], SCALES["digits"], [0], tmp_path)["quantisation"].rows
    assert len(rows) == len(before["rows"])
    assert deviations(rows, before) == []
    assert deviations([row | {"device_nmse": 0.5} for row in rows], before) != []


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "name"), KEPT)
def test_a_rerun_is_as_expected(scale, name, tmp_path_factory):
    """Hours at the laptop's scale; results share what they have in common."""
    out = tmp_path_factory.getbasetemp() / f"reproduce-{scale}"
    rows = reproduce([result_of(name, scale)], SCALES[scale], range(3), out, Crew(workers=2))[name].rows
    before = expected(name, scale)
    assert before is not None
    assert deviations(rows, before) == []
