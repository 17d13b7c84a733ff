import math
from pathlib import Path

import pytest
import torch

from aircomp.common.rng import generator
from aircomp.errors import ArtefactError, ConfigError
from aircomp.federation.participation import active_devices, check_participation
from aircomp.federation.settings import ParticipationSettings


def rounds(settings: ParticipationSettings, total: int, number: int) -> list[tuple[int, ...]]:
    return [active_devices(settings, total, t, rng=generator(0, "participation", t)) for t in range(number)]


@pytest.fixture
def trace(tmp_path):
    def write(text: str) -> ParticipationSettings:
        path = tmp_path / "trace.txt"
        path.write_text(text)
        return ParticipationSettings(kind="trace", trace=path)

    return write


def test_uniform_numbers_cover_the_range_with_both_ends():
    numbers = [len(ids) for ids in rounds(ParticipationSettings(), 40, 700)]
    assert set(numbers) == set(range(7, 14))
    # 700 draws over seven numbers: 100 each, standard deviation sqrt(700 · 1/7 · 6/7) = 9.3; five of them
    assert all(abs(numbers.count(n) - 100) < 47 for n in range(7, 14))


@pytest.mark.parametrize("kind", ["uniform", "fixed", "bernoulli"])
def test_ids_are_ascending_distinct_and_in_range(kind):
    for ids in rounds(ParticipationSettings(kind=kind), 40, 50):
        assert list(ids) == sorted(set(ids))
        assert all(0 <= k < 40 for k in ids)


def test_fixed_number_is_kept_and_devices_take_turns():
    chosen = rounds(ParticipationSettings(kind="fixed", number=10), 40, 400)
    assert {len(ids) for ids in chosen} == {10}
    turns = torch.bincount(torch.tensor(chosen).flatten(), minlength=40)
    # each device is in a quarter of 400 rounds: 100, standard deviation sqrt(400 · 1/4 · 3/4) = 8.7; five of them
    assert (turns - 100).abs().max() < 44


def test_bernoulli_devices_are_active_with_their_probability():
    active = sum(len(ids) for ids in rounds(ParticipationSettings(kind="bernoulli", probability=0.1), 1000, 20))
    assert abs(active - 2000) < 5 * math.sqrt(20_000 * 0.1 * 0.9)


def test_bernoulli_ends_are_nobody_and_everybody():
    assert rounds(ParticipationSettings(kind="bernoulli", probability=0.0), 30, 1) == [()]
    assert rounds(ParticipationSettings(kind="bernoulli", probability=1.0), 30, 1) == [tuple(range(30))]


def test_all_devices_can_be_active():
    assert rounds(ParticipationSettings(low=13, high=13), 13, 1) == [tuple(range(13))]


@pytest.mark.parametrize("kind", ["uniform", "fixed", "bernoulli"])
def test_equal_generators_choose_equal_devices(kind):
    settings = ParticipationSettings(kind=kind)
    assert rounds(settings, 40, 5) == rounds(settings, 40, 5)
    assert len(set(rounds(settings, 40, 5))) == 5


def test_trace_is_followed_line_by_line_and_starts_over(trace):
    settings = trace("3 1\n\n 0   2 \n")
    check_participation(settings, 4)
    assert rounds(settings, 4, 7) == [(1, 3), (), (0, 2), (1, 3), (), (0, 2), (1, 3)]


def test_trace_does_not_touch_the_generator(trace):
    rng = torch.Generator().manual_seed(0)
    before = rng.get_state()
    active_devices(trace("1\n"), 4, 0, rng=rng)
    assert torch.equal(rng.get_state(), before)


@pytest.mark.parametrize("word", ["4", "-1", "x", "1.0", "1_0", "²", "1,2", "1" * 5000])
def test_a_word_that_is_no_device_is_refused_with_its_line(trace, word, rng):
    settings = trace(f"0\n1 {word}\n")
    assert active_devices(settings, 4, 0, rng=rng) == (0,)
    with pytest.raises(ConfigError, match=r"line 2 of the trace .* expected device ids from 0 to 3"):
        active_devices(settings, 4, 1, rng=rng)
    with pytest.raises(ConfigError, match="line 2"):
        check_participation(settings, 4)


def test_a_device_named_twice_is_refused(trace, rng):
    with pytest.raises(ConfigError, match=r"line 1 .* names a device twice"):
        active_devices(trace("2 1 2\n"), 4, 0, rng=rng)


def test_an_empty_trace_is_refused(trace, rng):
    with pytest.raises(ConfigError, match="is empty"):
        active_devices(trace(""), 4, 0, rng=rng)


def test_a_missing_trace_is_named(rng, tmp_path):
    settings = ParticipationSettings(kind="trace", trace=tmp_path / "nowhere.txt")
    with pytest.raises(ArtefactError, match=r"nowhere\.txt does not exist"):
        active_devices(settings, 4, 0, rng=rng)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", None], ids=["binary", "directory"])
def test_a_trace_that_is_not_text_is_named(rng, tmp_path: Path, content):
    path = tmp_path / "trace.txt"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(ArtefactError, match=r"the trace .*(not readable text|is a directory)"):
        active_devices(ParticipationSettings(kind="trace", trace=path), 4, 0, rng=rng)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        (ParticipationSettings(), "high = 13 active devices, but there are only 12"),
        (ParticipationSettings(kind="fixed", number=13), "number = 13 active devices, but there are only 12"),
    ],
)
def test_more_active_devices_than_there_are_is_refused(settings, match, rng):
    with pytest.raises(ConfigError, match=match):
        active_devices(settings, 12, 0, rng=rng)
    with pytest.raises(ConfigError, match=match):
        check_participation(settings, 12)


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"low": 9, "high": 8}, "low = 9 is above high = 8"),
        ({"low": -1}, "low = -1"),
        ({"kind": "fixed", "number": -1}, "number = -1"),
        ({"kind": "bernoulli", "probability": 1.5}, "probability = 1.5"),
        ({"kind": "trace"}, "field required"),
        ({"kind": "everyone"}, "kind = 'everyone'"),
    ],
)
def test_settings_that_cannot_be_are_refused(values, match):
    with pytest.raises(ConfigError, match=match):
        ParticipationSettings(**values)
