import math

import pytest
import torch

from aircomp.device.corrupt import corrupt, corrupted_devices
from aircomp.device.settings import CorruptionSettings
from aircomp.errors import ConfigError

KINDS = ["none", "noise", "flip", "scale", "constant", "silent"]


@pytest.fixture
def messages(rng) -> torch.Tensor:
    return torch.randn(5, 1000, generator=rng) * torch.tensor([1.0, 2.0, 3.0, 0.0, 5.0])[:, None]


BAD = torch.tensor([False, True, False, True, True])


@pytest.mark.parametrize(
    ("num_active", "fraction", "expected"),
    [
        (10, 0.2, 2),
        (7, 0.2, 1),
        (13, 0.2, 3),
        (2, 0.2, 0),
        (5, 0.5, 3),
        (1, 0.5, 1),
        (9, 0.0, 0),
        (9, 1.0, 9),
        (0, 0.2, 0),
    ],
)
def test_the_number_of_corrupted_devices_is_exact_with_halves_up(num_active, fraction, expected, rng):
    bad = corrupted_devices(num_active, CorruptionSettings(kind="noise", fraction=fraction), rng=rng)
    assert bad.shape == (num_active,)
    assert int(bad.sum()) == expected


def test_every_device_is_corrupted_as_often(rng):
    settings = CorruptionSettings(kind="flip")
    turns = sum(corrupted_devices(10, settings, rng=rng).int() for _ in range(1000))
    # two of ten in 1,000 rounds: 200 each, standard deviation sqrt(1000 · 0.2 · 0.8) = 12.6; five of them
    assert (turns - 200).abs().max() < 64


def test_nobody_is_corrupted_when_the_kind_is_none(rng):
    assert not corrupted_devices(10, CorruptionSettings(), rng=rng).any()


@pytest.mark.parametrize("kind", KINDS)
def test_honest_rows_keep_their_bits_and_the_input_is_left_alone(kind, messages, rng):
    original = messages.clone()
    result = corrupt(messages, BAD, CorruptionSettings(kind=kind), rng=rng)
    assert torch.equal(messages, original)
    assert torch.equal(result[~BAD], original[~BAD])
    assert result.dtype == messages.dtype


@pytest.mark.parametrize("kind", ["none", "silent"])
def test_none_and_silent_change_no_row(kind, messages, rng):
    assert torch.equal(corrupt(messages, BAD, CorruptionSettings(kind=kind), rng=rng), messages)


def test_flip_and_scale_are_exact(messages, rng):
    flipped = corrupt(messages, BAD, CorruptionSettings(kind="flip"), rng=rng)
    scaled = corrupt(messages, BAD, CorruptionSettings(kind="scale", factor=-3.0), rng=rng)
    assert torch.equal(flipped[BAD], -messages[BAD])
    assert torch.equal(scaled[BAD], -3.0 * messages[BAD])


@pytest.mark.parametrize("kind", ["noise", "constant"])
def test_noise_and_constant_have_the_norm_of_what_they_replace(kind, messages, rng):
    result = corrupt(messages, BAD, CorruptionSettings(kind=kind), rng=rng)
    # two float32 norms of a thousand entries
    torch.testing.assert_close(result.norm(dim=1), messages.norm(dim=1), rtol=1e-5, atol=0)
    assert not torch.equal(result[1], messages[1])
    longer = corrupt(messages, BAD, CorruptionSettings(kind=kind, length=10.0), rng=rng)
    torch.testing.assert_close(longer[BAD].norm(dim=1), 10 * messages[BAD].norm(dim=1))


def test_constant_rows_hold_one_value(messages, rng):
    result = corrupt(messages, BAD, CorruptionSettings(kind="constant"), rng=rng)
    assert (result[BAD] == result[BAD][:, :1]).all()
    assert (result[BAD] >= 0).all()


def test_noise_knows_nothing_of_the_update_and_differs_between_devices(messages, rng):
    messages[4] = messages[1]
    result = corrupt(messages, BAD, CorruptionSettings(kind="noise"), rng=rng)
    # the cosine of independent directions in 1,000 dimensions has standard deviation 1 / sqrt(1000)
    limit = 5 / math.sqrt(1000)
    assert torch.cosine_similarity(result[1], messages[1], dim=0).abs() < limit
    assert torch.cosine_similarity(result[1], result[4], dim=0).abs() < limit


def test_noise_is_gaussian_in_shape(rng):
    messages = torch.ones(1, 100_000)
    noise = corrupt(messages, torch.tensor([True]), CorruptionSettings(kind="noise"), rng=rng)[0]
    # unit variance because of the norm; the fourth moment of a Gaussian is 3, its estimate has deviation sqrt(96 / 1e5)
    assert float(noise.pow(4).mean()) == pytest.approx(3.0, abs=5 * math.sqrt(96 / 1e5))
    assert abs(float(noise.mean())) < 5 / math.sqrt(1e5)


def test_equal_generators_give_equal_noise(messages):
    settings = CorruptionSettings(kind="noise")
    first, again = (corrupt(messages, BAD, settings, rng=torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(first, again)


def test_nobody_to_corrupt_is_no_error(messages, rng):
    nobody = torch.zeros(5, dtype=torch.bool)
    assert torch.equal(corrupt(messages, nobody, CorruptionSettings(kind="noise"), rng=rng), messages)


@pytest.mark.parametrize("values", [{"fraction": 1.1}, {"fraction": -0.1}, {"kind": "evil"}, {"factor": math.inf}])
def test_settings_out_of_range_are_refused(values):
    with pytest.raises(ConfigError, match=next(iter(values))):
        CorruptionSettings(**values)
