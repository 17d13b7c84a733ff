"""Settings of devices: how they train, what they remember, what fails."""

from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from aircomp.common.checks import check_number, part_name
from aircomp.common.settings import Settings, Tagged

Precision = Literal["float32", "bfloat16"]


Schedule = Callable[[int], float]
"""The learning rate of a round, from 0, over that of the settings."""


class LocalSettings(Settings):
    """How a device trains between two rounds.

    From Python, `optimizer` may be a function of the parameters that returns a torch optimiser, and `schedule` a function of
    the round, from 0, that returns a factor of the learning rate.
    """

    epochs: int | None = Field(default=None, ge=1, le=10_000)
    """Passes over the device's data; one if neither this nor steps is given. The authors' recipe has 3."""
    steps: int | None = Field(default=None, ge=1, le=10**6)
    """Number of steps, E in the paper; in place of epochs."""
    batch_size: int = Field(default=20, ge=1, le=10**6)
    """Samples of one step (the authors' recipes have 16 to 20)."""
    optimizer: str = "sgd"
    """The optimiser, started anew each round: sgd (the paper's), or any of torch.optim by its name, say adamw."""
    learning_rate: float = Field(default=0.01, gt=0, le=1000)
    """Local learning rate."""
    decay: float = Field(default=1.0, ge=1e-6, le=1)
    """What the learning rate is multiplied with from round to round."""
    schedule: str = ""
    """The function of the round that a run from Python multiplied the learning rate with."""
    momentum: float = Field(default=0.0, ge=0, lt=1)
    """Momentum of the optimisers that have one, started anew each round."""
    weight_decay: float = Field(default=0.0, ge=0, le=1)
    """L2 penalty, added to the gradient; of adamw its own weight decay."""
    clip_norm: float = Field(default=0.0, ge=0, le=1e9)
    """Largest norm of a step's gradient; 0 does not clip."""
    data_fraction: float = Field(default=1.0, gt=0, le=1)
    """Share of the device's data drawn at random each round (0.8 in the authors' recipe)."""
    together: int = Field(default=1, ge=1, le=64)
    """Devices that are computed at once, where their batches have the same sizes. On a CPU, 4 take about 0.8 of the time
    of one by one; results differ in rounding only. A group trains in one worker, so take 2 where workers are many."""
    precision: Precision = "float32"
    """Numbers that the model computes with. bfloat16 keeps 8 bits of every activation and is faster on processors that
    have it; weights, losses and steps stay float32."""
    _make: Callable[..., Any] | None = PrivateAttr(default=None)
    _factor: Schedule | None = PrivateAttr(default=None)

    def __init__(self, **values: Any):  # Any: pydantic checks the types
        own = {name: values[name] for name in ("optimizer", "schedule") if callable(values.get(name))}
        super().__init__(**values | {name: part_name(part) for name, part in own.items()})
        self._make, self._factor = own.get("optimizer"), own.get("schedule")

    @model_validator(mode="after")
    def _counts_one_way(self) -> "LocalSettings":
        if self.epochs is not None and self.steps is not None:
            raise ValueError(f"epochs = {self.epochs} and steps = {self.steps} were given; expected one of them")
        return self

    @property
    def maker(self) -> Callable[..., Any] | None:
        """The user's own function that makes the optimiser."""
        return self._make

    @property
    def factor(self) -> Schedule | None:
        """The user's own function of the round."""
        return self._factor

    @property
    def functions(self) -> tuple[Any, ...]:
        """The user's own functions among them."""
        return tuple(part for part in (self._make, self._factor) if part is not None)

    @property
    def is_flat(self) -> bool:
        """Whether a step is one on whole vectors: plain SGD."""
        return self._make is None and self.optimizer == "sgd"

    def rate(self, round_index: int) -> float:
        """Return the learning rate of a round."""
        from aircomp.common.boundary import blaming  # it imports torch

        with blaming(self._factor):
            factor = 1.0 if self._factor is None else self._factor(round_index)
        check_number(f"the factor that the schedule returned for round {round_index + 1}", factor, low=0, high=1e9)
        return self.learning_rate * self.decay**round_index * factor

    def changed(self, **values: Any) -> "LocalSettings":
        """Return a copy with values replaced; steps take the place of the epochs of a preset, and the other way round."""
        for one, other in (("epochs", "steps"), ("steps", "epochs")):
            if values.get(one) is not None:
                values = {other: None} | values
        made = super().changed(**values)
        made._make = self._make if made.optimizer == self.optimizer else made._make
        made._factor = self._factor if made.schedule == self.schedule else made._factor
        return made


class FeedbackSettings(Tagged):
    """Whether devices remember what a transmission left out, and how much of it."""

    kind: str = "plain"
    """off: no memory; plain: the paper's; decayed: it shrinks each time it is used; clipped: its norm is bounded by
    the update's."""


class PlainFeedback(FeedbackSettings):
    """All is remembered, or nothing."""

    kind: Literal["plain", "off"] = "plain"


class DecayedFeedback(FeedbackSettings):
    """The memory shrinks each time it is used."""

    kind: Literal["decayed"] = "decayed"
    decay: float = Field(default=0.9, ge=0, le=1)
    """The factor by which the memory is multiplied each time it is used."""


class ClippedFeedback(FeedbackSettings):
    """The norm of the memory is bounded."""

    kind: Literal["clipped"] = "clipped"
    max_ratio: float = Field(default=5.0, ge=0, le=1000)
    """Greatest norm of the memory over that of the update (Sec. V-C reports divergence above five)."""


class CorruptionSettings(Tagged):
    """What goes wrong, and for how many of the active devices."""

    kind: str = "none"
    """noise: Gaussian noise (the paper's); flip: the negative; scale: `factor` times; constant: all entries equal;
    silent: nothing is transmitted; jam: noise of the nominal energy in place of a signal; lie: the update, with an amplitude
    `factor` times the true one reported where all devices agree on a scale."""


class NoCorruption(CorruptionSettings):
    """All devices send their update."""

    kind: Literal["none"] = "none"


class Corrupted(CorruptionSettings):
    """Some devices send something else: what all such kinds have."""

    fraction: float = Field(default=0.2, ge=0, le=1)
    """Part of the active devices that is corrupted in each round (paper: 0.2)."""


class Plain(Corrupted):
    """The negative, nothing, or noise on the air: there is no more to set."""

    kind: Literal["flip", "silent", "jam"]  # pyright: ignore[reportGeneralTypeIssues] (which one must be said)


class Scaled(Corrupted):
    """A multiple of the update."""

    kind: Literal["scale"] = "scale"
    factor: float = Field(default=10.0, ge=-1e6, le=1e6)
    """The factor by which the update is multiplied."""


class Lying(Corrupted):
    """The update itself, and a wrong number in what all agree on."""

    kind: Literal["lie"] = "lie"
    factor: float = Field(default=10.0, gt=0, le=1e6)
    """The amplitude that is reported, over the true one."""


class Replaced(Corrupted):
    """A vector that has nothing to do with the update but its length."""

    kind: Literal["noise", "constant"]  # pyright: ignore[reportGeneralTypeIssues] (as above)
    length: float = Field(default=1.0, ge=0, le=1e6)
    """Its norm, as a multiple of the norm of the update that it replaces."""
