"""Constellations of ChannelComp against the semidefinite relaxation of their optimisation."""

import itertools

import numpy as np
import pytest
import torch

from aircomp.encode.constellation import FUNCTIONS, constellation, differences
from helpers.constellations import least_distance


def relaxed(levels, devices, function, rounds=6000):
    """A bound on the squared least distance over change, from the dual of the semidefinite relaxation.

    Points as a matrix X = xxᵀ of any rank, centred, of trace q: for all weights w of the conditions that sum to one, no X has
    more than q·λ_max(Σ w d dᵀ/r²). Weights by multiplicative updates towards the conditions that the best X breaks.
    """
    apart, change = (found.double().numpy() for found in differences(levels, devices, function))
    rows = apart / change[:, None]
    log_weight, total, bound = np.zeros(len(rows)), np.zeros((levels, levels)), np.inf
    for step in range(rounds):
        weight = np.exp(log_weight - log_weight.max())
        weight /= weight.sum()
        values, vectors = np.linalg.eigh((rows * weight[:, None]).T @ rows)
        bound = min(bound, levels * values[-1])
        total += levels * np.outer(vectors[:, -1], vectors[:, -1])
        reached = np.einsum("ni,ij,nj->n", rows, total / (step + 1), rows)
        log_weight = -8 * np.sqrt(np.log(len(rows)) * (step + 1)) * reached / reached.mean() / 8
    return bound


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("levels", "devices", "function", "share"),
    [(3, 4, "type", 0.98), (4, 3, "mean", 0.98), (4, 3, "maximum", 0.6), (4, 3, "median", 0.6), (4, 3, "product", 0.5)],
)
def test_points_reach_most_of_what_the_relaxation_allows(levels, devices, function, share):
    """A simplex and equally spaced points are best; other functions want more axes than the plane has."""
    reached = float(least_distance(constellation(levels, devices, function), devices, function)) ** 2
    bound = relaxed(levels, devices, function)
    assert share * bound <= reached <= bound * (1 + 1e-3)


@pytest.mark.parametrize("function", ["maximum", "median"])
def test_points_for_a_function_keep_its_values_further_apart_than_points_for_the_type(function):
    own, whole = (float(least_distance(constellation(4, 4, f), 4, function)) for f in (function, "type"))
    assert own > 1.02 * whole


@pytest.mark.parametrize("levels", [2, 5, 8])
def test_points_for_the_mean_lie_in_equal_steps_on_a_line_for_any_number_of_devices(levels):
    points = constellation(levels, 64, "mean")
    assert points.shape == (levels, 1)
    torch.testing.assert_close(points.diff(dim=0), (points[1:2] - points[:1]).expand(levels - 1, 1))
    assert float(points.square().mean()) == pytest.approx(1)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("devices", [3, 4])
def test_functions_of_types_are_those_of_all_inputs(function, devices):
    levels = torch.linspace(-1, 1, 3, dtype=torch.float64)
    inputs = torch.tensor(list(itertools.product(range(3), repeat=devices)))
    counts = torch.stack([(inputs == level).sum(dim=1) for level in range(3)], dim=1).double()
    values = levels[inputs]
    expected = {
        "mean": values.mean(dim=1),
        "maximum": values.amax(dim=1),
        "median": torch.from_numpy(np.median(values.numpy(), axis=1)),
        "product": values.prod(dim=1),
    }[function]
    torch.testing.assert_close(FUNCTIONS[function](counts), expected)


def test_differences_of_types_are_those_of_all_pairs_with_the_largest_change():
    apart, change = differences(3, 3, "maximum")
    inputs = list(itertools.product(range(3), repeat=3))
    largest = {}
    for one, other in itertools.product(inputs, repeat=2):
        moved = tuple(one.count(level) - other.count(level) for level in range(3))
        largest[moved] = max(largest.get(moved, 0.0), abs(max(one) - max(other)))
    found = {tuple(d): float(c) for d, c in zip(apart.tolist(), change.tolist(), strict=True)}
    expected = {d: c for d, c in largest.items() if c > 0}
    assert len(expected) == 2 * len(found)
    assert all(expected[d] == pytest.approx(c) for d, c in found.items())
