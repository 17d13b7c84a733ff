"""Every command line that a page shows can be parsed: names, flags and values are those of today."""

import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from aircomp.cli import COMMANDS

ROOT = Path(__file__).parents[2]
FOUND = r"(?<![\w.-])aircomp (\w[\w-]*.*?)(?:\s#|;|$)"
WORDS = {"NAME": "gamp", "HEAD:6379": "localhost:6379", "HOST:PORT": "localhost:6379", "cuda": "cpu"}
"""What stands for something else; a GPU is not a matter of the flag."""


class ParsedError(Exception):
    """A command was understood."""


def pages():
    """Pages with commands, but the made ones and the dated notebook, which tells what was run at its time."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    made = ("docs/reference/cli.md", "docs/reference/presets.md", "docs/notebook/", "docs/results/", "docs/arena/")
    return [page for page in found if not page.relative_to(ROOT).as_posix().startswith(made)]


def commands(page):
    """The commands of a page's shell blocks, as lists of words."""
    blocks = re.findall(r"^```(?:sh|bash)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    for line in "".join(blocks).replace("\\\n", " ").splitlines():
        for text in re.findall(FOUND, line):
            if not {">", "|", "--tyro-print-completion"} & set(text.split()):
                words = [WORDS.get(word, word) for word in shlex.split(text)]
                yield [re.sub(r"\$snr\b", "0", word) for word in words if word != "$MANY"]


def check(words, monkeypatch):
    """Parse a command and stop before it runs."""
    assert words[0] in COMMANDS, words[0]
    module = import_module(f"aircomp.cli.{words[0]}")
    for name in ("parse", "parse_settings"):
        if hasattr(module, name):
            monkeypatch.setattr(module, name, stopped(getattr(module, name)))
    with pytest.raises(ParsedError):
        module.run(words[1:])


def stopped(parse):
    def parse_alone(*args, **options):
        parse(*args, **options)
        raise ParsedError

    return parse_alone


@pytest.mark.seconds
@pytest.mark.parametrize("page", [page for page in pages() if any(commands(page))], ids=lambda path: path.stem)
def test_every_command_of_a_page_is_understood(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    for words in commands(page):
        with monkeypatch.context() as patch:
            check(words, patch)


def test_a_flag_of_yesterday_is_found(monkeypatch):
    with pytest.raises(Exception, match="no-such-flag"):
        check(["simulate", "digits", "--no-such-flag", "1"], monkeypatch)
