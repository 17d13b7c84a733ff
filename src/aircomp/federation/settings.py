"""Settings of a federation that belong to no other room: who takes part, what is trained."""

from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from aircomp.common.settings import Settings, Tagged, absolute
from aircomp.errors import ConfigError


class DataSettings(Settings):
    """What the devices hold."""

    name: str = "digits"
    """digits, mnist, fashion-mnist or cifar10."""
    augment: bool = False
    """Random crop with padding 4 and horizontal flip, as usual for CIFAR-10."""


class DevicesSettings(Settings):
    """The devices of the federation."""

    total: int = Field(default=40, ge=1, le=1_000_000)
    """Number of devices, K_t in the paper."""


MOST_DEVICES = 1_000_000
"""Of a federation."""


class ParticipationSettings(Tagged):
    """How the active devices of a round are chosen; alternatives take their values in order, too: `Uniform(7, 13)`."""

    kind: str = "uniform"
    """uniform: a random number of random devices; fixed: always the same number; bernoulli: each device by chance;
    trace: from a file."""

    def __new__(cls, *given: Any, **values: Any) -> "ParticipationSettings":  # Any: pydantic checks the types
        """Make the alternative that values name."""
        return super().__new__(cls, **values)

    def __init__(self, *given: Any, **values: Any):
        names = [name for name in type(self).model_fields if name != self.TAG]
        if len(given) > len(names):
            raise ConfigError(f"{type(self).__name__} was given {len(given)} values; expected {', '.join(names)}")
        super().__init__(**dict(zip(names, given, strict=False)), **values)


class Uniform(ParticipationSettings):
    """A random number of random devices."""

    kind: Literal["uniform"] = "uniform"
    low: int = Field(default=7, ge=0, le=MOST_DEVICES)
    """The least number of active devices (paper: 7)."""
    high: int = Field(default=13, ge=0, le=MOST_DEVICES)
    """The greatest number of active devices, included (paper: 13)."""

    @model_validator(mode="after")
    def _consistent(self) -> "Uniform":
        if self.low > self.high:
            raise ValueError(f"low = {self.low} is above high = {self.high}; exchange them")
        return self


class Fixed(ParticipationSettings):
    """Always the same number of random devices."""

    kind: Literal["fixed"] = "fixed"
    number: int = Field(default=10, ge=0, le=MOST_DEVICES)
    """The number of active devices."""


class Bernoulli(ParticipationSettings):
    """Each device by chance."""

    kind: Literal["bernoulli"] = "bernoulli"
    probability: float = Field(default=0.25, ge=0, le=1)
    """The probability that a device is active."""


class Trace(ParticipationSettings):
    """From a file."""

    kind: Literal["trace"] = "trace"
    trace: Path
    """A text file. Line t holds the ids of the devices active in round t, separated by spaces; after the last line it starts
    over."""

    _absolute = field_validator("trace")(absolute)


Norm = Literal["batch", "group"]


class ModelSettings(Tagged):
    """Which model to train."""

    TAG: ClassVar[str] = "name"

    name: str = "digits-cnn"
    """digits-cnn, mnist-cnn, resnet (the paper's) or vgg (the paper's second model, on which no layer was trained)."""
    width: int | None = Field(default=None, ge=1, le=1024)
    """Channels of the first stage, the others scale with it; by default as published: 16 in resnet, 32 in vgg."""


class DigitsCnnSettings(ModelSettings):
    """A small network for digits."""

    name: Literal["digits-cnn"] = "digits-cnn"


class MnistCnnSettings(ModelSettings):
    """The same network for images of 28×28 pixels."""

    name: Literal["mnist-cnn"] = "mnist-cnn"


class VggSettings(ModelSettings):
    """The paper's second model."""

    name: Literal["vgg"] = "vgg"
    norm: Norm = "batch"
    """Normalisation: batch (the paper's) or group, which has no buffers outside the radio."""


class ResNetSettings(ModelSettings):
    """The paper's model."""

    name: Literal["resnet"] = "resnet"
    blocks: int = Field(default=3, ge=1, le=64)
    """Residual blocks of each stage (paper: 3)."""
    stem_stride: int = Field(default=1, ge=1, le=4)
    """Stride of the first convolution (paper: 1). With 2 the model sees images at half their resolution and runs four times
    as fast."""
    norm: Norm = "batch"
    """Normalisation: batch (the paper's) or group, which has no buffers outside the radio."""


class CentralSettings(Settings):
    """SGD with one cycle of the learning rate; the defaults take the paper's ResNet at half resolution to .80."""

    epochs: int = Field(default=6, ge=1, le=10_000)
    """Passes over all training images."""
    batch_size: int = Field(default=128, ge=2, le=10**6)
    """Images of one step."""
    learning_rate: float = Field(default=0.3, gt=0, le=1000)
    """Highest learning rate of the cycle."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Momentum, after Nesterov."""
    weight_decay: float = Field(default=5e-4, ge=0, le=1)
    """L2 penalty."""


class OwnParts(Settings):
    """The parts that came from Python as objects, by the name of their class or function; empty where none did.

    A run is resumed with the same ones only, and no command line can repeat it.
    """

    model: str = ""
    layout: str = ""
    """Hash of the model's parameter and buffer names, shapes and types, and of which are sent."""
    dataset: str = ""
    samples: str = ""
    """Hash of the dataset's images and labels."""
    uplink: str = ""
    decoder: str = ""
    channel: str = ""
    aggregator: str = ""
    before: str = ""
    after: str = ""
    loss: str = ""
    step: str = ""
    collate: str = ""
    metrics: str = ""
    weights: str = ""
    """Hash of the weights of clients, where they are numbers."""

    @property
    def names(self) -> dict[str, str]:
        """Return the parts that there are, without the hashes."""
        return {name: getattr(self, name) for name in PARTS if getattr(self, name)}


PARTS = tuple(name for name in OwnParts.model_fields if name not in ("layout", "samples", "weights"))
"""What a user may bring along: the keywords of `simulate`."""
