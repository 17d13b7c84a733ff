"""The notebooks run from top to bottom, and carry no outputs."""

import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))
SHORTER = {
    "SNRS_DB, ROUNDS = [-5.0, 0.0, 5.0, 10.0], 10": "SNRS_DB, ROUNDS = [0.0, 10.0], 1",
    "PHASES_DEG, ROUNDS = [0.0, 15.0, 30.0, 45.0], 10": "PHASES_DEG, ROUNDS = [30.0], 1",
    "ROUNDS, EPOCHS, SAMPLES = 30, 8, 2048": "ROUNDS, EPOCHS, SAMPLES = 3, 1, 128",
    '"--rounds", "6"': '"--rounds", "1"',
    '"evaluate",\n': '"evaluate", "--slots", "100",\n',
    '"collect", "digits"': '"collect", "digits", "--engine", "serial", "--local.epochs", "1"',
    "aircomp.simulate(": "aircomp.simulate(engine='serial', preset=",
}
"""What takes minutes, cut to seconds."""


def code_cells(notebook):
    return [cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 5


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_carries_no_outputs(notebook):
    for cell in code_cells(notebook):
        assert (cell["outputs"], cell["execution_count"]) == ([], None)


@pytest.mark.seconds
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook, tmp_path, monkeypatch):
    import matplotlib
    from matplotlib import pyplot

    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for cell in code_cells(notebook):
        code = "".join(cell["source"])
        for long, short in SHORTER.items():
            code = code.replace(long, short)
        exec(compile(code, notebook.name, "exec"), names)
    assert pyplot.gcf().axes, "the last figure shows something"
    assert pyplot.gca().get_xlabel()
    pyplot.close("all")
