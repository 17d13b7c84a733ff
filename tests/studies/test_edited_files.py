"""Files of the user's that change between two comparisons in one directory: what they say now is measured."""

import importlib
import sys

import pytest

import aircomp
from aircomp.errors import ConfigError
from aircomp.studies import entrants
from aircomp.studies.arena import Plan, jobs_of

OWN = """
from dataclasses import replace

from aircomp.schemes.ideal import Ideal


class Edited(Ideal):
    name = "edited"

    def decode(self, received, broadcast, private, csi):
        output, memory = super().decode(received, broadcast, private, csi)
        return replace(output, vectors={scale} * output.vectors), memory
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return the file of a scheme, whose module is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path / "edited_scheme.py"
    sys.modules.pop("edited_scheme", None)


def test_an_edited_scheme_is_measured_anew(module, small, tmp_path):
    def error():
        rows = aircomp.arena([small], ["edited_scheme:Edited"], seeds=1, out=tmp_path / "out").rows
        return rows[0]["raw_nmse"]

    module.write_text(OWN.format(scale=1.0))
    assert error() == pytest.approx(0, abs=1e-9)
    module.write_text(OWN.format(scale=0.5))
    with pytest.raises(ConfigError, match=r"edited_scheme.py has changed since it was imported; start Python anew"):
        error()
    importlib.reload(sys.modules["edited_scheme"])
    assert error() == pytest.approx(0.25)
    files = len(list((tmp_path / "out" / "work").glob("arena-round-*.json")))
    assert error() == pytest.approx(0.25)
    assert len(list((tmp_path / "out" / "work").glob("arena-round-*.json"))) == files == 4


def test_a_scheme_without_a_file_is_never_taken_for_another():
    first, second = (type("Typed", (), {"__module__": "nowhere"}) for _ in range(2))
    assert entrants.source_hash(first) == entrants.source_hash(first) != entrants.source_hash(second)


def test_an_edited_preset_is_run_anew(tmp_path):
    preset = tmp_path / "preset.toml"

    def rounds():
        return aircomp.sweep(preset, out=tmp_path / "out")[0]["rounds"]

    preset.write_text('rounds = 1\nuplink = "ideal"\n')
    assert rounds() == 1
    preset.write_text('rounds = 2\nuplink = "ideal"\n')
    assert rounds() == 2
    preset.write_text('# a remark\nrounds = 2\nuplink = "ideal"\n')
    assert rounds() == 2
    assert len(list((tmp_path / "out").glob("simulate-*.json"))) == 2


def test_edited_presets_and_schemes_in_files_have_jobs_of_their_own(small, tmp_path):
    preset, scheme = tmp_path / "preset.toml", tmp_path / "scheme.toml"

    def keys(task):
        wanted, _ = jobs_of(Plan((small,), (str(scheme),), task, (0,), preset=str(preset)))
        return [each.key for _, job in wanted for each in (job, *job.needs)]

    seen = []
    for rounds, length in ((1, 64), (2, 64), (2, 32)):
        preset.write_text(f"rounds = {rounds}\n")
        scheme.write_text(f'[uplink]\nname = "baa"\ncodeword_length = {length}\n')
        seen.append([keys("round"), keys("training")])
    before, other_preset, other_scheme = seen
    assert not set(before[0]) & set(other_preset[0])
    assert not set(before[1]) & set(other_preset[1])
    assert len(set(other_preset[0]) & set(other_scheme[0])) == 1  # the collection, which does not depend on the scheme
    assert not set(other_preset[1]) & set(other_scheme[1])
