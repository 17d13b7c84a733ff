"""How the communication layer is trained: all settings in one tree, and the presets that fill it."""

import math
from collections.abc import Collection
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from aircomp.common.settings import Presets, Settings, Tagged
from aircomp.decoders.net.gamp_net import GampNetSettings
from aircomp.encode.learned import CodebookSettings
from aircomp.errors import ConfigError
from aircomp.train.loss import LossSettings
from aircomp.train.rounds import RoundsSettings

RUN_ONLY = {"epochs", "seconds"}
"""Settings that do not change the bits of an epoch: training may be resumed with others."""


LAYER_OBJECTS = 4_000
"""Bytes that the Python objects of one layer take, however few weights it has."""


class ScheduleSettings(Tagged):
    """How the learning rate falls."""

    kind: str = "halving"
    """halving: the rate is halved when the loss stops improving (the paper's). cosine: it falls along half a cosine over all
    epochs; training then never ends early."""


class Halving(ScheduleSettings):
    """Halved when the loss stops improving."""

    kind: Literal["halving"] = "halving"
    halve_after: int = Field(default=10, ge=1, le=10**6)
    """Epochs without improvement after which the learning rate is halved (paper: 10)."""
    patience: int = Field(default=20, ge=1, le=10**6)
    """Epochs without improvement after which training ends (paper: 20)."""


class Cosine(ScheduleSettings):
    """Along half a cosine."""

    kind: Literal["cosine"] = "cosine"


class TrainingSettings(Settings):
    """What all trainings have: how long, and how fast."""

    EXAMPLE: ClassVar[str]
    """A preset of them."""

    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    """Everything random derives from it."""
    epochs: int = Field(default=500, ge=1, le=10**7)
    """Most epochs (paper: 500)."""
    samples_per_epoch: int | None = Field(default=None, ge=1, le=10**9)
    """Slots trained on between two validations; all training samples if not given, as in the paper."""
    seconds: float | None = Field(default=None, gt=0, le=1e9)
    """Time limit in seconds; an epoch that would end later is not begun."""
    learning_rate: float = Field(default=1e-4, gt=0, le=1)
    """Learning rate of Adam (paper: 1e-4)."""
    schedule: ScheduleSettings = ScheduleSettings()
    tolerance: float = Field(default=1e-6, ge=0, le=1e6)
    """By how much the validation loss must fall to count as an improvement (paper: 1e-6)."""
    clip_norm: float | None = Field(default=None, gt=0, le=1e9)
    """Largest norm of a gradient; a longer one is scaled down to it (paper: no limit)."""

    @field_validator("schedule", mode="before")
    @classmethod
    def _named(cls, schedule: Any) -> Any:  # Any: pydantic checks the types
        return {"kind": schedule} if isinstance(schedule, str) else schedule

    @property
    def identity(self) -> dict[str, Any]:
        """What determines the bits of every epoch: all settings but those that only say how long."""
        return self.model_dump(
            mode="json", exclude=RUN_ONLY - ({"epochs"} if isinstance(self.schedule, Cosine) else set())
        )

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 1, before any halving."""
        if isinstance(self.schedule, Halving):
            return self.learning_rate
        return self.learning_rate * (1 + math.cos(math.pi * (epoch - 0.5) / self.epochs)) / 2


class PretrainSettings(TrainingSettings):
    """Training of codebook and decoder, completely described (Sec. III-E, Hyper-parameters)."""

    EXAMPLE = "short"

    codeword_length: int = Field(default=64, ge=1, le=65_536)
    """Real channel uses of one slot (paper: l = 64)."""
    net: GampNetSettings = GampNetSettings()
    codebook: CodebookSettings = CodebookSettings()
    loss: LossSettings = LossSettings()
    data: RoundsSettings = RoundsSettings()

    def memory_needs(self, num_codewords: int) -> dict[str, int]:
        """Return bytes by what they are for, at the least, for `aircomp.common.memory.check_memory`."""
        net, slots = self.net, self.data.batch_slots
        convolutions = net.filters**2 * net.kernel
        return {
            "the layers of the decoder (net.num_layers, net.filters, net.kernel)": net.num_layers
            * (LAYER_OBJECTS + 4 * convolutions),
            "the codebook (codeword_length)": 4 * num_codewords * self.codeword_length,
            "what a batch leaves for its gradient (data.batch_slots, net.num_layers, codeword_length)": 4
            * slots
            * net.num_layers
            * (num_codewords + self.codeword_length),
        }


def check_given(settings: TrainingSettings, given: Collection[str]) -> None:
    """Refuse a weight that the user gave of a term that is always zero.

    Raises:
        ConfigError: Naming it.
    """
    if "loss.orthogonality" in given and isinstance(settings, PretrainSettings) and settings.codebook.form != "product":
        raise ConfigError(
            f"loss.orthogonality was given but has no effect: codebook.form = {settings.codebook.form!r} has no transform; "
            "use codebook.form = 'product'"
        )


PRESETS = Presets(PretrainSettings, "train", "presets")
preset_names, load_preset, read_toml = PRESETS.names, PRESETS.load, PRESETS.read
