import pytest
import torch

from aircomp.cli.pretrain import run, starting_point
from aircomp.errors import ArtefactError, ConfigError
from aircomp.layer import CommunicationLayer
from aircomp.train.fragments import FragmentRound, save_round
from aircomp.train.recipe import load_preset

QUICK = [
    "--schedule",
    "halving",
    "--preset",
    "short",
    "--epochs",
    "1",
    "--codeword-length",
    "8",
    "--net.num-layers",
    "1",
    "--net.filters",
    "2",
]
QUICK += ["--data.batch-slots", "20", "--data.validation-samples", "20", "--data.test-samples", "20"]


@pytest.fixture
def fragments(tmp_path):
    for index in range(4):
        rng = torch.Generator().manual_seed(index)
        indices = torch.randint(0, 16, (3, 20), generator=rng)
        save_round(tmp_path / "fragments", index, FragmentRound(indices, torch.full((16,), 1 / 16), torch.randn(16, 4)))
    return tmp_path / "fragments"


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
    assert starting_point(["a", "--preset", "paper"]) == load_preset("paper")
    assert starting_point(["a", "--preset=short"]) == load_preset("short")
    assert starting_point(["a"]) == load_preset("default")
