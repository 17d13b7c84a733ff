"""What is printed arrives on any terminal: with another encoding, with nobody who reads, or with none at all."""

import codecs
import os
import select
import sys
import unicodedata
from typing import Any

PLAIN = {"–": "-", "−": "-", "—": "-", "…": ".", "µ": "u", "×": "x", "·": ".", "’": "'", "─": "-", "━": "-", "│": "|"}


def prepare() -> None:
    """Make standard output and error take every character; closed ones swallow what they get."""
    codecs.register_error("aircomp", _replace)
    sys.stdout, sys.stderr = _usable(sys.stdout), _usable(sys.stderr)


def _usable(stream: Any) -> Any:  # Any: whatever stands for the terminal, in tests too
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="aircomp")
    return stream


def _replace(error: UnicodeError) -> tuple[str, int]:
    """Write characters that an encoding lacks as ones that every encoding has, one for one: tables stay straight."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_plain, error.object[error.start : error.end])), error.end


def _plain(character: str) -> str:
    if "\u2500" <= character <= "\u257f":  # the rest of box drawing: corners and crossings
        return PLAIN.get(character, "+")
    base = unicodedata.normalize("NFKD", character)[0]
    return PLAIN.get(character) or (base if base.isascii() else "?")


def reader_left() -> bool:
    """Tell whether standard output is a pipe that nobody reads any more."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # closed, or no file at all
        return False
    return any(event & select.POLLERR for _, event in poll.poll(0))


def flush_or_discard() -> None:
    """Write what is still to be written, or else forget it: there is a mistake to tell of already."""
    try:
        sys.stdout.flush()
    except OSError:
        discard_output()


def discard_output() -> None:
    """Send what is still to be written to standard output nowhere, so that leaving does not fail on it."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return
