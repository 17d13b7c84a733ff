import torch
from torch import nn

from aircomp.data.samples import TensorSamples
from aircomp.federation.evaluate import recompute_statistics


def holding(images):
    return TensorSamples((images, torch.zeros(len(images))), torch.arange(len(images)))


def test_statistics_are_averages_over_batches_none_of_which_is_one_image(digits):
    for number, sizes in ((450, [200, 200, 50]), (201, [201]), (401, [200, 201])):
        images = digits.train_images[:number]
        pixels = images.flatten(1)
        model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(pixels.shape[1]))
        model(torch.randn_like(pixels))  # what was there before does not count
        recompute_statistics(model, holding(images))
        batches = pixels.split(sizes)
        torch.testing.assert_close(model[1].running_mean, torch.stack([b.mean(0) for b in batches]).mean(0))
        torch.testing.assert_close(model[1].running_var, torch.stack([b.var(0) for b in batches]).mean(0))
        assert model[1].momentum == 0.1


class KeptOut(nn.Sequential):
    """Keeps its BatchNorm as it is, as models do that were trained elsewhere."""

    def train(self, mode=True):
        super().train(mode)
        self[1].eval()
        return self


def test_a_norm_that_the_model_keeps_out_of_training_keeps_its_statistics(digits):
    model = KeptOut(nn.Flatten(), nn.BatchNorm1d(64))
    model[1].running_mean.fill_(0.5)
    recompute_statistics(model, holding(digits.train_images[:300]))
    assert (model[1].running_mean == 0.5).all()
    assert (model[1].running_var == 1).all()
