import torch

from aircomp.common.rng import derive_seed, generator


def test_equal_keys_give_equal_draws_and_different_keys_different_ones():
    draws = {
        torch.randn(4, generator=generator(*key)).numpy().tobytes()
        for key in [(0, "local", 1, 2), (0, "local", 2, 1), (1, "local", 1, 2), (0, "noise", 1, 2), (0, "local", 1, 2)]
    }
    assert len(draws) == 4


def test_seeds_are_the_same_on_every_machine():
    assert derive_seed(0, "local", 3, 7) == 5028844702493117850
