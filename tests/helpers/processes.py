"""Processes that tests start."""

import os
from pathlib import Path


def descendants(root: int | None = None) -> set[int]:
    """Return the living processes that descend from a process, from this one if none is given (on Linux)."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # gone in the meantime
            continue
        if state != "Z":
            parents[int(stat.parent.name)] = int(parent)
    found: set[int] = set()
    new = {os.getpid() if root is None else root}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new}
        found |= new
    return found


def marked(variable: str) -> set[int]:
    """Return the living processes, whoever their parent is, that were started with a variable NAME=VALUE (on Linux)."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if variable.encode() in path.read_bytes().split(b"\0"):
                found.add(int(path.parent.name))
        except OSError:  # gone in the meantime, or another user's
            continue
    return found


def alive(pids: set[int]) -> set[int]:
    """Return those of some processes that have not ended (on Linux)."""

    def lives(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    return {pid for pid in pids if lives(pid)}
