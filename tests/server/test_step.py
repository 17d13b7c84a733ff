from math import sqrt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aircomp.errors import ConfigError
from aircomp.server.settings import ServerSettings
from aircomp.server.step import initial_state, step

KINDS = ["fedavg", "fedavgm", "fedadam", "fedyogi"]


def trajectory(chosen: ServerSettings, updates: list[float], start: float = 1.0) -> list[float]:
    weights = torch.tensor([start], dtype=torch.float64)
    state = initial_state(chosen, 1, dtype=torch.float64)
    path = []
    for update in updates:
        weights, state = step(weights, torch.tensor([update], dtype=torch.float64), state, chosen)
        path.append(weights.item())
    assert state.step == len(updates)
    return path


def test_fedavg_adds_the_update_times_the_learning_rate():
    assert trajectory(ServerSettings(learning_rate=0.5), [1.0, -2.0, 4.0]) == [1.5, 0.5, 2.5]


def test_the_default_is_the_papers_plain_sum():
    assert trajectory(ServerSettings(), [1.0, -2.0, 4.0]) == [2.0, 0.0, 4.0]


@given(eta=st.floats(1e-3, 250.0), factor=st.sampled_from([0.5, 2.0, 4.0]))
@settings(deadline=None, max_examples=50)
def test_learning_rate_scales_fedavg_linearly(eta, factor):
    update = torch.linspace(-1, 1, 9, dtype=torch.float64)
    origin = torch.zeros(9, dtype=torch.float64)

    def moved(rate: float) -> torch.Tensor:
        chosen = ServerSettings(learning_rate=rate)
        return step(origin, update, initial_state(chosen, 9), chosen)[0]

    # the factors are powers of two, so nothing is rounded
    assert torch.equal(moved(factor * eta), factor * moved(eta))


def test_fedavgm_matches_three_steps_by_hand():
    chosen = ServerSettings(kind="fedavgm", learning_rate=0.5, momentum=0.5)
    # momentum: 1, 0.5 - 2 = -1.5, -0.75 + 4 = 3.25
    assert trajectory(chosen, [1.0, -2.0, 4.0]) == [1.5, 0.75, 2.375]


@pytest.mark.parametrize(
    ("kind", "second_moments"),
    [
        # from 0.25: 0.1875 + 0.25 = 0.4375, then 0.328125, then 0.24609375 + 0.25·0.25 = 0.30859375
        ("fedadam", (0.4375, 0.328125, 0.30859375)),
        # from 0.25: below 1, so + 0.25·1 = 0.5; unchanged by 0; above 0.25, so - 0.25·0.25 = 0.4375
        ("fedyogi", (0.5, 0.5, 0.4375)),
    ],
)
def test_adaptive_steps_match_three_steps_by_hand(kind, second_moments):
    chosen = ServerSettings(kind=kind, learning_rate=2.0, beta1=0.5, beta2=0.75, adaptivity=0.5)
    value, expected = 1.0, []
    for first, second in zip((0.5, 0.25, -0.125), second_moments, strict=True):  # 0.25·0.5 - 0.5·0.5 = -0.125
        value += 2 * first / (sqrt(second) + 0.5)
        expected.append(value)
    # float64, a handful of operations
    assert trajectory(chosen, [1.0, 0.0, -0.5]) == pytest.approx(expected, rel=1e-14)


def test_without_momentum_fedavgm_is_fedavg():
    updates = [0.3, -0.7, 0.1]
    assert trajectory(ServerSettings(kind="fedavgm", momentum=0.0), updates) == trajectory(ServerSettings(), updates)


@given(updates=st.lists(st.floats(-10, 10), min_size=1, max_size=20), beta2=st.floats(0, 0.999))
@settings(deadline=None, max_examples=50)
def test_fedyogi_keeps_its_second_moment_non_negative(updates, beta2):
    chosen = ServerSettings(kind="fedyogi", beta2=beta2)
    weights, state = torch.zeros(1), initial_state(chosen, 1)
    for update in updates:
        weights, state = step(weights, torch.tensor([update]), state, chosen)
        assert state.second is not None
        assert state.second >= 0
    assert torch.isfinite(weights).all()


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_changed_in_place(kind):
    chosen = ServerSettings(kind=kind)
    weights, update, state = torch.ones(3), torch.full((3,), 2.0), initial_state(chosen, 3)
    first = None if state.first is None else state.first.clone()
    second = None if state.second is None else state.second.clone()
    new, _ = step(weights, update, state, chosen)
    assert not torch.equal(new, weights)
    assert torch.equal(weights, torch.ones(3))
    assert torch.equal(update, torch.full((3,), 2.0))
    assert first is None or torch.equal(state.first, first)
    assert second is None or torch.equal(state.second, second)
    assert state.step == 0


@pytest.mark.parametrize(("kind", "first", "second"), [("fedavg", 0, 0), ("fedavgm", 1, 0), ("fedadam", 1, 1)])
def test_state_holds_only_what_the_kind_needs(kind, first, second):
    state = initial_state(ServerSettings(kind=kind), 4)
    assert (state.first is not None, state.second is not None) == (bool(first), bool(second))


@pytest.mark.parametrize("kind", ["fedavgm", "fedadam", "fedyogi"])
def test_a_state_of_another_optimiser_is_refused(kind):
    state = initial_state(ServerSettings(), 2)
    with pytest.raises(ConfigError, match=f"not made for kind = '{kind}'"):
        step(torch.zeros(2), torch.ones(2), state, ServerSettings(kind=kind))


@pytest.mark.parametrize(
    "values", [{"learning_rate": 0.0}, {"momentum": 1.0}, {"beta1": 1.0}, {"beta2": -0.1}, {"adaptivity": 0.0}]
)
def test_settings_out_of_range_are_refused(values):
    with pytest.raises(ConfigError, match=next(iter(values))):
        ServerSettings(**values)
