import json

import pytest
import torch

import aircomp
from aircomp.common import arithmetic, results
from aircomp.common.arithmetic import HISTORY, arithmetic_identity, keep_arithmetic, switched_off
from aircomp.errors import ArtefactError


def test_it_names_what_computes():
    with switched_off():
        assert arithmetic_identity().startswith(f"torch {torch.__version__} for ")
        assert arithmetic_identity().endswith(", no kernels")
        alone = arithmetic_identity()
    found = arithmetic.kernels()
    if found is not None:
        assert arithmetic_identity() == alone.replace("no kernels", f"kernels {found.key[:12]} for {found.variant}")


def test_it_stands_in_every_result():
    assert results.environment()["arithmetic"] == arithmetic_identity()


def test_the_same_arithmetic_resumes(tmp_path):
    keep_arithmetic(tmp_path, resume=False, other=False)
    keep_arithmetic(tmp_path, resume=True, other=False)
    assert json.loads((tmp_path / HISTORY).read_text()) == [arithmetic_identity()]


def test_other_arithmetic_resumes_only_if_asked_for(tmp_path, monkeypatch):
    before = arithmetic_identity()
    keep_arithmetic(tmp_path, resume=False, other=False)
    monkeypatch.setattr(torch, "__version__", "9.9")
    now = arithmetic_identity()
    with pytest.raises(ArtefactError, match=r"was computed with .* and here is torch 9.9 .*; add --other-arithmetic"):
        keep_arithmetic(tmp_path, resume=True, other=False)
    assert json.loads((tmp_path / HISTORY).read_text()) == [before]
    keep_arithmetic(tmp_path, resume=True, other=True)
    assert json.loads((tmp_path / HISTORY).read_text()) == [before, now]


def test_a_run_that_begins_anew_forgets_the_last_one(tmp_path, monkeypatch):
    keep_arithmetic(tmp_path, resume=False, other=False)
    monkeypatch.setattr(torch, "__version__", "9.9")
    keep_arithmetic(tmp_path, resume=False, other=False)
    assert json.loads((tmp_path / HISTORY).read_text()) == [arithmetic_identity()]


@pytest.mark.parametrize("content", ["{}", "[1]", "no"])
def test_a_damaged_history_is_refused(tmp_path, content):
    (tmp_path / HISTORY).write_text(content)
    with pytest.raises(ArtefactError, match=HISTORY):
        keep_arithmetic(tmp_path, resume=True, other=True)


def test_a_federated_run_keeps_its_arithmetic(quick, tmp_path, monkeypatch):
    aircomp.simulate(quick, out=tmp_path / "run", rounds=1)
    monkeypatch.setattr(arithmetic, "arithmetic_identity", lambda: "an abacus")
    with pytest.raises(ArtefactError, match="--other-arithmetic"):
        aircomp.simulate(quick, out=tmp_path / "run", rounds=2, resume=True)
    run = aircomp.simulate(quick, out=tmp_path / "run", rounds=2, resume=True, other_arithmetic=True)
    assert len(run.metrics) == 2
