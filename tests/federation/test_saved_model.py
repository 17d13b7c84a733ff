"""The saved model takes raw inputs: on the dataset's own test images it has the accuracy of the run."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from aircomp.data.files import locate
from aircomp.data.images import ImageData, load
from aircomp.federation.evaluate import evaluate
from aircomp.federation.experiment import load_experiment, preset_names
from aircomp.federation.simulate import build_model, simulate
from aircomp.federation.start import load_start
from helpers.draws import seeded
from helpers.settings import QUICK

SHAPES = {"cifar10": (3, 32), "fashion-mnist": (1, 28), "mnist": (1, 28)}


def images_like(name: str) -> ImageData:
    """Return digits, MNIST where it is installed, or bytes of the shape of a dataset that has to be fetched."""
    if name in ("digits", "mnist") and locate(name):
        return load(name)
    channels, side = SHAPES[name]
    drawn = torch.randint(0, 256, (300, channels, side, side), generator=seeded(), dtype=torch.uint8)
    labels = torch.arange(300) % 10
    mean, std = torch.full((channels,), 0.3), torch.full((channels,), 0.2)
    return ImageData(name, name, drawn[:240], labels[:240], drawn[240:], labels[240:], 10, mean, std)


@pytest.mark.seconds
@pytest.mark.parametrize("preset", preset_names())
def test_the_saved_model_of_a_preset_scores_the_runs_accuracy_on_raw_images(preset, tmp_path):
    experiment = load_experiment(preset)
    data = images_like(experiment.data.name)
    small = {k: v for k, v in QUICK.items() if k != "local.epochs"} | {"local.steps": 1, "rounds": 1, "uplink": "ideal"}
    experiment = experiment.changed(**small | {"participation.low": 1, "participation.high": 2, "local.batch_size": 8})
    run = simulate(experiment, dataset=data, out=tmp_path)
    again = build_model(experiment, replace(data, pixel_mean=torch.zeros(data.train_images.shape[1])))
    load_start(again, tmp_path)
    for model in (run.model, again):
        with torch.no_grad():
            right = (model.eval()(data.test_images).argmax(1) == data.test_labels).float().mean()
        assert float(right) == pytest.approx(run.test_accuracy, abs=1e-6)
        assert evaluate(model, data)[0] == run.test_accuracy


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_images_and_a_model_of_ones_own_meet_as_they_are(scale, quick):
    images, labels = scale * torch.rand(120, 1, 4, 4, generator=seeded()), torch.arange(120) % 3
    seen = []

    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(16, 3)

        def forward(self, x):
            seen.append(float(x.max()))
            return self.out(x.flatten(1) / scale)

    pair = TensorDataset(images[:90], labels[:90]), TensorDataset(images[90:], labels[90:])
    run = simulate(quick.changed(rounds=1), model=Looks(), dataset=pair)
    assert max(seen) == float(images.max())
    right = (run.model(images[90:]).argmax(1) == labels[90:]).float().mean()
    assert float(right) == pytest.approx(run.test_accuracy, abs=1e-6)
