"""Schemes of strangers before they enter the arena: who cheats is found and named, and an honest one has its table."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aircomp.channel.signal import Symbols
from aircomp.cli import main
from aircomp.errors import ConfigError
from aircomp.studies.check import check_entry
from aircomp.testing import check_uplink

EXAMPLES = Path(__file__).parents[2] / "examples"
LEFT = {}
"""What a cheat leaves for itself."""


@pytest.fixture
def honest(monkeypatch):
    """Return the scheme of the example, which a stranger would begin with."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "analog_sum", raising=False)
    from analog_sum import AnalogSum

    return AnalogSum


def cheat(honest, kind):
    class Private(honest):
        def broadcast(self, base_update, memory, *, rng, num_uses=None):
            self.own = base_update
            return super().broadcast(base_update, memory, rng=rng, num_uses=num_uses)

        def encode(self, messages, broadcast, csi, *, rng):
            return super().encode(messages - self.own, broadcast, csi, rng=rng)

    class Spends(honest):
        def encode(self, messages, broadcast, csi, *, rng):
            sent = super().encode(messages, broadcast, csi, rng=rng)
            return replace(sent, signal=Symbols(sent.signal.values, sent.signal.power / 10))

    class Remembers(honest):
        def encode(self, messages, broadcast, csi, *, rng):
            LEFT[float(broadcast.values["scale"])] = messages.mean(dim=0)
            return super().encode(messages, broadcast, csi, rng=rng)

        def decode(self, received, broadcast, private, csi):
            found, memory = super().decode(received, broadcast, private, csi)
            return replace(found, mean=LEFT[float(broadcast.values["scale"])]), memory

    class Draws(honest):
        def encode(self, messages, broadcast, csi, *, rng):
            return super().encode(messages + 1e-3 * torch.randn_like(messages), broadcast, csi, rng=rng)

    return {"private": Private, "spends": Spends, "remembers": Remembers, "draws": Draws}[kind]


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("private", "encode reaches for more than the broadcast .broadcast left self.own on the scheme"),
        ("spends", "devices spend 10 times the power"),
        ("remembers", "decode knows more than what it hears .* it fails: .*Remembers.decode raised KeyError"),
        ("draws", "equal seeds give other signals"),
    ],
)
def test_a_cheat_is_found_and_named(honest, kind, sentence):
    with pytest.raises(AssertionError, match=sentence):
        check_uplink(cheat(honest, kind))


TAKES_MORE = """
from analog_sum import AnalogSum


class TakesMore(AnalogSum):
    def broadcast(self, base_update, memory, *, rng, num_uses=None):
        return super().broadcast(base_update, memory, rng=rng, num_uses=num_uses and 2 * num_uses)


class Wrong(AnalogSum):
    def decode(self, received, broadcast, private, csi):
        found, memory = super().decode(2 * received, broadcast, private, csi)
        return found, {"heard": received.mean()}
"""


@pytest.fixture
def strangers(honest, tmp_path, monkeypatch):
    (tmp_path / "takes_more.py").write_text(TAKES_MORE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "takes_more", raising=False)


def test_the_example_may_enter_with_the_budget_of_the_others(strangers, small, tmp_path):
    found = check_entry("analog_sum:AnalogSum", (small,), 2, tmp_path / "work")
    assert not found.problems
    assert {row["channel_uses"] for row in found.rows} == {19_520.0}
    assert all(len(row["raw_nmse_values"]) == 2 for row in found.rows)
    assert "- conformance and budgets hold" in found.markdown


def test_who_takes_more_uses_than_granted_may_not_enter(strangers, small, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["arena", "--check", "takes_more:TakesMore", "--challenge", small, "--seeds", "1", "--workers", "1"]
    with pytest.raises(SystemExit) as left:
        main([*words, "--out", str(tmp_path / "runs")])
    assert left.value.code == 1
    assert "39,040 channel uses a round, the others 19,520" in capsys.readouterr().out


def test_only_schemes_of_ones_own_are_checked(tmp_path):
    with pytest.raises(ConfigError, match="expected MODULE:CLASS of a scheme of your own"):
        check_entry("analog", (), 1, tmp_path)


def test_a_frozen_challenge_that_was_changed_is_refused(tmp_path):
    from aircomp.studies.study import CHALLENGES

    text = (CHALLENGES.folder / "awgn.toml").read_text(encoding="utf-8")
    path = tmp_path / "awgn.toml"
    path.write_text(text.replace("20.0]", "25.0]"))
    with pytest.raises(ConfigError, match=r"was frozen as .* undo the change, or raise version"):
        CHALLENGES.load(str(path))
    path.write_text(text.replace('"own-update", ', ""))
    assert CHALLENGES.load(str(path)).fingerprint == CHALLENGES.load("awgn").fingerprint


def test_every_challenge_of_the_package_is_frozen():
    from aircomp.studies.study import CHALLENGES

    assert all(CHALLENGES.load(name).frozen for name in CHALLENGES.names())
