"""What pilots tell of the noise, and which of two decodings explains a slot."""

import math

import pytest
import torch

from aircomp.decoders.base import Decoded
from aircomp.decoders.estimate.heard_pilots import hear_pilots, is_less_noise, nearer


def told_of(noise_var, pilots=8, uses=64, seed=0):
    rng = torch.Generator().manual_seed(seed)
    sequence = torch.ones(uses) / math.sqrt(uses)
    heard = 5 * sequence + noise_var**0.5 * torch.randn(pilots, uses, generator=rng)
    return hear_pilots(heard, sequence, torch.arange(pilots))


def decoded(mean, noise_var=1.0):
    mean = torch.as_tensor(mean)
    return Decoded(mean.round().long(), mean, float(mean.sum(1).mean()), torch.full((len(mean),), noise_var))


def test_the_error_of_the_noise_is_as_large_as_pilots_scatter():
    found = [told_of(0.3, seed=seed) for seed in range(200)]
    noise = torch.tensor([each.noise_var for each in found])
    assert found[0].noise_error == pytest.approx(float(noise.std()), rel=0.25)


@pytest.mark.parametrize(("factor", "less"), [(0.5, False), (1.0, False), (1.1, False), (2.0, True)])
def test_noise_well_above_that_of_pilots_is_noticed(factor, less):
    told = told_of(0.3)
    assert is_less_noise((told.noise_var, told.noise_error), factor * told.noise_var) == less


def test_without_pilots_no_noise_is_too_much():
    assert not is_less_noise(None, 1e6)


def test_every_slot_takes_the_counts_that_leave_less_of_it():
    codebook, sent = torch.eye(3), torch.tensor([[2.0, 0.0, 1.0], [0.0, 3.0, 0.0]])
    right, wrong = sent.clone(), torch.ones(2, 3)
    first = decoded(torch.stack([right[0], wrong[1]]), noise_var=5.0)
    second = decoded(torch.stack([wrong[0], right[1]]), noise_var=0.1)
    found = nearer(sent @ codebook, codebook, first, second)
    assert torch.equal(found.mean, sent)
    assert torch.equal(found.counts, sent.long())
    assert torch.equal(found.noise_var, second.noise_var)


@pytest.mark.parametrize("blocks", [1, 3, 500])
def test_the_noise_does_not_depend_on_blocks_that_have_no_pilot(blocks):
    rng, sequence = torch.Generator().manual_seed(0), torch.ones(64) / 8
    heard = 5 * sequence + 0.5 * torch.randn(500, 64, generator=rng)
    size = -(-500 // blocks)
    told = hear_pilots(heard, sequence, torch.arange(6) * 80, [slice(i * size, (i + 1) * size) for i in range(blocks)])
    assert told.noise_var == pytest.approx(0.25, abs=4 * told.noise_error)
    assert told.noise_error == pytest.approx(0.25 * math.sqrt(2 / (6 * 64)), rel=0.15)
