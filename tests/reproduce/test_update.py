from dataclasses import replace
from pathlib import Path

import pytest

from aircomp.cli import main
from aircomp.common.artefact import read_json
from aircomp.report.page import Table
from aircomp.reproduce import docs as docs_module
from aircomp.reproduce import expected, update
from aircomp.reproduce.catalogue import RESULTS
from aircomp.reproduce.docs import markdown
from aircomp.reproduce.expected import deviations
from aircomp.reproduce.run import reproduce
from aircomp.reproduce.scales import SCALES
from aircomp.reproduce.update import docs_folder, update_expected

RESULT = RESULTS["quantisation"]


@pytest.mark.seconds
def test_a_finished_result_becomes_the_expected_one_and_the_tables_of_the_docs(tmp_path, monkeypatch):
    few = {"rounds": 2, "devices.total": 4, "participation.low": 2, "participation.high": 3, "local.epochs": 1}
    scale, docs, run = replace(SCALES["digits"], name="tiny", collected=few), tmp_path / "docs", tmp_path / "run"
    outcome = reproduce([RESULT], scale, range(2), run)[RESULT.name]
    monkeypatch.setattr(expected, "folder", lambda name: tmp_path / "expected" / name)
    monkeypatch.setitem(docs_module.SCALES, "tiny", scale)
    monkeypatch.setattr(docs_module, "folder", lambda name: tmp_path / "expected" / name)
    numbers, *written = update_expected(RESULT, scale, run, docs)
    assert deviations(outcome.rows, read_json(numbers)) == []
    assert len(read_json(numbers)["rows"]) == len(outcome.rows)
    assert written == [
        docs / "results" / "index.md",
        docs / "results" / "tiny.md",
        docs / "figures" / "tiny-quantisation.svg",
    ]
    text = written[1].read_text()
    assert "aircomp reproduce quantisation --scale tiny --seeds 2" in text
    assert "| k-means++ (the paper) |" in text
    assert "| the paper claims | where | A | value | B | value | margin | verdict |" in text
    assert " on tiny |" in text
    assert written[2].read_text().startswith("<svg")
    assert update_expected(RESULT, scale, run, docs) == [numbers], "what is current is not written again"


def test_cells_of_a_table_stay_cells():
    table = Table(
        "Claims", {"x": "value", "margin": "margin"}, [{"x": 0.5, "x_std": 0.1, "margin": "|A − B| < 1"}], "Why."
    )
    assert markdown(table).splitlines() == [
        "**Claims**",
        "",
        "| value | margin |",
        "| --- | --- |",
        r"| 0.5 ± 0.1 | \|A − B\| < 1 |",
        "",
        "Why.",
    ]


def test_the_docs_are_those_of_this_source():
    assert docs_folder() == Path(__file__).parents[2] / "docs"


def test_a_package_without_its_source_refuses_before_it_computes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(update.resources, "files", lambda _: tmp_path / "site" / "aircomp")
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", "quantisation", "--update-expected", "--out", str(tmp_path / "out")])
    assert stopped.value.code == 2
    assert "has none beside it; use a clone and make env" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
