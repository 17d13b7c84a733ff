import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aircomp.data import augment
from aircomp.errors import ShapeError
from plain import augment as plain


@settings(deadline=None, max_examples=50)
@given(
    shape=st.tuples(*[st.integers(1, 5), st.integers(1, 4), st.integers(1, 7), st.integers(1, 7)]),
    padding=st.integers(0, 4),
    dtype=st.sampled_from([torch.uint8, torch.float32]),
    channels_last=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_the_vectorised_crop_equals_the_plain_one(shape, padding, dtype, channels_last, seed):
    rng = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, shape, generator=rng).to(dtype)
    if channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
    top, left = torch.randint(0, 2 * padding + 1, (2, shape[0]), generator=rng)
    mirrored = torch.rand(shape[0], generator=rng) < 0.5

    fast = augment.crop_flip(images, top, left, mirrored, padding=padding)

    assert fast.dtype == dtype
    assert torch.equal(fast, plain.crop_flip(images, top, left, mirrored, padding=padding))


def test_every_shift_and_mirroring_is_equally_likely(rng):
    num_outcomes, expected = 18, 1000  # 3 x 3 shifts, mirrored or not; all look different on distinct pixels
    image = torch.arange(1, 10, dtype=torch.uint8).view(1, 1, 3, 3)

    crops = augment.random_crop_flip(image.expand(num_outcomes * expected, -1, -1, -1), rng=rng, padding=1)

    _, counts = crops.flatten(1).unique(dim=0, return_counts=True)
    assert len(counts) == num_outcomes
    # each count is binomial with deviation sqrt(1000 * 17/18) < 31: five of them
    assert (counts - expected).abs().max() < 155


def test_the_centre_crop_without_mirroring_is_the_image():
    images = torch.rand(3, 2, 5, 4)
    centre = torch.full((3,), 2)
    cropped = augment.crop_flip(images, centre, centre, torch.zeros(3, dtype=torch.bool), padding=2)
    assert torch.equal(cropped, images)


def test_the_result_is_channels_last_and_the_input_is_untouched(rng):
    images = torch.rand(20, 3, 32, 32)
    before = images.clone()
    cropped = augment.random_crop_flip(images, rng=rng)
    assert cropped.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(images, before)
    assert not torch.equal(cropped, images)


def test_the_same_generator_state_gives_the_same_crops():
    images = torch.rand(20, 3, 32, 32)
    first, second = (augment.random_crop_flip(images, rng=torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(first, second)


def test_a_negative_padding_is_refused(rng):
    with pytest.raises(ShapeError, match="padding = -1: expected zero or more"):
        augment.random_crop_flip(torch.rand(1, 1, 2, 2), rng=rng, padding=-1)
