"""Processes for pieces of work of which none needs another that is not done: jobs of a table, rounds of an evaluation."""

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, TypeVar

from aircomp.common.interrupt import deferred, unheard_by_children
from aircomp.engines.local import PATIENCE
from aircomp.engines.worker import begin
from aircomp.errors import AirCompError

T = TypeVar("T")


class Workers:
    """Processes that wait for something to do; spawned, so that none inherits threads or locks."""

    def __init__(self, pool: ProcessPoolExecutor):
        self._pool = pool

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Have a process call a function; function and arguments travel there by pickle."""
        with deferred(), unheard_by_children():
            return self._pool.submit(function, *arguments)

    def finished(self, futures: Collection[Future[T]]) -> set[Future[T]]:
        """Wait a moment, and return those that are done."""
        with deferred() as raise_if_stopped:
            done = wait(futures, timeout=PATIENCE, return_when=FIRST_COMPLETED).done
            raise_if_stopped()
        return done


@contextlib.contextmanager
def workers(number: int) -> Iterator[Workers]:
    """Start so many processes when they are needed, and stop them at the end.

    Raises:
        AirCompError: If one of them dies.
    """
    pool = ProcessPoolExecutor(number, mp_context=get_context("spawn"), initializer=begin, initargs=(os.getpid(),))
    try:
        yield Workers(pool)
    except BrokenProcessPool:
        raise AirCompError(
            "a worker process died, perhaps for lack of memory; use fewer --workers and run the command again"
        ) from None
    except KeyboardInterrupt:
        for process in list(pool._processes.values()):
            process.kill()
        raise
    finally:  # after an error, what is running is not lost
        with deferred():
            pool.shutdown(cancel_futures=True)
