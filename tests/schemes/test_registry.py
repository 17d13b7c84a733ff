"""Schemes by name: facts on the class, one name for one scheme, settings of the scheme's own class."""

import subprocess
import sys
from pathlib import Path

import pytest

from aircomp.common.settings import SettingsError
from aircomp.errors import ConfigError
from aircomp.schemes.base import SchemeContext
from aircomp.schemes.ideal import Ideal
from aircomp.schemes.registry import make_scheme, scheme, scheme_class
from aircomp.schemes.settings import SCHEMES, SchemeSettings, scheme_names
from aircomp.testing import check_uplink

ABOUT = {"sends": "nothing", "needs": "none", "source": "a test"}


@pytest.fixture
def mine(monkeypatch):
    """Enter a scheme, and take it out again after the test."""
    monkeypatch.setattr(SCHEMES, "loaded", dict(SCHEMES.loaded))

    class MySettings(SchemeSettings):
        loudness: float = 1.0

    @scheme("mine", **ABOUT)
    class Mine(Ideal):
        settings_class = MySettings

        def __init__(self, settings, context=None):
            super().__init__(settings, context)
            self.settings = settings

    return Mine


@pytest.mark.parametrize("name", scheme_names())
def test_every_scheme_says_what_it_sends_needs_and_who_invented_it(name):
    facts = scheme_class(name).facts
    assert facts.sends
    assert facts.source
    assert facts.ours == facts.source.startswith("this package")
    assert issubclass(scheme_class(name).settings_class, SchemeSettings)


@pytest.mark.parametrize("name", scheme_names())
def test_a_made_scheme_has_the_name_and_facts_of_its_class(name):
    made = make_scheme(name)
    assert made.name == name
    assert made.offers is scheme_class(name).offers
    assert made.uses_radio == scheme_class(name).uses_radio


def test_a_scheme_of_ones_own_is_found_by_name_with_its_settings(mine):
    assert "mine" in scheme_names()
    made = make_scheme(SchemeSettings(name="mine", loudness=2.0), SchemeContext())
    assert isinstance(made, mine)
    assert made.settings.loudness == 2.0
    check_uplink(lambda: make_scheme("mine"))


def test_a_setting_of_another_scheme_is_refused(mine):
    with pytest.raises(SettingsError, match="loudness"):
        SchemeSettings(name="gamp", loudness=2.0)


def test_a_name_is_given_once(mine):
    with pytest.raises(ConfigError, match=r"two schemes are called 'mine': .*Mine and .*Other; give one another name"):

        @scheme("mine", **ABOUT)
        class Other(Ideal):
            pass


def test_a_name_of_the_package_is_not_taken_by_another_module():
    with pytest.raises(ConfigError, match=r"two schemes are called 'reed': aircomp\.schemes\.reed.* and .*Mine"):

        @scheme("reed", **ABOUT)
        class Mine(Ideal):
            pass


def test_a_scheme_is_imported_when_it_is_asked_for():
    code = "import sys, aircomp; aircomp.make_scheme('baa'); print(*(name for name in sys.modules if 'reed' in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_channel_that_nobody_knows_is_refused():
    with pytest.raises(ConfigError, match="needs 'quiet'; expected words that begin with 'none', 'in phase' or 'any'"):
        scheme("other", **ABOUT | {"needs": "quiet"})


def test_a_name_that_is_nearly_one_is_refused_with_that_one():
    with pytest.raises(ConfigError, match="no scheme 'gammp': did you mean 'gamp'"):
        scheme_class("gammp")


def test_every_scheme_of_another_paper_says_how_it_was_checked_and_against_what():
    for name in scheme_names():
        facts = scheme_class(name).facts
        assert facts.checked in ("verified", "derived", "recalled")
        assert facts.ours or facts.against, name


def test_the_page_of_differences_says_the_same_of_rivals():
    page = (Path(__file__).parents[2] / "docs" / "paper" / "divergences.md").read_text()
    for line in page[page.index("## Rivals") :].splitlines():
        name = line.split("`")[1] if line.startswith("| `") else None
        if name is not None and not scheme_class(name).facts.ours:
            assert f"| {scheme_class(name).facts.checked} | {scheme_class(name).facts.against} |" in line, name
