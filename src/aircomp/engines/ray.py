"""Ray as the place where work runs: the devices of a round, or whole jobs, on the cores of a cluster.

this process ──put once──► object store of each node ──mapped──► workers: one actor a core, built once from its parts
▲                                                                     │
└──────────── results, in the order in which they finish ◄────────────┘

A worker that is lost (its process, its node) is replaced, and its task goes to the next free one. Tasks are pure, so
the result has the same bits. Ray's own restarts are not used: they would wait for a place that a smaller cluster may
never have again, while workers that are still there stand idle.
"""

import copy
import logging
import os
import socket
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.common.arithmetic import arithmetic_identity
from aircomp.data.samples import Samples, TensorSamples, distinct_tensors
from aircomp.device.local import LocalResult
from aircomp.engines.local import Packed, PackedTask, pack_result
from aircomp.engines.trainer import Task, Trainer, in_order, name_of, num_cores
from aircomp.errors import AirCompError, ConfigError

log = logging.getLogger(__name__)

ATTEMPTS = 4
"""How often a task may lose its worker before the run gives up."""
START_SECONDS = 180.0
"""How long to wait for a first worker while none is there; importing torch on a busy node takes half a minute."""
LAST_BITS = "who trains which device decides the last bits"
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to anybody
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # no warning about GPUs
    "RAY_worker_niceness": "0",  # the priority of local processes; Ray's own default is the lowest but four
}
"""What a Ray that is started here finds in its environment."""

T = TypeVar("T")
R = TypeVar("R")


def has_ray() -> bool:
    """Tell whether Ray is installed."""
    try:
        import ray  # noqa: F401
    except ImportError:
        return False
    return True


