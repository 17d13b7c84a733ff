import pytest
import torch

from aircomp.aggregation.rules import aggregate

VALUES = torch.tensor([[4.0], [1.0], [100.0], [2.0]], dtype=torch.float64)


def of(rule: str, counts: list[int], **options: float) -> float:
    return aggregate(rule, torch.tensor([counts]), VALUES, **options).item()


def test_the_median_of_an_odd_number_is_the_middle_message():
    assert of("coordinate-median", [1, 1, 1, 0]) == 4  # 1, 4, 100
    assert of("coordinate-median", [0, 3, 2, 0]) == 1  # 1, 1, 1, 100, 100


def test_the_median_of_an_even_number_is_the_midpoint_of_the_middle_two():
    assert of("coordinate-median", [1, 1, 1, 1]) == 3  # 1, 2, 4, 100
    assert of("coordinate-median", [0, 2, 2, 0]) == 50.5  # 1, 1, 100, 100


def test_the_trimmed_mean_drops_both_ends_by_value():
    # ten devices: 1, 1, 1, 1, 2, 2, 2, 4, 4, 100 without the first and the last
    assert of("coordinate-trimmed-mean", [2, 4, 1, 3]) == pytest.approx((3 * 1 + 3 * 2 + 2 * 4) / 8, rel=1e-12)


def test_the_trimmed_mean_drops_nobody_below_ten_devices():
    assert of("coordinate-trimmed-mean", [2, 3, 1, 3]) == pytest.approx((8 + 3 + 100 + 6) / 9, rel=1e-12)


def test_a_share_next_to_nothing_trims_to_the_median():
    assert of("coordinate-trimmed-mean", [1, 1, 1, 1], keep=1e-12) == 3


@pytest.mark.parametrize("rule", ["coordinate-median", "coordinate-trimmed-mean"])
def test_one_huge_outlier_of_ten_does_not_matter(rule):
    codewords = torch.tensor([[1.0, 2.0], [1.0, 2.0], [1e9, -1e9]])
    result = aggregate(rule, torch.tensor([[5, 4, 1]]), codewords)
    torch.testing.assert_close(result, torch.tensor([[1.0, 2.0]]), rtol=1e-6, atol=0)  # float32


def test_more_than_half_of_the_devices_are_the_geometric_median_whatever_the_rest():
    codewords = torch.tensor([[1.0, 2.0], [1e9, -1e9], [7.0, 7.0]])
    assert torch.equal(aggregate("geometric-median", torch.tensor([[4, 2, 1]]), codewords), codewords[:1])


def test_the_geometric_median_of_an_equilateral_triangle_is_its_centre():
    angles = torch.arange(3, dtype=torch.float64) * 2 * torch.pi / 3
    corners = torch.stack([angles.cos(), angles.sin()], dim=1) + 5
    centre = aggregate("geometric-median", torch.ones(1, 3, dtype=torch.int64), corners)
    torch.testing.assert_close(centre, torch.full((1, 2), 5.0, dtype=torch.float64), rtol=0, atol=1e-12)


def test_the_geometric_median_has_no_direction_left_to_go():
    rng = torch.Generator().manual_seed(0)
    codewords = torch.randn(8, 4, generator=rng, dtype=torch.float64)
    counts = torch.ones(1, 8, dtype=torch.int64)
    z = aggregate("geometric-median", counts, codewords, iterations=300)
    directions = (codewords - z) / (codewords - z).norm(dim=1, keepdim=True)
    assert directions.sum(dim=0).norm().item() < 1e-8  # eight unit vectors that cancel; at the mean they do not
    at_mean = codewords - codewords.mean(dim=0)
    assert (at_mean / at_mean.norm(dim=1, keepdim=True)).sum(dim=0).norm().item() > 1e-2


def test_the_default_number_of_steps_is_near_the_least_summed_distance():
    rng = torch.Generator().manual_seed(0)
    size = (1.2 * torch.randn(128, 1, generator=rng, dtype=torch.float64)).exp()  # heavy tails, as k-means++ seeds have
    codewords = size * torch.randn(128, 20, generator=rng, dtype=torch.float64)
    indices = torch.randint(128, (200, 10), generator=rng)
    counts = torch.zeros(200, 128, dtype=torch.int64).scatter_add_(1, indices, torch.ones_like(indices))

    def distance(z: torch.Tensor) -> torch.Tensor:
        return (codewords[indices] - z[:, None]).norm(dim=2).sum(dim=1)

    best = distance(aggregate("geometric-median", counts, codewords, iterations=2000))
    gap = distance(aggregate("geometric-median", counts, codewords)) / best - 1
    assert gap.mean().item() < 2e-4
    assert distance(aggregate("mean", counts, codewords)).div(best).sub(1).mean().item() > 1e-2


def test_equal_messages_do_not_divide_by_zero():
    codewords = torch.full((3, 2), 0.3)
    result = aggregate("geometric-median", torch.tensor([[1, 1, 1]]), codewords)
    torch.testing.assert_close(result, codewords[:1], rtol=1e-6, atol=0)  # float32
    assert torch.equal(aggregate("geometric-median", torch.tensor([[1, 1, 1]]), 0 * codewords), torch.zeros(1, 2))
