"""How every check begins."""

from collections.abc import Callable
from typing import TypeVar

from aircomp.common.checks import check_callable, check_methods

T = TypeVar("T")


def made(make: Callable[[], T], *methods: str) -> T:
    """Build the part that is to be checked, and see that it has its methods."""
    check_callable("make", make, "that returns what is to be checked")
    part = make()
    check_methods("what make returned", part, *methods)
    return part
