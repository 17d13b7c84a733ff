"""Where the package keeps what it can make or fetch again."""

import os
from pathlib import Path


def user_cache() -> Path:
    """Return the package's part of the user's cache directory.

    Raises:
        RuntimeError: If there is no home directory.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # the XDG specification: a relative path counts as not set
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "aircomp"
