"""What a newcomer sees at the prompt: names, help, results in a line, completion of flags."""

import pydoc
import subprocess
import sys

import pytest
import torch

import aircomp
from aircomp.cli import main


def test_dir_lists_the_public_names_and_no_others():
    assert dir(aircomp) == sorted(aircomp.__all__)


def test_help_describes_every_public_function():
    text = pydoc.render_doc(aircomp, renderer=pydoc.plaintext)
    for name in set(aircomp.__all__) - {"__version__"}:
        assert name in text
    assert "Run federated training and return its metrics, summary and model." in text


@pytest.mark.process
def test_listing_the_names_does_not_import_torch():
    code = "import sys, aircomp; dir(aircomp); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_decoded_round_and_a_layer_say_what_they_are_in_a_line():
    layer = aircomp.CommunicationLayer.load()
    assert (
        repr(layer)
        == "<CommunicationLayer, form gamp-net: 128 codewords of 64 channel uses, trained on 1 to 64 devices>"
    )
    decoded = aircomp.Decoded(torch.zeros(3, 128, dtype=torch.long), torch.zeros(3, 128), 9.97, torch.zeros(3))
    assert repr(decoded) == "<Decoded: counts of 3 × 128 slots and codewords, 9.97 devices estimated>"


def test_a_run_says_what_it_is_in_a_line():
    short = {"devices.total": 4, "participation.low": 2, "participation.high": 3, "local.epochs": 1, "model.width": 4}
    run = aircomp.simulate("digits", uplink="gamp", snr_db=5.0, rounds=1, engine="serial", **short)
    assert repr(run) == f"<Simulation: Digits 8×8 over gamp at 5 dB, 1 round, test accuracy {run.test_accuracy:.3f}>"
    untouched = aircomp.simulate("digits", uplink="ideal", rounds=0, engine="serial", **short)
    assert repr(untouched) == "<Simulation: Digits 8×8 over ideal, 0 rounds, not evaluated>"


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_command_prints_the_completion_of_its_flags(shell, capsys):
    main(["evaluate", "--tyro-print-completion", shell])
    assert "--snr-reference" in capsys.readouterr().out