def connect(address: str, num_workers: int) -> tuple[Any, bool]:
    """Connect to Ray; return it, and whether this call connected and so has to shut it down.

    Args:
        address: HOST:PORT of a running cluster, `auto` for the one on this machine; empty means the environment's
            RAY_ADDRESS, or else a Ray of our own on this machine.
        num_workers: Cores of that Ray of our own; 0 means all that this process may use.

    Raises:
        ConfigError: If Ray is not installed or nothing answers at the address.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)  # a user who has set one knows why
    if not has_ray():
        raise ConfigError("engine = 'ray' needs Ray, which is not installed; run pip install 'aircomp[ray]'")
    import ray

    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if address not in ("", "auto", here):
            raise ConfigError(
                f"ray_address = {address!r}, but this process is connected to Ray at {here}; use that one"
            )
        return ray, False
    address = address or os.environ.get("RAY_ADDRESS", "")
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address in ("", "local"):
        address = "local"
        options |= {"num_cpus": num_workers or num_cores(), "include_dashboard": False}
    else:
        _check_address(address)
    try:
        ray.init(address, **options)
    except Exception as error:  # Ray raises the bare class when a node takes too long to start
        where = "be started on this machine" if address == "local" else f"be joined at {address}"
        raise ConfigError(f"Ray cannot {where} ({_first_line(error)}); try again, or use --engine processes") from None
    return ray, True


def _check_address(address: str) -> None:
    # Asked beforehand, so that a mistyped address is told at once.
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit():
        raise ConfigError(f"ray_address = {address!r}: expected HOST:PORT, as printed by ray start --head, or auto")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise ConfigError(f"no Ray cluster answers at {address} ({error}); start one with ray start --head") from None


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


class _Worker:
    """What one process of the cluster holds: a function of its own, built once."""

    def __init__(self, build: Callable[[Any], Callable[..., Any]], parts: Any):
        torch.set_num_threads(1)  # as every engine does: the same order of sums, so the same bits
        self._function = build(parts)

    def ready(self) -> str:
        """Return what computes here, as soon as the worker is there."""
        return arithmetic_identity()

    def call(self, *arguments: Any) -> Any:
        """Do one task."""
        return self._function(*arguments)


@dataclass(frozen=True)
class Call:
    """One task for any worker."""

    name: str
    """How to call it in an error."""
    arguments: tuple[Any, ...]


class Pool:
    """As many workers as asked for, each with a function built from parts that travel once to every node.

    Args:
        build: Makes the function of a worker from the parts; runs in the worker.
        parts: What `build` gets. Arrays in it are mapped from the node's shared memory and are read-only.
        num_workers: At most so many; 0 means one for each core (or GPU) of the cluster.
        address: See `connect`.
        gpus: Whether each worker needs a GPU.
    """

    def __init__(
        self,
        build: Callable[[Any], Callable[..., Any]],
        parts: Any,
        num_workers: int,
        address: str,
        *,
        gpus: bool = False,
    ):
        self.ray, self._opened = connect(address, num_workers)
        try:
            kind = "GPU" if gpus else "CPU"
            places = int(self.ray.cluster_resources().get(kind, 0))
            if places < 1:
                raise ConfigError(
                    f"the Ray cluster has no {kind} for a worker; add nodes to it with ray start --address"
                )
            self.num_workers = min(num_workers or places, places)
            self._make = self.ray.remote(_Worker).options(
                num_cpus=1, num_gpus=int(gpus), max_restarts=0, scheduling_strategy="SPREAD"
            )
            self._build, self._parts = self.ray.put(build), self.ray.put(parts)
            self._idle: list[Any] = []
            self._starting: dict[Any, Any] = {}
            """Workers that will be idle once the reference is there."""
            self._failed_starts = 0
            for _ in range(self.num_workers):
                self._start()
        except BaseException:
            self.close()
            raise

    def run(self, calls: Sequence[Call]) -> Iterator[tuple[int, Any]]:
        """Do all calls and yield (place in `calls`, result) as they finish.

        Raises:
            AirCompError: If a call lost its worker `ATTEMPTS` times, or no worker is left and none comes; and whatever
                a call itself raises.
        """
        queue = deque(range(len(calls)))
        running: dict[Any, tuple[Any, int]] = {}
        losses: Counter[int] = Counter()
        try:
            while queue or running:
                while queue and self._idle:
                    worker, index = self._idle.pop(), queue.popleft()
                    running[worker.call.remote(*calls[index].arguments)] = (worker, index)
                reference = self._wait(list(running))
                if reference in self._starting:
                    self._settle(reference)
                    continue
                worker, index = running.pop(reference)
                try:
                    result = self._get(reference, worker)
                except _Lost as lost:
                    losses[index] += 1
                    self._replace(worker, calls[index].name, losses[index], str(lost))
                    queue.appendleft(index)
                    continue
                self._idle.append(worker)
                yield index, result
        finally:  # on an error others are still at work: they are idle when they are done with it
            self._starting.update({reference: worker for reference, (worker, _) in running.items()})

    def close(self) -> None:
        """Stop the workers, and Ray if it was connected here; a cluster that was there before stays."""
        for worker in (*getattr(self, "_idle", ()), *getattr(self, "_starting", {}).values()):
            self.ray.kill(worker)
        self._idle, self._starting = [], {}
        if self._opened:
            self.ray.shutdown()
            self._opened = False

    def _start(self) -> None:
        worker = self._make.remote(self._build, self._parts)
        self._starting[worker.ready.remote()] = worker

    def _wait(self, running: list[Any]) -> Any:
        # While something runs, wait for it without end: Ray itself notices when a node is gone.
        done, _ = self.ray.wait([*running, *self._starting], timeout=None if running else START_SECONDS)
        if not done:
            raise AirCompError(
                f"no worker of the Ray cluster was there for {START_SECONDS:.0f} s; see ray status for free CPUs, "
                "add nodes, then --resume"
            )
        return done[0]

    def _get(self, reference: Any, worker: Any) -> Any:
        errors = self.ray.exceptions
        try:
            return self.ray.get(reference)
        except errors.RayTaskError as error:  # the task's own
            self._idle.append(worker)
            raise (error.cause if isinstance(error.cause, AirCompError) else error) from None
        except errors.RayError as error:
            raise _Lost(_first_line(error)) from None

    def _settle(self, reference: Any) -> None:
        worker = self._starting.pop(reference)
        try:
            found = self.ray.get(reference)
            if isinstance(found, str) and found != (here := arithmetic_identity()):
                log.warning(
                    "a worker of the cluster computes with %s, and this process with %s: %s", found, here, LAST_BITS
                )
        except self.ray.exceptions.RayTaskError:
            pass  # from a call that nobody waits for any more
        except self.ray.exceptions.RayError as error:
            self._failed_starts += 1
            if self._failed_starts >= ATTEMPTS * self.num_workers:
                raise AirCompError(
                    f"workers of the Ray cluster fail to start ({str(error).strip().splitlines()[-1]}); "
                    "every node needs the same Python, torch and aircomp, and the module of a model of your own"
                ) from None
            self._start()
            return
        self._failed_starts = 0
        self._idle.append(worker)

    def _replace(self, worker: Any, name: str, losses: int, reason: str) -> None:
        self.ray.kill(worker)  # it may be out of reach only
        if losses >= ATTEMPTS:
            raise AirCompError(
                f"{name} lost its worker {losses} times, perhaps for lack of memory ({reason}); "
                "use fewer --workers or larger nodes, then --resume"
            )
        log.warning("%s lost its worker and is tried again on another: %s", name, reason)
        self._start()


class _Lost(Exception):
    """A worker that is gone."""


class RayExecutor:
    """Trains devices on the workers of a Ray cluster.

    Data, objective and model travel once to every node and are mapped by all its workers; the global weights travel
    once a round to every node; each device's update travels back.
    """

    def __init__(self, trainer: Trainer, num_workers: int, address: str = ""):
        self._trainer = trainer
        self._pool = Pool(_build_trainer, _take_apart(trainer), num_workers, address, gpus=trainer.device == "cuda")

    def map(
        self, tasks: Sequence[Task], weights: Float[Tensor, " params"], buffers: Float[Tensor, " buffers"]
    ) -> list[LocalResult]:
        """See `Executor.map`."""
        state = self._pool.ray.put((_to_numpy(weights), _to_numpy(buffers)))
        groups = self._trainer.groups(tasks)
        calls = [self._call(state, [tasks[i] for i in group]) for group in groups]
        results = {index: [_unpack(packed) for packed in trained] for index, trained in self._pool.run(calls)}
        return in_order(groups, [results[index] for index in range(len(groups))])

    def _call(self, state: Any, tasks: Sequence[Task]) -> Call:
        packed = [(task.round_index, task.device, _to_numpy(task.own_buffers)) for task in tasks]
        return Call(name_of(tasks), (state, packed))

    def close(self) -> None:
        """Stop the workers, and Ray if it was started here."""
        self._pool.close()


def _to_numpy(value: Any) -> Any:
    # Ray maps numpy arrays from shared memory; tensors it would copy into every worker
    return value.detach().cpu().contiguous().numpy() if isinstance(value, Tensor) else value


def _from_numpy(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    with warnings.catch_warnings():  # mapped arrays are read-only, and training never writes to them
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(value)


def _take_apart(trainer: Trainer) -> dict[str, Any]:
    """Return what a worker needs to build the trainer; tensors that holders share travel once, as arrays."""
    arrays = {id(tensor): _to_numpy(tensor) for tensor in distinct_tensors(trainer.holders.values())}

    def apart(samples: Samples) -> Any:
        return samples.with_tensors(tuple(arrays[id(t)] for t in samples.tensors)) if _has_tensors(samples) else samples

    return {
        # a deep copy: the parameters of the trainer's own module are views that would each carry the whole vector
        "module": copy.deepcopy(trainer.model.module).cpu(),
        "holders": {device: apart(samples) for device, samples in trainer.holders.items()},
        "settings": trainer.settings,
        "objective": trainer.objective,
        "options": {"seed": trainer.seed, "device": trainer.device, "idle": trainer.model.idle},
    }


def _has_tensors(samples: Samples) -> TypeGuard[TensorSamples]:
    return isinstance(samples, TensorSamples)


def _build_trainer(parts: dict[str, Any]) -> Callable[..., list[Packed]]:
    holders = {
        device: samples.with_tensors(tuple(map(_from_numpy, samples.tensors))) if _has_tensors(samples) else samples
        for device, samples in parts["holders"].items()
    }
    trainer = Trainer(parts["module"], holders, parts["settings"], parts["objective"], **parts["options"])

    def run(state: tuple[np.ndarray, np.ndarray], packed: list[PackedTask]) -> list[Packed]:
        weights, buffers = map(_from_numpy, state)
        tasks = [Task(at, device, _from_numpy(own)) for at, device, own in packed]
        return [pack_result(result) for result in trainer.run_group(tasks, weights, buffers)]

    return run


def _unpack(packed: Packed) -> LocalResult:
    update, buffers, loss, num_samples = packed
    # copied: otherwise every update would stay in the object store for as long as somebody holds it
    return LocalResult(torch.from_numpy(update.copy()), torch.from_numpy(buffers.copy()), loss, num_samples)


def map_jobs(
    function: Callable[[T], R], items: Sequence[T], address: str = "", workers: int = 0
) -> Iterator[tuple[T, R]]:
    """Run `function` on every item, one item a core of the cluster, and yield (item, result) as they finish.

    A job whose worker or node dies is run again elsewhere, so it must not mind a half-finished predecessor (a run that
    resumes does not). Inside a job use `engine="serial"`: the cores are taken by other jobs.

    Args:
        function: Anything Ray can ship; it runs with one thread.
        items: What it is called with.
        address: The cluster's HOST:PORT; empty as in `connect`.
        workers: Jobs at a time; 0 means one for each core of the cluster.
    """
    pool = Pool(_same, function, workers, address)
    try:
        for index, result in pool.run([Call(f"job {item!r}", (item,)) for item in items]):
            yield items[index], result
    finally:
        pool.close()


def _same(function: Callable[..., Any]) -> Callable[..., Any]:
    return function
