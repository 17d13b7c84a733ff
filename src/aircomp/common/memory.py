"""Refuse what cannot fit into memory before any of it is allocated, and say what it would need.

Needs are lower bounds: what fits is never refused.
"""

import contextlib
import os
import resource
from collections.abc import Mapping
from pathlib import Path

from aircomp.errors import ConfigError

CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def machine_memory() -> int:
    """Return how many bytes this process may use: the smallest limit of the machine, its container and the process."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # absent, or the word max
            limits.append(int(path.read_text()))
    limits.append(resource.getrlimit(resource.RLIMIT_AS)[0])
    return min(limit for limit in limits if limit > 0)  # -1 is no limit


def check_memory(needs: Mapping[str, int]) -> None:
    """Check that what is needed fits into memory.

    Args:
        needs: Bytes by purpose; each purpose names the settings that decide it.

    Raises:
        ConfigError: If there is not that much memory.
    """
    total, memory = sum(needs.values()), machine_memory()
    if total > memory:
        largest = max(needs, key=lambda what: needs[what])
        raise ConfigError(
            f"this would need at least {_gigabytes(total)} of memory, {_gigabytes(needs[largest])} of it for {largest}, "
            f"but there are {_gigabytes(memory)}; make it smaller"
        )


def _gigabytes(size: int) -> str:
    tenths = size // 10**8
    return f"{tenths / 10:,.1f} GB" if tenths < 10**10 else "more than a billion GB"
