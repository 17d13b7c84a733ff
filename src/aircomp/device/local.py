"""Local training on one device (Sec. II-A): E epochs or steps from the global model, and the difference.

One loop for every task: an objective turns a batch into a loss, an optimiser turns its gradient into a step.
"""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from aircomp.common.boundary import blaming
from aircomp.common.checks import describe, part_name
from aircomp.device.settings import LocalSettings, Precision
from aircomp.device.update import FlatModel
from aircomp.errors import ConfigError, ShapeError, unknown_name

Optimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
"""Makes the optimiser of some parameters."""
OPTIMIZERS = {
    name.lower(): kind
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
}
"""torch's own, by name."""


def check_functions(settings: LocalSettings) -> None:
    """Refuse an optimiser that nobody knows, and functions of a run from Python that are not here.

    Raises:
        ConfigError: Naming it.
    """
    if settings.maker is None and settings.optimizer.lower() not in OPTIMIZERS:
        raise unknown_name("optimizer", settings.optimizer, OPTIMIZERS)
    if settings.schedule and settings.factor is None:
        raise ConfigError(f"local.schedule = {settings.schedule!r} is a function of Python; give it as an object")
    settings.rate(0)


def make_optimizer(settings: LocalSettings, parameters: Iterable[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    """Return an optimiser of torch, with the learning rate of a round.

    Raises:
        ConfigError: If the user's own function returns something else, or momentum was given to one without.
    """
    if settings.maker is not None:
        with blaming(settings.maker):
            made = settings.maker(list(parameters))
        if not isinstance(made, torch.optim.Optimizer):
            raise ConfigError(f"{settings.optimizer} returned {describe(made)}; expected a torch.optim.Optimizer")
        for group in made.param_groups:
            group["lr"] = group["lr"] * (rate / settings.learning_rate)
        return made
    options = {"momentum": settings.momentum} if settings.momentum else {}
    options |= {"weight_decay": settings.weight_decay} if settings.weight_decay else {}
    try:
        kind: Any = OPTIMIZERS[settings.optimizer.lower()]  # Any: the base class takes no options
        return kind(parameters, lr=rate, **options)
    except TypeError:
        raise ConfigError(
            f"local.optimizer = {settings.optimizer!r} does not take {' and '.join(options) or 'a learning rate alone'}; "
            "leave that out, or give a function that makes the optimiser"
        ) from None


@dataclass(frozen=True)
class LocalResult:
    """What a device holds after local training."""

    update: Float[Tensor, " params"]
    buffers: Float[Tensor, " buffers"]
    loss: float
    """Mean training loss over the steps."""
    num_samples: int
    """Samples seen, with repetition."""


@runtime_checkable
class Samples(Protocol):
    """What a device trains on."""

    def __len__(self) -> int: ...

    def batch(self, places: Int[Tensor, " batch"], rng: torch.Generator | None = None) -> Any:
        """Return the samples at some places; with a generator they are for training."""


Loss = Callable[[Any, Any], Tensor]
"""Of a model's outputs and the targets."""
Step = Callable[[nn.Module, Any], Tensor]
"""Of a model and a batch; returns the loss."""


@dataclass(frozen=True)
class Objective:
    """What training makes small: a loss of outputs and targets, or a step of the user's own."""

    loss: Loss | None = F.cross_entropy
    step: Step | None = None

    def __call__(self, module: nn.Module, batch: Any, place: torch.device, precision: Precision = "float32") -> Tensor:
        """Return a batch's loss, one number.

        Raises:
            ShapeError: If the user's function returns something else.
        """
        with reduced(place, precision):
            if self.step is not None:
                moved_batch = moved(batch, place)
                with blaming(self.step):
                    loss = self.step(module, moved_batch)
                return _one_number(loss, part_name(self.step))
            inputs, targets = pair_of(batch)
            with blaming(module):
                outputs = module(moved(inputs, place))
        if precision != "float32" and isinstance(outputs, Tensor):
            outputs = outputs.float()
        return self.of_outputs(outputs, moved(targets, place))

    def of_outputs(self, outputs: Any, targets: Any) -> Tensor:
        """Return the loss of what a model gave.

        Raises:
            ShapeError: If the user's function returns something else than one number.
        """
        assert self.loss is not None  # one of both is given
        with blaming(self.loss):
            loss = self.loss(outputs, targets)
        return _one_number(loss, part_name(self.loss))


def pair_of(batch: Any, otherwise: str = "give step=") -> tuple[Any, Any]:
    """Return inputs and targets.

    Args:
        batch: Of a dataset.
        otherwise: What else a user may do where it is no pair.

    Raises:
        ShapeError: If a batch is no such pair.
    """
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    raise ShapeError(
        f"a batch is {describe(batch)}; expected a pair (inputs, targets), so let collate return one, or {otherwise}"
    )


def moved(value: Any, place: torch.device) -> Any:
    """Return a batch with all its tensors on a device."""
    if isinstance(value, Tensor):
        return value.to(place)
    if isinstance(value, dict):
        return {name: moved(each, place) for name, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved(each, place) for each in value))
    if isinstance(value, tuple | list):
        return type(value)(moved(each, place) for each in value)
    return value


def _one_number(loss: Any, name: str) -> Tensor:
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.is_floating_point():
        raise ShapeError(f"{name} returned {describe(loss)}; expected one number, say the mean over the batch")
    return loss.reshape(())


def train(
    model: FlatModel,
    weights: Float[Tensor, " params"],
    buffers: Float[Tensor, " buffers"],
    samples: Samples,
    settings: LocalSettings,
    objective: Objective,
    *,
    rng: torch.Generator,
    round_index: int = 0,
) -> LocalResult:
    """Train from the global `weights` on one device's samples and return the update Δw."""
    model.load(weights, buffers)
    start = weights if model.has_views else model.read_weights()  # the latter are rounded
    model.module.train()
    take_step = stepper(model, settings, settings.rate(round_index))
    total = torch.zeros((), device=weights.device)
    batches = batch_indices(len(samples), settings, rng=rng)
    for places in batches:
        batch = samples.batch(places, rng)

        def with_gradient(batch: Any = batch) -> Tensor:
            loss = objective(model.module, batch, weights.device, settings.precision)
            model.zero_gradient()
            loss.backward()
            return loss

        total += take_step(with_gradient).detach()
    model.check_idle()
    return LocalResult(
        update=model.read_weights() - start,
        buffers=model.read_buffers(),
        loss=total.item() / len(batches),
        num_samples=sum(len(b) for b in batches),
    )


def stepper(model: FlatModel, settings: LocalSettings, rate: float) -> Callable[[Callable[[], Tensor]], Tensor]:
    """Return what takes a step: SGD on the flat vectors, or an optimiser of torch on their views.

    It gets the function that computes loss and gradient, which LBFGS calls several times, and returns the first loss.
    """
    if settings.is_flat and model.has_views:
        velocity = torch.zeros_like(model.weights) if settings.momentum else None

        def take_flat_step(with_gradient: Callable[[], Tensor]) -> Tensor:
            loss = with_gradient()
            if settings.clip_norm:
                model.gradient.mul_(clip_factor(model.gradient.norm(), settings.clip_norm))
            sgd_step(model.weights, model.gradient, velocity, settings, rate)
            return loss

        return take_flat_step
    parameters = model.parameters()
    optimizer: Any = make_optimizer(settings, parameters, rate)  # Any: L-BFGS takes tensors where its type says numbers
    # LBFGS: its step does not go without the closure
    asks_again = any(each.default is each.empty for each in inspect.signature(optimizer.step).parameters.values())

    def take_step(with_gradient: Callable[[], Tensor]) -> Tensor:
        def clipped() -> Tensor:
            loss = with_gradient()
            if settings.clip_norm:
                nn.utils.clip_grad_norm_(parameters, settings.clip_norm)
            return loss

        if asks_again:
            return optimizer.step(clipped)
        loss = clipped()
        optimizer.step()
        return loss

    return take_step


def reduced(device: torch.device, precision: Precision) -> torch.autocast:
    """Compute what is inside in this precision; float32 leaves everything as it is."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


def clip_factor(norm: Float[Tensor, "*copies"], limit: float) -> Float[Tensor, "*copies"]:
    """Return what a gradient of this norm is multiplied with to be no longer than `limit`, as `clip_grad_norm_` does."""
    return (limit / (norm + 1e-6)).clamp(max=1.0)


@torch.no_grad()
def sgd_step(weights: Tensor, gradient: Tensor, velocity: Tensor | None, settings: LocalSettings, rate: float) -> None:
    """Take one SGD step in place: weight decay, momentum, in PyTorch's order of operations."""
    if settings.weight_decay:
        gradient.add_(weights, alpha=settings.weight_decay)
    if velocity is not None:
        gradient = velocity.mul_(settings.momentum).add_(gradient)
    weights.add_(gradient, alpha=-rate)


def batch_sizes(num_samples: int, settings: LocalSettings) -> list[int]:
    """Return the number of samples of each step."""
    full, rest = divmod(_num_used(num_samples, settings), settings.batch_size)
    epoch = [settings.batch_size] * full + [rest] * (rest > 0)
    return [epoch[step % len(epoch)] for step in range(num_steps(num_samples, settings))]


def num_steps(num_samples: int, settings: LocalSettings) -> int:
    """Return how many steps a device with so many samples takes in a round.

    >>> num_steps(1_220, LocalSettings(epochs=3, data_fraction=0.8, batch_size=20))
    147
    """
    return settings.steps or (settings.epochs or 1) * -(-_num_used(num_samples, settings) // settings.batch_size)


def batch_indices(num_samples: int, settings: LocalSettings, *, rng: torch.Generator) -> list[Tensor]:
    """Return the sample indices of each step: shuffled passes over this round's share of the data."""
    used, steps = _num_used(num_samples, settings), num_steps(num_samples, settings)
    share = torch.randperm(num_samples, generator=rng)[:used]
    batches: list[Tensor] = []
    while len(batches) < steps:
        order = share[torch.randperm(used, generator=rng)]
        batches += order.split(settings.batch_size)
    return batches[:steps]


def _num_used(num_samples: int, settings: LocalSettings) -> int:
    """Return how many of its samples a device draws for a round."""
    return max(1, round(settings.data_fraction * num_samples))
