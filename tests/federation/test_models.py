import pytest
import torch

from aircomp.errors import ConfigError
from aircomp.federation.models import build
from aircomp.federation.settings import ModelSettings


def make(name, channels=3, **settings):
    return build(ModelSettings(name=name, **settings), 10, channels, rng=torch.Generator().manual_seed(0))


def num_params(module):
    return sum(p.numel() for p in module.parameters())


def test_the_papers_resnet_has_exactly_its_parameters():
    assert num_params(make("resnet")) == 269_722


def test_the_papers_vgg_is_within_one_per_cent():
    assert abs(num_params(make("vgg")) / 287_626 - 1) < 0.01


@pytest.mark.parametrize(
    ("name", "size", "channels"), [("resnet", 32, 3), ("vgg", 32, 3), ("digits-cnn", 8, 1), ("mnist-cnn", 28, 1)]
)
@pytest.mark.parametrize("width", [None, 4])
def test_models_map_images_to_logits(name, size, channels, width):
    logits = make(name, channels, width=width)(torch.randn(2, channels, size, size))
    assert logits.shape == (2, 10)
    assert torch.isfinite(logits).all()


def test_group_norm_variants_have_no_buffers():
    for name in ("resnet", "vgg"):
        assert list(make(name, norm="group").buffers()) == []
        assert len(list(make(name).buffers())) > 0


def test_initialisation_follows_the_generator():
    first, again = make("resnet", width=4), make("resnet", width=4)
    other = build(ModelSettings(name="resnet", width=4), 10, 3, rng=torch.Generator().manual_seed(1))
    assert torch.equal(first.conv.weight, again.conv.weight)
    assert not torch.equal(first.conv.weight, other.conv.weight)


def test_an_unknown_model_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'resnet'"):
        make("resnt")
