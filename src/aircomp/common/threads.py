"""Cores are used by splitting slots, not kernels: each thread takes whole chunks, and every kernel runs on one of them.

    decode ── whole_cores ──┬── thread 1: chunk 0, chunk 2, …   each kernel on one thread
                            └── thread 2: chunk 1, chunk 3, …

Kernels of these sizes are too short to be split: two threads inside them were slower than one, and three times slower beside
a busy neighbour, for whom both wait at the end of every kernel. What a chunk gives does not depend on who computes it, so
results have the same bits for any number of threads, which is torch's own (`torch.get_num_threads()`).
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any, TypeVar

import torch

T = TypeVar("T")


class _Crew:
    """Threads that are started when the first chunks need them."""

    def __init__(self, size: int):
        self.size = size
        self._pool: ThreadPoolExecutor | None = None

    def map(self, function: Callable[..., T], *items: Sequence[Any]) -> list[T]:
        if self.size == 1 or len(items[0]) < 2 or torch.is_grad_enabled():  # autograd's graph is one thread's
            return list(map(function, *items))
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.size - 1, initializer=_start)
        turns, results = iter(range(len(items[0]))), list[Any]([None] * len(items[0]))
        inference = torch.is_inference_mode_enabled()

        def work() -> None:
            try:
                with torch.inference_mode() if inference else nullcontext():  # each thread has a mode of its own
                    for turn in turns:
                        results[turn] = function(*(item[turn] for item in items))
            except BaseException:
                deque(turns, maxlen=0)  # nobody takes another turn
                raise

        # who asks works too: a thread less to wake, and none that waits on a core where another could run
        others = [self._pool.submit(work) for _ in range(min(self.size, len(results)) - 1)]
        work()
        for other in others:
            other.result()
        return results

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


_crew: ContextVar[_Crew | None] = ContextVar("crew", default=None)


def _start() -> None:
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread, as each worker does: sums come out in the same order, so with the same bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def whole_cores() -> Iterator[None]:
    """Keep kernels on one thread each and give torch's threads to `spread`.

    Nothing is computed in half precision meanwhile, whatever a caller's `torch.autocast` says: that holds for one thread, so
    results would depend on who computes what.
    """
    if _crew.get() is not None:
        yield
        return
    crew = _Crew(torch.get_num_threads())
    token = _crew.set(crew)
    try:
        with one_thread(), torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            try:
                yield
            finally:
                crew.close()
    finally:
        _crew.reset(token)


def spread(function: Callable[..., T], *items: Sequence[Any]) -> list[T]:
    """Return the function of every item, or of every item of several lists, in their order; the threads share the items."""
    with whole_cores():
        crew = _crew.get()
        assert crew is not None
        return crew.map(function, *items)


def even_slices(count: int, most: int) -> list[slice]:
    """Cut a round into equal chunks of at most so many slots; beyond one they are a multiple of four, for the threads.

    >>> [rows.stop for rows in even_slices(1500, 1024)]
    [375, 750, 1125, 1500]
    """
    number = -(-count // most) if count else 0
    step = -(-count // (number if number < 2 else -(-number // 4) * 4)) if number else 1
    return [slice(first, min(first + step, count)) for first in range(0, count, step)]
