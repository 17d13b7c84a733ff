import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aircomp.encode.schedule import choose_repeat, schedule
from aircomp.errors import ConfigError
from aircomp.quantize.fragment import put_slots, take_slots
from aircomp.schemes.digital.link import estimate_snr_db
from aircomp.schemes.digital.repetition import combine
from aircomp.schemes.settings import SchemeSettings

energies = st.lists(st.integers(0, 4), min_size=1, max_size=40)  # few values: many ties


def plain_schedule(energy: list[float], repeat: int) -> list[int]:
    """Pick one slot after the other, always the first of the most energetic that are left."""
    left, asked = list(range(len(energy))), []
    while (len(asked) + 1) * repeat <= len(energy):
        best = max(left, key=lambda slot: (energy[slot], -slot))
        left.remove(best)
        asked.append(best)
    return sorted(asked)


@given(energy=energies, repeat=st.integers(2, 8))
@settings(deadline=None, max_examples=50)
def test_the_asked_slots_are_those_that_a_plain_search_finds(energy, repeat):
    repeat = min(repeat, len(energy))
    asked = schedule(torch.tensor(energy, dtype=torch.float32), repeat)
    assert (asked is None) == (repeat == 1)
    if asked is not None:
        assert asked.tolist() == plain_schedule(energy, repeat)


@given(energy=energies, repeat=st.integers(2, 8))
@settings(deadline=None, max_examples=50)
def test_asked_slots_are_unique_and_ascending_and_use_up_the_air_but_never_more(energy, repeat):
    if repeat > len(energy):
        return
    asked = schedule(torch.tensor(energy, dtype=torch.float32), repeat)
    assert asked is not None
    assert asked.tolist() == sorted(set(asked.tolist()))
    assert len(energy) - repeat < len(asked) * repeat <= len(energy)


def test_no_slot_can_be_sent_more_often_than_there_are_slots():
    assert schedule(torch.ones(3), 1) is None
    assert schedule(torch.ones(3), 3).tolist() == [0]
    with pytest.raises(ConfigError, match=r"repeat = 4: expected at least 1 and at most the 3 slots"):
        schedule(torch.ones(3), 4)


@given(seed=st.integers(0, 999), repeat=st.integers(2, 5), devices=st.integers(0, 2))
@settings(deadline=None, max_examples=50)
def test_placing_undoes_selecting_and_leaves_zeros(seed, repeat, devices):
    rng = torch.Generator().manual_seed(seed)
    rows = torch.randn(*[2] * devices, 11, 3, generator=rng)
    asked = schedule(torch.rand(11, generator=rng), repeat)
    placed = put_slots(take_slots(rows, asked), asked, 11)
    others = [slot for slot in range(11) if slot not in asked.tolist()]
    assert torch.equal(take_slots(placed, asked), take_slots(rows, asked))
    assert not placed[..., others, :].any()
    assert put_slots(rows, None, 11) is rows
    assert take_slots(rows, None) is rows


def test_combining_averages_the_copies_of_each_slot_one_by_one(rng):
    received = torch.randn(6, 5, generator=rng, dtype=torch.float64)
    combined, noise_var = combine(received, 3)
    variances = []
    for slot in range(2):
        for use in range(5):
            copies = [float(received[3 * slot + copy, use]) for copy in range(3)]
            mean = sum(copies) / 3
            variances.append(sum((c - mean) ** 2 for c in copies) / 2)  # unbiased: two degrees of freedom
            assert float(combined[slot, use]) == pytest.approx(mean, abs=1e-14)
    # left in an average of three; float64 sums of a few numbers of order one
    assert noise_var == pytest.approx(sum(variances) / len(variances) / 3, rel=1e-12)


def test_a_single_copy_is_the_received_signal_itself_and_tells_no_noise(rng):
    received = torch.randn(6, 5, generator=rng)
    combined, noise_var = combine(received, 1)
    assert combined is received
    assert noise_var is None


