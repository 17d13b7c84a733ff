"""Doors to other frameworks, each behind its extra: nothing else in the package imports from here."""

from aircomp.errors import AirCompError


class MissingExtra(AirCompError, ImportError):
    """An optional dependency that is not installed."""


def missing_extra(extra: str) -> MissingExtra:
    """Build the error for an extra that is not installed.

    >>> str(missing_extra("flower"))
    "this needs the extra 'flower', which is not installed: pip install 'aircomp[flower]'"
    """
    return MissingExtra(f"this needs the extra {extra!r}, which is not installed: pip install 'aircomp[{extra}]'")
