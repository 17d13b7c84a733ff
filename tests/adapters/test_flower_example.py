"""The example app: plain torch, a regression, clients of 200 and 90 rows."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flwr.app import Context, RecordDict

from adapters.test_flower import LoopGrid
from aircomp.adapters.flower import UplinkStrategy

APP = Path(__file__).parents[2] / "examples" / "flower_app" / "air_app.py"


def test_the_app_to_copy_learns_its_regression_over_the_air(monkeypatch):
    spec = importlib.util.spec_from_file_location("air_app", APP)
    app = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(app)
    results, start = [], UplinkStrategy.start
    monkeypatch.setattr(UplinkStrategy, "start", lambda *args, **kwargs: results.append(start(*args, **kwargs)))
    app.main(LoopGrid(app.client, 2), Context(1, 1, {}, RecordDict(), {"num-server-rounds": 8}))
    scores = [record["r2"] for record in results[0].evaluate_metrics_serverapp.values()]
    # a straight line through all rows explains half of the variance; the mean explains none
    assert scores[0] < 0 < 0.35 < scores[-1]


def test_the_app_to_copy_imports_public_names_alone():
    text = APP.read_text(encoding="utf-8")
    assert "from aircomp" not in text
    assert text.count("import aircomp\n") == 1


def test_the_page_holds_the_app_word_for_word():
    page = (APP.parents[2] / "docs" / "howto" / "flower.md").read_text(encoding="utf-8")
    assert APP.read_text(encoding="utf-8") in page