@pytest.mark.parametrize("repeat", [2, 4, 8])
def test_copies_tell_their_noise_whatever_the_signal(repeat, rng):
    signal = (100 * torch.randn(200, 64, generator=rng)).repeat_interleave(repeat, dim=0)
    _, noise_var = combine(signal + 0.5 * torch.randn(signal.shape, generator=rng), repeat)
    freedom = 200 * 64 * (repeat - 1)  # a variance estimate has relative deviation sqrt(2/freedom); four of them
    assert noise_var == pytest.approx(0.25 / repeat, rel=4 * math.sqrt(2 / freedom))


@pytest.mark.parametrize("repeat", [1, 2, 8])
@pytest.mark.parametrize("snr_db", [-10.0, 0.0, 10.0])
def test_the_estimated_snr_is_that_of_one_use_however_often_slots_are_sent(repeat, snr_db, rng):
    noise_var = 10 ** (-snr_db / 10)
    signal = torch.randn(500, 64, generator=rng, dtype=torch.float64)
    sent = signal.repeat_interleave(repeat, dim=0)
    received = sent + math.sqrt(noise_var) * torch.randn(sent.shape, generator=rng, dtype=torch.float64)
    combined, measured = combine(received, repeat)
    found = estimate_snr_db(combined, noise_var if measured is None else measured, repeat)
    # power of 32,000 entries: relative deviation sqrt(2/32000)·(1 + 1/SNR) at most, four of them in decibels
    assert found == pytest.approx(snr_db, abs=4.35 * 4 * math.sqrt(2 / 32_000) * (1 + noise_var))


def test_the_estimated_snr_is_finite_without_noise_and_without_signal():
    assert estimate_snr_db(torch.ones(2, 3), 0.0, 1) == 80.0
    assert estimate_snr_db(torch.zeros(2, 3), 0.0, 2) == -40.0
    assert estimate_snr_db(torch.ones(2, 3), 2.0, 1) == -40.0


@given(low=st.floats(-40, 80), high=st.floats(-40, 80), energy=st.lists(st.floats(0, 1e6), min_size=1, max_size=60))
@settings(deadline=None, max_examples=200)
def test_auto_never_repeats_more_at_a_higher_snr_and_never_beyond_the_slots(low, high, energy):
    auto, own = "auto", torch.tensor(energy, dtype=torch.float64)
    low, high = sorted((low, high))
    assert len(energy) >= choose_repeat(auto, low, own) >= choose_repeat(auto, high, own) >= 1


def test_auto_weighs_what_is_not_asked_for_against_what_is_not_decoded():
    auto = "auto"
    shapes = {"flat": torch.ones(400), "digits": torch.linspace(1, 0, 400) ** 2, "heavy": torch.logspace(0, -8, 400)}
    chosen = {
        name: [choose_repeat(auto, snr_db, energy) for snr_db in (-12.0, -5.0, 0.0, 4.0, 10.0, 40.0)]
        for name, energy in shapes.items()
    }
    assert chosen["flat"] == [4, 1, 1, 1, 1, 1]  # half of the slots are half of the update
    assert chosen["digits"] == [4, 2, 2, 1, 1, 1]
    assert chosen["heavy"] == [4, 4, 4, 4, 1, 1]  # three quarters of the slots hold a hundredth


def test_auto_sends_once_until_it_knows_the_snr_and_where_there_is_nothing_to_send():
    assert choose_repeat("auto", None, torch.ones(100)) == 1
    assert choose_repeat("auto", -20.0, torch.zeros(100)) == 1


def test_a_given_number_is_kept_whatever_the_snr():
    assert [choose_repeat(2, snr, torch.ones(100)) for snr in (None, -20.0, 20.0)] == [2, 2, 2]


@pytest.mark.parametrize("repeat", [0, -1, "often", 1.5])
def test_other_numbers_of_copies_are_refused(repeat):
    with pytest.raises(ConfigError, match="repeat"):
        SchemeSettings(name="gamp", repeat=repeat)
