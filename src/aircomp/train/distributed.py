"""Training on several processes: `torchrun --nproc-per-node 2 -m aircomp pretrain …`.

    process 0:  batches 0, 2, …  ──► gradients ─┐                            ┌─► Adam's step
                                                ├─► gathered, added in order ─┤     (the same)
    process 1:  batches 1, 3, …  ──► gradients ─┘                            └─► Adam's step

Every process holds the whole model and takes every W-th batch of an epoch. Gradients are gathered and added in the order of
the batches, rather than reduced in an order that nobody chose: the bits are those of one process that takes all batches of a
step, one after the other. They go through the processor's memory whatever the device, for they are small.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from aircomp.errors import AirCompError, ConfigError, TrainingDiverged

T = TypeVar("T")


@dataclass(frozen=True)
class Team:
    """The processes that train one layer together; one alone by default."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes files and shows progress."""
        return self.rank == 0

    def device(self, device: str) -> str:
        """Return the device of this process: with `cuda`, one for each process of a machine."""
        if device != "cuda" or self.size == 1:
            return device
        return f"cuda:{int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()}"

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """Return the items that fall to this process."""
        return items[self.rank :: self.size]

    def gather(self, values: Shaped[Tensor, "*shape"]) -> list[Shaped[Tensor, "*shape"]]:
        """Return everybody's values, which have one shape, in the order of the processes."""
        if self.size == 1:
            return [values]
        values = values.cpu()
        gathered = [torch.empty_like(values) for _ in range(self.size)]
        with _told_if_gone():
            dist.all_gather(gathered, values)
        return gathered

    def interleave(self, rows: Float[Tensor, "mine columns"], total: int) -> Float[Tensor, "total columns"]:
        """Undo `share`: return the rows of all items, where everybody has made rows of its own."""
        most = -(-total // self.size)
        padded = rows.new_zeros(most, rows.shape[1])
        padded[: len(rows)] = rows
        return torch.stack(self.gather(padded), dim=1).flatten(0, 1)[:total]

    def leaders(self, value: float) -> float:
        """Return the leader's value, which all follow."""
        return float(self.gather(torch.tensor(value, dtype=torch.float64))[0])

    def agrees(self, digest: str) -> bool:
        """Tell whether everybody has the same hash."""
        mine = torch.frombuffer(bytearray.fromhex(digest), dtype=torch.uint8)
        return all(torch.equal(mine, each) for each in self.gather(mine))


@contextlib.contextmanager
def team() -> Iterator[Team]:
    """Join the processes that torchrun started, if it did, and leave them at the end."""
    if not (dist.is_available() and dist.is_torchelastic_launched()):
        yield Team()
        return
    joins = not dist.is_initialized()  # a program of the user's own may have done that
    if joins:
        dist.init_process_group("gloo")
    try:
        together: TrainingDiverged | None = None
        try:
            yield Team(dist.get_rank(), dist.get_world_size())
        except TrainingDiverged as error:
            together = error
        # torchrun stops all as soon as one has failed: the leader has saved everything before anybody leaves
        with _told_if_gone():
            dist.barrier()
        if together is not None:
            raise together
    finally:
        if joins:
            dist.destroy_process_group()


class Gradients:
    """The mean gradient over the batches of a step, of this process and of the others, added in the batches' order.

    Args:
        parameters: What is learned.
        batches_per_step: Batches of one step, over all processes.
        team: The processes.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], batches_per_step: int, team: Team):
        if batches_per_step < 1 or batches_per_step % team.size:
            raise ConfigError(
                f"batches_per_step = {batches_per_step} cannot be shared by {team.size} processes alike; "
                f"give a multiple of {team.size}"
            )
        self.parameters, self.batches_per_step, self.team = list(parameters), batches_per_step, team
        self._sum: Tensor | None = None
        self._added = 0

    def add(self, loss: Float[Tensor, ""]) -> Float[Tensor, ""] | None:
        """Take the gradients that a backward pass left, with its loss.

        Returns:
            The mean loss when the step is complete: then every parameter has the mean gradient. None before.
        """
        if self.batches_per_step == 1:
            return loss
        for packed in self.team.gather(self._pack(loss)):
            self._sum = packed if self._sum is None else self._sum + packed
            self._added += 1
        assert self._sum is not None
        if self._added < self.batches_per_step:
            return None
        mean, self._sum, self._added = self._sum / self.batches_per_step, None, 0
        return self._unpack(mean)

    def _pack(self, loss: Tensor) -> Float[Tensor, " values"]:
        """Put loss, which parameters have a gradient, and the gradients into one vector."""
        has = torch.tensor([p.grad is not None for p in self.parameters]).to(loss)
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        return torch.cat([loss[None], has, *(g.flatten() for g in gradients)]).cpu()

    def _unpack(self, mean: Float[Tensor, " values"]) -> Float[Tensor, ""]:
        sizes = [p.numel() for p in self.parameters]
        loss, has, *gradients = mean.split([1, len(sizes), *sizes])
        for p, some, gradient in zip(self.parameters, has.tolist(), gradients, strict=True):
            # Adam leaves a parameter alone that no batch had to do with
            p.grad = gradient.view_as(p).to(p) if some else None
        return loss[0]


@contextlib.contextmanager
def _told_if_gone() -> Iterator[None]:
    try:
        yield
    except RuntimeError:  # gloo's: the connection was closed
        raise AirCompError(
            "another process of this training has ended, so this one ends too; see the other one's message"
        ) from None
