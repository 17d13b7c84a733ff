import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from aircomp.data.samples import TensorSamples
from aircomp.device.local import Objective, batch_indices, num_steps, train
from aircomp.device.settings import LocalSettings
from aircomp.device.update import FlatModel
from aircomp.errors import ConfigError


def small_model():
    torch.random.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 36, 4))


@pytest.fixture
def samples(rng):
    return torch.randn(23, 1, 8, 8, generator=rng), torch.randint(0, 4, (23,), generator=rng)


def plain_training(module, images, labels, settings, rng):
    """The loop that everybody knows, with torch's own optimiser and clipping."""
    optimizer = torch.optim.SGD(
        module.parameters(), settings.learning_rate, settings.momentum, weight_decay=settings.weight_decay
    )
    module.train()
    for batch in batch_indices(len(labels), settings, rng=rng):
        optimizer.zero_grad()
        F.cross_entropy(module(images[batch]), labels[batch]).backward()
        if settings.clip_norm:
            nn.utils.clip_grad_norm_(module.parameters(), settings.clip_norm)
        optimizer.step()
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


@pytest.mark.parametrize(
    "options",
    [
        {"epochs": 2},
        {"steps": 5},
        {"epochs": 2, "momentum": 0.9, "weight_decay": 0.01},
        {"epochs": 2, "clip_norm": 0.1},
        {"epochs": 2, "data_fraction": 0.5},
    ],
)
def test_local_training_equals_a_plain_pytorch_loop(samples, options):
    images, labels = samples
    settings = LocalSettings(batch_size=7, learning_rate=0.1, **options)
    module = small_model()
    flat = FlatModel(copy.deepcopy(module))
    start, buffers = flat.weights.clone(), flat.read_buffers()
    held = TensorSamples((images, labels), torch.arange(len(labels)))
    result = train(flat, start, buffers, held, settings, Objective(), rng=torch.Generator().manual_seed(3))
    expected = plain_training(module, images, labels, settings, torch.Generator().manual_seed(3))
    # same operations in another grouping: float32 rounding of a dozen steps
    torch.testing.assert_close(start + result.update, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(result.buffers, FlatModel(module).read_buffers(), rtol=1e-5, atol=1e-6)
    assert not torch.equal(result.buffers, buffers)


def test_batches_cover_the_data_once_an_epoch(rng):
    batches = batch_indices(10, LocalSettings(epochs=2, batch_size=4), rng=rng)
    assert [len(b) for b in batches] == [4, 4, 2] * 2
    assert sorted(torch.cat(batches[:3]).tolist()) == list(range(10))


def test_flat_model_is_the_module():
    module = small_model()
    original = [p.detach().clone() for p in module.parameters()]
    flat = FlatModel(module)
    assert torch.equal(flat.weights, torch.cat([p.reshape(-1) for p in original]))
    flat.weights.zero_()
    assert all((p == 0).all() for p in module.parameters())


def test_flat_model_names_layers_and_slots():
    flat = FlatModel(small_model())  # tensors of 27, 3, 3, 3, 432 and 4 entries
    assert flat.layer_at(0) == "0.weight"
    assert flat.layer_at(27) == "0.bias"
    assert flat.slot_layers(20).tolist()[:3] == [0, 0, 4]
    assert len(flat.slot_layers(20)) == -(-flat.num_params // 20)


def test_epochs_or_steps_count_and_the_one_takes_the_place_of_the_other():
    with pytest.raises(ConfigError, match="epochs = 1 and steps = 2 were given; expected one of them"):
        LocalSettings(epochs=1, steps=2)
    three = LocalSettings(epochs=3, batch_size=10)
    assert (num_steps(100, three), num_steps(100, three.changed(steps=7)), num_steps(100, LocalSettings())) == (
        30,
        7,
        5,
    )
    assert three.changed(steps=7).changed(epochs=2).steps is None
    with pytest.raises(ConfigError, match="epochs = 0: expected 1 to"):
        LocalSettings(epochs=0)
