import pytest
import torch

from aircomp.cli.pretrain import _note, run, starting_point
from aircomp.errors import ArtefactError, ConfigError
from aircomp.layer.analog_code import AnalogCode
from aircomp.layer.blind_net import BlindLayer
from aircomp.layer.communication import CommunicationLayer
from aircomp.layer.joint_code import JointLayer
from aircomp.train.recipe import PAPER_PRESETS, BlindTrainingSettings, CodeSettings, JointTrainingSettings, load_preset
from helpers.fragments import save_small_rounds
from helpers.settings import RECIPE, flags

QUICK = ["--preset", "short", *flags(RECIPE)]


@pytest.fixture
def fragments(tmp_path):
    return save_small_rounds(tmp_path / "fragments")


@pytest.mark.seconds
def test_pretrain_trains_prints_a_table_and_resumes(fragments, tmp_path, capsys):
    out = tmp_path / "layer"
    run([str(fragments), *QUICK, "--out", str(out)])
    printed = capsys.readouterr().out
    assert "held-out rounds, slot SNR; 1 epochs done, best 1" in printed
    assert str(out / "layer.safetensors") in printed.replace("\n", "")
    assert CommunicationLayer.load(out).codebook.shape == (16, 8)
    run([str(fragments), "--resume", "--out", str(out), "--epochs", "2"])  # all else from its own config.toml
    assert CommunicationLayer.load(out).training["epochs"] == 2
    with pytest.raises(ArtefactError, match="--overwrite"):
        run([str(fragments), *QUICK, "--out", str(out)])


@pytest.mark.parametrize(
    ("seconds", "left"), [(0.0, "0 s"), (29.4, "29 s"), (89.0, "89 s"), (90.0, "2 min"), (600.0, "10 min")]
)
def test_the_time_left_is_never_nothing_while_something_is_left(seconds, left):
    record = {"validation_loss": 1.0, "best_epoch": 1, "seconds_left": seconds}
    assert _note(record).endswith(f", at most {left} left")


def test_mistakes_are_named(fragments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="no fragments directory was given"):
        run([])
    with pytest.raises(ArtefactError, match="holds no rounds"):
        run([str(tmp_path / "nowhere")])
    with pytest.raises(ConfigError, match="did you mean 'paper'"):
        run([str(fragments), "--preset", "papr"])
    with pytest.raises(ConfigError, match="two-bases needs a power of two"):
        run([str(fragments), *QUICK, "--codeword-length", "7"])
    assert {p.name for p in tmp_path.iterdir()} == {"fragments"}


def test_a_preset_decides_the_defaults():
    assert starting_point(["a", "--preset", "paper"]) == PAPER_PRESETS.load("paper")
    assert starting_point(["a", "--preset", "authors"]) == PAPER_PRESETS.load("authors")
    assert starting_point(["a", "--preset=short"]) == load_preset("short")
    assert starting_point(["a"]) == load_preset("default")


@pytest.mark.seconds
def test_a_preset_decides_what_is_trained(tmp_path, capsys):
    fragments, out = save_small_rounds(tmp_path / "fragments", raw=True), tmp_path / "code"
    quick = ["--codeword-length", "8", "--code.width", "4", "--data.batch-slots", "20", "--samples-per-epoch", "40"]
    run([str(fragments), "--preset", "learned-analog", *quick, "--seconds", "0.001", "--out", str(out)])
    printed = " ".join(capsys.readouterr().out.split())
    assert "held-out rounds, transmit SNR; 0.001 seconds spent, best 1" in printed
    assert AnalogCode.load(out).networks.uses == 8
    assert isinstance(starting_point(["--resume", "--out", str(out)]), CodeSettings)
    assert isinstance(starting_point(["--preset", str(out / "config.toml")]), CodeSettings)
    receiver = tmp_path / "receiver"
    quick = [
        "--codeword-length",
        "8",
        "--fading.antennas",
        "2",
        "--data.batch-slots",
        "20",
        "--samples-per-epoch",
        "40",
    ]
    run([str(fragments), "--preset", "blind-net", *quick, "--seconds", "0.001", "--out", str(receiver)])
    assert "antennas" in capsys.readouterr().out
    assert BlindLayer.load(receiver).codebook.shape[1] == 8
    assert isinstance(starting_point(["--resume", "--out", str(receiver)]), BlindTrainingSettings)
    joint, quick = tmp_path / "joint", ["--codeword-length", "8", "--joint.width", "3", "--data.no-side-information"]
    run([str(fragments), "--preset", "joint-net", *quick, "--seconds", "0.001", "--out", str(joint)])
    assert "update NMSE" in capsys.readouterr().out
    assert JointLayer.load(joint).code.settings.width == 3
    assert isinstance(starting_point(["--resume", "--out", str(joint)]), JointTrainingSettings)
    with pytest.raises(ConfigError, match="did you mean 'learned-analog'"):
        run([str(fragments), "--preset", "learned-analogue"])
    with pytest.raises(ConfigError, match=r"net\.filters"):
        run([str(fragments), "--preset", "learned-analog", "--net.filters", "4"])


@pytest.mark.seconds
def test_the_zoo_has_a_layer_of_each_size_and_resumes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("aircomp.train.zoo.SIZES", ((8, 4), (12, 4)))
    fragments, out = save_small_rounds(tmp_path / "fragments", raw=True), tmp_path / "layers"
    quick = ["--samples-per-epoch", "20", "--net.num-layers", "1", "--net.filters", "2", "--data.batch-slots", "20"]
    quick += ["--data.validation-samples", "20", "--data.test-samples", "20", "--preset", "zoo", "--out", str(out)]
    run([str(fragments), *quick, "--epochs", "1"])
    assert "12x4, slot SNR; 1 epochs done" in capsys.readouterr().out
    layers = {name: CommunicationLayer.load(out / name) for name in ("8x4", "12x4")}
    assert [tuple(layer.codebook.shape) for layer in layers.values()] == [(8, 4), (12, 4)]
    assert layers["8x4"].num_active_range == (1, 3)
    run([str(fragments), *quick, "--epochs", "1", "--resume"])
    assert torch.equal(CommunicationLayer.load(out / "8x4").codebook, layers["8x4"].codebook)
