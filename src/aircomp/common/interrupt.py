"""Ctrl-C at the right moment: never while locks are held or files change. Its message says what was saved.

Python raises KeyboardInterrupt between any two instructions, also right after a lock was taken and before anything is
there to release it. Whoever needs that lock later, if only to shut down, then waits for ever. So Ctrl-C is held back
during every exchange with other threads or processes, and raised afterwards.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


class Stopped(KeyboardInterrupt):
    """Ctrl-C, with a sentence about what was saved and how to go on."""


@contextlib.contextmanager
def deferred() -> Iterator[Callable[[], None]]:
    """Hold Ctrl-C back until the end of the block, or until the function that it is given is called.

    Examples:
        >>> with deferred() as raise_if_stopped:
        ...     raise_if_stopped()  # where nothing is held
    """
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield lambda: None  # nobody is interrupted here
        return
    handler, noted = before, False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal noted
        noted = True

    def raise_if_stopped() -> None:
        nonlocal noted
        if noted:
            noted = False
            handler(signal.SIGINT, None)  # raises, or tells the block around this one

    signal.signal(signal.SIGINT, note)
    try:
        yield raise_if_stopped
    finally:
        signal.signal(signal.SIGINT, before)
    raise_if_stopped()


@contextlib.contextmanager
def unheard_by_children() -> Iterator[None]:
    """See that processes started in the block never get Ctrl-C, from their first instruction on."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def telling(sentence: str) -> Iterator[None]:
    """Add this sentence to a Ctrl-C within the block."""
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped(sentence) from None
