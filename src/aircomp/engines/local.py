"""Worker processes of this machine as the place where devices train: the same bits as in one."""

import multiprocessing
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.common.interrupt import deferred, unheard_by_children
from aircomp.data.samples import distinct_tensors, share_memory
from aircomp.device.local import LocalResult
from aircomp.engines.trainer import Task, Trainer, in_order
from aircomp.engines.worker import begin
from aircomp.errors import AirCompError

PATIENCE = 0.1
"""Seconds until Ctrl-C is noticed while workers are waited for."""


class ProcessExecutor:
    """Trains in worker processes of one thread each; the data is shared with them, not copied.

    Workers are forked where that is safe (Linux, no GPU in use): they map the parent's data and start at once.
    Elsewhere they are spawned and receive the data through shared memory.
    """

    def __init__(self, trainer: Trainer, num_workers: int):
        self.num_workers, self._trainer = num_workers, trainer
        fork = sys.platform == "linux" and trainer.device == "cpu"
        if not fork:
            share_memory(distinct_tensors(trainer.holders.values()))
        self._weights = torch.zeros_like(trainer.model.weights, device="cpu").share_memory_()
        self._buffers = trainer.model.read_buffers().cpu().share_memory_()
        self._pool = ProcessPoolExecutor(
            num_workers,
            mp_context=multiprocessing.get_context("fork" if fork else "spawn"),
            initializer=_start_worker,
            initargs=(os.getpid(), trainer, self._weights, self._buffers),
        )
        with deferred(), unheard_by_children():
            self._pool.submit(os.getpid).result()  # start all workers now, before this process has threads of its own

    def map(
        self, tasks: Sequence[Task], weights: Float[Tensor, " params"], buffers: Float[Tensor, " buffers"]
    ) -> list[LocalResult]:
        """See `Executor.map`. An error in a worker is raised here, and so is the death of a worker."""
        self._weights.copy_(weights)
        self._buffers.copy_(buffers)
        groups = self._trainer.groups(tasks)
        try:
            with deferred() as raise_if_stopped:
                futures = [self._pool.submit(_run_group, [_pack(tasks[i]) for i in group]) for group in groups]
                while wait(futures, timeout=PATIENCE).not_done:
                    raise_if_stopped()
            return in_order(groups, [[_unpack(packed) for packed in future.result()] for future in futures])
        except BrokenProcessPool:
            raise AirCompError(
                "a worker process died, perhaps for lack of memory; use fewer --workers, then --resume"
            ) from None

    def close(self) -> None:
        """Stop the workers."""
        self._pool.shutdown(cancel_futures=True)


_worker: dict[str, Any] = {}  # what this worker process holds; set once when it starts


def _start_worker(parent: int, trainer: Trainer, weights: Tensor, buffers: Tensor) -> None:
    begin(parent)
    torch.set_num_threads(1)
    _worker.update(trainer=trainer, weights=weights, buffers=buffers)


# arrays travel through a pipe; tensors would each hold a descriptor
PackedTask = tuple[int, int, np.ndarray | None]
Packed = tuple[np.ndarray, np.ndarray, float, int]


def _pack(task: Task) -> PackedTask:
    return task.round_index, task.device, None if task.own_buffers is None else task.own_buffers.cpu().numpy()


def _run_group(packed: list[PackedTask]) -> list[Packed]:
    tasks = [Task(at, device, None if own is None else torch.from_numpy(own)) for at, device, own in packed]
    results = _worker["trainer"].run_group(tasks, _worker["weights"], _worker["buffers"])
    return [pack_result(result) for result in results]


def pack_result(result: LocalResult) -> Packed:
    """Return a result as it travels between processes."""
    return result.update.numpy(), result.buffers.numpy(), result.loss, result.num_samples


def _unpack(packed: Packed) -> LocalResult:
    update, buffers, loss, num_samples = packed
    return LocalResult(torch.from_numpy(update), torch.from_numpy(buffers), loss, num_samples)
