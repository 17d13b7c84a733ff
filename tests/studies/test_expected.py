import pytest

from aircomp.studies import expected as module
from aircomp.studies.expected import band, deviations, expectation_of, expected, folder, identity, write_expected
from aircomp.studies.jobs import Workers
from aircomp.studies.results import reproduce
from aircomp.studies.scales import SCALES
from aircomp.studies.study import RESULTS

KEPT = [(path.parent.name, path.stem) for path in sorted(folder().glob("*/*.json")) if path.parent.name in SCALES]
WHEEL_BYTES = 300_000


def measured(accuracy, std):
    row = {"uplink": "gamp", "snr_db": 0.0, "seeds": 3, "test_accuracy_last5": accuracy, "test_accuracy_last5_std": std}
    return row | {"seconds": 9.0, "seconds_std": 0.1, "update_nmse": None, "update_nmse_std": None}


def test_all_expectations_are_small_in_the_wheel():
    assert sum(path.stat().st_size for path in folder().rglob("*.json")) < WHEEL_BYTES


@pytest.mark.parametrize(("accuracy", "std", "wide"), [(0.9, 0.01, 0.03), (0.9, 0.001, 0.02), (50.0, 0.1, 1.0)])
def test_a_band_is_three_spreads_or_two_points_or_two_per_cent(accuracy, std, wide):
    row = expectation_of(measured(accuracy, std))
    assert band(row, "test_accuracy_last5") == pytest.approx(wide)
    assert "seconds" not in row, "time is the machine's"
    assert "update_nmse" not in row, "what was not measured is not expected"


def test_what_leaves_its_band_is_named():
    before = [expectation_of(measured(0.9, 0.01))]
    assert deviations([measured(0.92, 0.0)], before) == []
    (found,) = deviations([measured(0.94, 0.0)], before)
    assert found == "test_accuracy_last5 of snr_db 0.0, uplink gamp: 0.94 instead of 0.9 ± 0.03"
    assert deviations([measured(0.1, 0.0) | {"uplink": "new"}], before) == [], "what was never measured has no band"


def test_rows_come_back_from_a_file_to_four_digits(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "folder", lambda: tmp_path)
    values = [0.123456, 0.2, None]
    rows = [
        {"way": "a", "seeds": 3, "x": 0.161728, "x_std": 0.05, "x_values": values, "measured_at": "commit abc"},
        {
            "way": "b",
            "seeds": 2,
            "x": 12345.6,
            "x_std": 0.0,
            "x_values": [12345.6, 12345.6],
            "measured_at": "commit abc",
        },
        {"way": "c", "snr_db": None, "seeds": 1, "y": 1 / 3, "y_std": None},
    ]
    write_expected("tiny", "some", {"version": "1"}, rows)
    found = expected("tiny", "some")
    assert found["version"] == "1"
    assert [identity(row) for row in found["rows"]] == [identity(row) for row in rows]
    first, second, third = found["rows"]
    assert first["x_values"] == [0.1235, 0.2, None]
    assert first["x"] == pytest.approx((0.1235 + 0.2) / 2)
    assert (second["x"], second["x_std"]) == (12350, 0)
    assert (third["y"], third["y_std"], third["snr_db"]) == (0.3333, None, None)
    assert first["measured_at"] == "commit abc"


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "name"), KEPT)
def test_a_rerun_is_as_expected(scale, name, tmp_path_factory):
    """Hours at the laptop's scale; results share what they have in common."""
    out = tmp_path_factory.getbasetemp() / f"reproduce-{scale}"
    home = RESULTS.home(name)
    rows = reproduce([name], SCALES[scale], range(3), out, Workers(2))[name]
    assert deviations(rows, expected(scale, home)["rows"]) == []
