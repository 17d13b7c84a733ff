"""How log lines look: with the logger's name before them, in the command line and in its workers alike."""

import logging
import os

from aircomp.errors import unknown_name

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def log_as_asked() -> None:
    """Write logs to stderr, and those of this package from the level that AIRCOMP_LOG names.

    Raises:
        ConfigError: If there is no such level.
    """
    level = os.environ.get("AIRCOMP_LOG", "").upper()
    if level and level not in LEVELS:
        raise unknown_name("level of AIRCOMP_LOG", level, LEVELS)
    logging.basicConfig(format="%(name)s: %(message)s")
    if level:
        logging.getLogger("aircomp").setLevel(level)  # not what others log
