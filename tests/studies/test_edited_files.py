"""Files of the user's that change between two comparisons in one directory: what they say now is measured."""

import importlib
import sys
from pathlib import Path

import pytest

import aircomp
from aircomp.errors import ConfigError
from aircomp.studies.arena import Plan, jobs_of
from aircomp.studies.entrants import find_entrant, load_own
from aircomp.studies.jobs import Job
from aircomp.studies.rounds import arena_job
from aircomp.studies.runs import own_scheme_job
from aircomp.studies.sources import own_files, source_hash

OWN = """
from dataclasses import replace

from aircomp.schemes.ideal import Ideal


class Edited(Ideal):
    name = "edited"

    def decode(self, received, broadcast, private, csi):
        output, memory = super().decode(received, broadcast, private, csi)
        return replace(output, vectors={scale} * output.vectors), memory
"""
IMPORTING = {
    "import statement": ("import helpers\n" + OWN.format(scale="helpers.SCALE"), "helpers.py"),
    "import of a name": ("from helpers import SCALE\n" + OWN.format(scale="SCALE"), "helpers.py"),
    "import in a function": (
        OWN.format(scale="scale()") + "\n\ndef scale():\n    from parts.inner import SCALE\n    return SCALE\n",
        "parts/inner.py",
    ),
    "import by a call": (
        "import importlib\nhelpers = importlib.import_module('helpers')\n" + OWN.format(scale="helpers.SCALE"),
        "helpers.py",
    ),
    "relative import of an import": (
        "from parts import outer\n" + OWN.format(scale="outer.SCALE"),
        "parts/inner.py",
    ),
}
OUTER = "from .inner import SCALE\n"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return the file of a scheme, whose module is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path / "edited_scheme.py"
    forget()
    while str(tmp_path) in sys.path:
        sys.path.remove(str(tmp_path))


def forget():
    for name in [name for name in sys.modules if name.partition(".")[0] in ("edited_scheme", "helpers", "parts")]:
        del sys.modules[name]
    importlib.invalidate_caches()


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


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
    assert source_hash(first) == source_hash(first) != source_hash(second)


@pytest.mark.parametrize("how", list(IMPORTING))
def test_a_scheme_whose_helper_was_edited_is_another_one(how, module, tmp_path):
    text, helper = IMPORTING[how]
    write(module, text)
    write(tmp_path / "parts" / "__init__.py", "")
    write(tmp_path / "parts" / "outer.py", OUTER)

    def known():
        return find_entrant("edited_scheme:Edited").told

    write(tmp_path / helper, "SCALE = 1.0\n")
    before = known()
    assert known() == before
    write(tmp_path / helper, "SCALE = 0.5\n")
    with pytest.raises(ConfigError, match=rf"{helper} has changed since it was imported; start Python anew"):
        known()
    forget()
    assert known() != before


def test_a_scheme_that_was_reloaded_without_its_edited_helper_is_refused(module, tmp_path):
    write(module, "from helpers import SCALE\n" + OWN.format(scale="SCALE"))
    write(tmp_path / "helpers.py", "SCALE = 1.0\n")
    before = find_entrant("edited_scheme:Edited").told
    write(tmp_path / "helpers.py", "SCALE = 0.5\n")
    importlib.reload(sys.modules["edited_scheme"])
    with pytest.raises(ConfigError, match=r"helpers.py has changed since it was imported"):
        _ = find_entrant("edited_scheme:Edited").told
    importlib.reload(sys.modules["helpers"])
    importlib.reload(sys.modules["edited_scheme"])
    assert find_entrant("edited_scheme:Edited").told != before


def test_a_scheme_whose_helper_was_edited_is_measured_anew(module, small, tmp_path):
    def error(scale):
        write(tmp_path / "helpers.py", f"SCALE = {scale}\n")
        forget()
        return aircomp.arena([small], ["edited_scheme:Edited"], seeds=1, out=tmp_path / "out").rows[0]["raw_nmse"]

    write(module, "from helpers import SCALE\n" + OWN.format(scale="SCALE"))
    assert error(1.0) == pytest.approx(0, abs=1e-9)
    assert error(0.5) == pytest.approx(0.25)


def test_a_scheme_of_the_same_files_is_known_wherever_they_lie(module, tmp_path, monkeypatch):
    def hash_in(place, scale):
        write(tmp_path / place / "edited_scheme.py", IMPORTING["relative import of an import"][0])
        write(tmp_path / place / "parts" / "outer.py", OUTER)
        write(tmp_path / place / "parts" / "inner.py", f"SCALE = {scale}\n")
        forget()
        monkeypatch.chdir(tmp_path / place)
        found = find_entrant("edited_scheme:Edited").told["source"]
        sys.path.remove(str(tmp_path / place))
        return found

    assert hash_in("here", 1.0) == hash_in("there", 1.0) != hash_in("beyond", 0.5)


def test_installed_packages_are_no_part_of_a_scheme(module, tmp_path):
    site = tmp_path / "site"
    (site / "parts-1.0.dist-info").mkdir(parents=True)
    write(site / "parts.py", "SCALE = 1.0\n")
    write(tmp_path / "helpers.py", "import json, math, os.path\nimport torch, aircomp.link\nfrom parts import SCALE\n")
    write(module, "from helpers import SCALE\n" + OWN.format(scale="SCALE"))
    sys.path.insert(0, str(site))
    try:
        files = own_files(type(load_own("edited_scheme:Edited")))
    finally:
        sys.path.remove(str(site))
    assert files == {"edited_scheme": module, "helpers": tmp_path / "helpers.py"}


@pytest.mark.parametrize("do", [arena_job, own_scheme_job])
def test_a_worker_refuses_a_scheme_that_was_edited_after_the_run_began(do, module, tmp_path):
    write(module, OWN.format(scale=1.0))
    params = {"preset": "digits", "settings": {}, "own": "edited_scheme:Edited", "source": "that of before"}
    with pytest.raises(ConfigError, match="files of --scheme edited_scheme:Edited have changed since the run began"):
        do(Job("arena", params), tmp_path)


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
    preset, scheme, challenge = (tmp_path / f"{name}.toml" for name in ("preset", "scheme", "challenge"))
    challenge.write_text(f'preset = "{preset}"\n{Path(small).read_text()}')

    def keys(task):
        wanted, _ = jobs_of(Plan((str(challenge),), (str(scheme),), task, (0,)))
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
