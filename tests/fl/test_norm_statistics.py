import torch
from torch import nn

from aircomp.fl.evaluate import recompute_statistics


def test_statistics_are_averages_over_batches_none_of_which_is_one_image(digits):
    for number, sizes in ((450, [200, 200, 50]), (201, [201]), (401, [200, 201])):
        images = digits.train_images[:number]
        pixels = digits.normalize(images).flatten(1)
        model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(pixels.shape[1]))
        model(torch.randn_like(pixels))  # what was there before does not count
        recompute_statistics(model, digits, images)
        batches = pixels.split(sizes)
        torch.testing.assert_close(model[1].running_mean, torch.stack([b.mean(0) for b in batches]).mean(0))
        torch.testing.assert_close(model[1].running_var, torch.stack([b.var(0) for b in batches]).mean(0))
        assert model[1].momentum == 0.1
