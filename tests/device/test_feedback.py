import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aircomp.device.feedback import add_memory, feedback_ratio, remember
from aircomp.device.settings import FeedbackSettings
from aircomp.errors import ConfigError

KINDS = ["off", "plain", "decayed", "clipped"]


def coarse(message: torch.Tensor) -> torch.Tensor:
    """Stand in for the quantiser: round to multiples of a half."""
    return (2 * message).round() / 2


def run(updates: torch.Tensor, delivered: list[bool], chosen: FeedbackSettings):
    """Send all updates one after the other; return the sum of what got through and the last memory."""
    memory, total = None, torch.zeros_like(updates[0])
    for update, through in zip(updates, delivered, strict=True):
        message = add_memory(update, memory, chosen)
        reconstruction = coarse(message)
        if through:
            total = total + reconstruction
        memory = remember(message, reconstruction if through else 0 * message, chosen, update_norm=float(update.norm()))
    return total, memory


@given(delivered=st.lists(st.booleans(), min_size=1, max_size=12), seed=st.integers(0, 999))
@settings(deadline=None, max_examples=50)
def test_plain_feedback_telescopes(delivered, seed):
    rng = torch.Generator().manual_seed(seed)
    updates = torch.randn(len(delivered), 7, generator=rng, dtype=torch.float64)
    total, memory = run(updates, delivered, FeedbackSettings())
    assert memory is not None
    # a dozen float64 additions of numbers of order one
    torch.testing.assert_close(total + memory, updates.sum(dim=0), rtol=0, atol=1e-12)


def test_the_first_message_is_the_update(rng):
    update = torch.randn(5, generator=rng)
    for kind in KINDS:
        assert torch.equal(add_memory(update, None, FeedbackSettings(kind=kind)), update)


def test_off_neither_adds_nor_keeps_anything(rng):
    off = FeedbackSettings(kind="off")
    update = torch.randn(5, generator=rng)
    assert torch.equal(add_memory(update, torch.ones(5), off), update)
    for sent in (coarse(update), torch.zeros_like(update)):
        assert remember(update, sent, off, update_norm=1.0) is None


@pytest.mark.parametrize("kind", ["plain", "decayed", "clipped"])
def test_a_device_that_did_not_get_through_keeps_its_whole_message(kind, rng):
    message = torch.randn(5, generator=rng)
    chosen = FeedbackSettings(kind=kind)
    memory = remember(message, torch.zeros_like(message), chosen, update_norm=float(message.norm()))
    assert memory is not None
    assert torch.equal(memory, message)
    message += 1  # the memory is its own tensor
    assert not torch.equal(memory, message)


def test_decayed_memory_fades_each_time_it_is_used():
    chosen = FeedbackSettings(kind="decayed", decay=0.5)
    nothing = torch.zeros(2)
    memory = torch.tensor([8.0, -8.0])
    for expected in (4.0, 2.0, 1.0):
        message = add_memory(nothing, memory, chosen)
        memory = remember(message, nothing, chosen, update_norm=0.0)
        assert memory is not None
        assert memory.tolist() == [expected, -expected]


def test_a_decay_of_one_is_plain(rng):
    updates = torch.randn(6, 4, generator=rng)
    plain = run(updates, [True] * 6, FeedbackSettings())
    decayed = run(updates, [True] * 6, FeedbackSettings(kind="decayed", decay=1.0))
    assert all(torch.equal(a, b) for a, b in zip(plain, decayed, strict=True))


def test_clipped_memory_is_scaled_to_the_limit_in_its_own_direction():
    chosen = FeedbackSettings(kind="clipped", max_ratio=5.0)
    memory = remember(torch.tensor([60.0, 80.0]), torch.zeros(2), chosen, update_norm=2.0)
    # norm 100, limit 10; one float32 multiplication
    torch.testing.assert_close(memory, torch.tensor([6.0, 8.0]), rtol=1e-6, atol=0)


def test_clipped_memory_within_the_limit_keeps_its_bits(rng):
    message = torch.randn(9, generator=rng)
    clipped = remember(message, coarse(message), FeedbackSettings(kind="clipped"), update_norm=10.0)
    plain = remember(message, coarse(message), FeedbackSettings(), update_norm=10.0)
    assert clipped is not None
    assert plain is not None
    assert torch.equal(clipped, plain)


@given(delivered=st.lists(st.booleans(), min_size=1, max_size=30), seed=st.integers(0, 999))
@settings(deadline=None, max_examples=50)
def test_clipped_memory_never_exceeds_the_ratio(delivered, seed):
    rng = torch.Generator().manual_seed(seed)
    chosen = FeedbackSettings(kind="clipped", max_ratio=0.5)
    memory = None
    for through in delivered:
        update = torch.randn(6, generator=rng)
        message = add_memory(update, memory, chosen)
        memory = remember(
            message, coarse(message) if through else 0 * message, chosen, update_norm=float(update.norm())
        )
        assert feedback_ratio(memory, float(update.norm())) <= 0.5 * (1 + 1e-5)  # float32 norms


def test_a_zero_update_clears_a_clipped_memory_without_dividing_by_zero():
    chosen = FeedbackSettings(kind="clipped")
    for message in (torch.ones(3), torch.zeros(3)):
        memory = remember(message, torch.zeros(3), chosen, update_norm=0.0)
        assert memory is not None
        assert memory.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_are_left_alone(kind, rng):
    update, memory = torch.randn(4, generator=rng), 100 * torch.randn(4, generator=rng)
    before = update.clone(), memory.clone()
    chosen = FeedbackSettings(kind=kind)
    message = add_memory(update, memory, chosen)
    remember(message, coarse(message), chosen, update_norm=0.1)
    assert torch.equal(update, before[0])
    assert torch.equal(memory, before[1])


def test_ratio_is_the_quotient_of_the_norms():
    assert feedback_ratio(torch.tensor([3.0, 4.0]), 2.0) == 2.5
    assert feedback_ratio(None, 1.5) == 0.0
    assert feedback_ratio(torch.zeros(2), 0.0) == 0.0


def test_ratio_to_a_zero_update_is_huge_yet_finite():
    ratio = feedback_ratio(torch.ones(4), 0.0)
    assert math.isfinite(ratio)
    assert ratio > 1e6


@pytest.mark.parametrize("values", [{"decay": 1.1}, {"decay": -0.1}, {"max_ratio": -1.0}, {"kind": "on"}])
def test_settings_out_of_range_are_refused(values):
    with pytest.raises(ConfigError, match=next(iter(values))):
        FeedbackSettings(**values)
