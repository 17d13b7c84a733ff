import pytest
import torch

from aircomp.data.samples import TensorSamples
from aircomp.device.local import Objective, batch_indices, batch_sizes, train
from aircomp.device.settings import LocalSettings
from aircomp.device.together import WideModel, train_together
from aircomp.device.update import FlatModel
from aircomp.federation.models import build
from aircomp.federation.settings import ModelSettings
from helpers.draws import seeded

COPIES = 3
MODELS = [
    ModelSettings(name="resnet", width=4, blocks=1, stem_stride=2),
    ModelSettings(name="resnet", width=4, blocks=1, norm="group"),
    ModelSettings(name="vgg", width=4),
    ModelSettings(name="digits-cnn", width=4),
    ModelSettings(name="mnist-cnn", width=4),
]


def flat_model(settings, dtype):
    return FlatModel(build(settings, 10, 3, rng=seeded(1)).to(dtype))


def train_both(settings, local, dtype):
    """Return what three devices with data and buffers of their own learn one by one, and together."""
    model, rng = flat_model(settings, dtype), seeded(2)
    weights, buffers = model.weights.clone(), model.read_buffers()
    own = [buffers + 0.1 * device for device in range(COPIES)]
    images = [torch.randn(13, 3, 16, 16, generator=rng).to(dtype) for _ in own]
    labels = [torch.randint(0, 10, (13,), generator=rng) for _ in own]

    def augment(batch, *, rng):  # draws, as augmentation does
        return batch + 0.1 * torch.randn(batch.shape, generator=rng).to(dtype)

    held = [TensorSamples((images[i], labels[i]), torch.arange(13), augment) for i in range(COPIES)]
    one_by_one = [train(model, weights, own[i], held[i], local, Objective(), rng=seeded(10 + i)) for i in range(COPIES)]
    wide, rngs = WideModel(model, COPIES), [seeded(10 + i) for i in range(COPIES)]
    return one_by_one, train_together(wide, weights, own, held, local, rngs=rngs)


@pytest.mark.parametrize("settings", MODELS, ids=lambda settings: f"{settings.name}-{getattr(settings, 'norm', None)}")
@pytest.mark.parametrize(
    "options",
    [{"epochs": 2}, {"steps": 3, "momentum": 0.9, "weight_decay": 0.01}, {"epochs": 1, "clip_norm": 0.1}],
    ids=lambda options: list(options)[-1],
)
def test_devices_learn_together_what_they_learn_one_by_one(settings, options):
    local = LocalSettings(batch_size=5, learning_rate=0.1, data_fraction=0.9, **options)
    for one, other in zip(*train_both(settings, local, torch.float64), strict=True):
        # float64 rounding (1e-16) of six steps; in float32 a ReLU that flips near zero may be seen in the third digit
        torch.testing.assert_close(other.update, one.update, rtol=1e-7, atol=1e-10)
        torch.testing.assert_close(other.buffers, one.buffers, rtol=1e-7, atol=1e-10)
        assert other.loss == pytest.approx(one.loss, rel=1e-6)  # summed in float32
        assert other.num_samples == one.num_samples


def test_one_step_in_float32_differs_by_rounding_only():
    local = LocalSettings(batch_size=12, steps=1, learning_rate=0.1)
    for one, other in zip(*train_both(MODELS[0], local, torch.float32), strict=True):
        # a sum of thousands of terms is off by 1e-6, and by more where it flips a ReLU; another device is off by 1
        assert (other.update - one.update).norm() < 1e-2 * one.update.norm()


@pytest.mark.parametrize("together", [False, True])
def test_bfloat16_rounds_activations_but_not_weights(together):
    local = LocalSettings(batch_size=12, steps=1, learning_rate=0.1)
    exact = train_both(MODELS[0], local, torch.float32)[together]
    rounded = train_both(MODELS[0], local.changed(precision="bfloat16"), torch.float32)[together]
    for one, other in zip(exact, rounded, strict=True):
        assert other.update.dtype == torch.float32
        error = (other.update - one.update).norm() / one.update.norm()
        assert 1e-4 < error < 0.2  # 8 bits: each number is off by up to 0.4 %, through seven layers and back


def test_batches_have_the_sizes_that_are_told(rng):
    for options in ({"epochs": 2}, {"steps": 5}, {"epochs": 1, "data_fraction": 0.5}):
        settings = LocalSettings(batch_size=4, **options)
        assert [len(batch) for batch in batch_indices(10, settings, rng=rng)] == batch_sizes(10, settings)
