"""How layers are trained: all settings in one tree for each kind, and the presets that fill it."""

import math
from collections.abc import Collection
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from aircomp.common.settings import Presets, Settings, Tagged
from aircomp.decoders.settings import AmpDaNetSettings, GampNetSettings
from aircomp.encode.settings import AnalogCodeSettings, CodebookSettings, JointCodeSettings
from aircomp.errors import ConfigError

MAX_CODEWORDS = 32_767


Order = Literal["popularity", "none", "cosine"]


class BatchesSettings(Settings):
    """How saved rounds are dealt out and cut into batches, whatever is trained."""

    validation_fraction: float = Field(default=0.1, gt=0, lt=1)
    """Share of the rounds that are used to choose the best epoch; at least one round."""
    test_fraction: float = Field(default=0.1, gt=0, lt=1)
    """Share of the rounds kept for the final table; at least one round."""
    validation_samples: int = Field(default=4_096, ge=1, le=10**9)
    """Slots of the validation rounds; every epoch has the same slots and the same noise (paper: 8,000)."""
    batch_slots: int = Field(default=64, ge=1, le=65_536)
    """Slots of one batch, all from one round; each batch is one step of the optimiser (paper: 64)."""
    snr_db_low: float = Field(default=0.0, ge=-40, le=60)
    """Each batch draws its SNR uniformly in decibels, from here …"""
    snr_db_high: float = Field(default=20.0, ge=-40, le=60)
    """… to here."""

    @model_validator(mode="after")
    def _check(self) -> "BatchesSettings":
        for name in (n.removesuffix("_low") for n in type(self).model_fields if n.endswith("_low")):
            low, high = getattr(self, f"{name}_low"), getattr(self, f"{name}_high")
            if high is not None and low > high:
                raise ValueError(f"{name}_low = {low} is above {name}_high = {high}; swap them")
        if self.validation_fraction + self.test_fraction >= 1:
            raise ValueError("validation_fraction and test_fraction leave nothing to train on; lower one of them")
        return self

    def snr_db(self, share: float) -> float:
        """Return the SNR at a share of the range, in decibels."""
        return self.snr_db_low + share * (self.snr_db_high - self.snr_db_low)


class OrderSettings(BatchesSettings):
    """How saved rounds are quantised and how many of their slots are used, for a communication layer of any form."""

    order: Order = "popularity"
    """Order of the codewords: most popular first, as k-means++ drew them (none), or similar directions side by side. With
    none, rounds that were saved in another order are quantised anew where they hold raw fragments; otherwise all rounds of
    a directory get one shuffle, the same for each."""
    curvature_aware: bool = False
    """Quantise anew in a space where directions of low variance weigh more; needs raw fragments."""
    train_samples: int | None = Field(default=None, ge=1, le=10**9)
    """Slots drawn once from the training rounds, or all of them."""
    test_samples: int = Field(default=10_000, ge=1, le=10**9)
    """Slots of the test rounds for the final table (paper: 10,000)."""
    num_codewords: int | None = Field(default=None, ge=2, le=MAX_CODEWORDS)
    """Quantise anew with so many codewords; needs raw fragments. None: as the rounds were collected."""


class RoundsSettings(OrderSettings):
    """What is trained on."""

    snr_reference: Literal["slot", "round", "mixed"] = "mixed"
    """What the SNR refers to: each slot's power (the paper's code), the mean over the batch, or a coin toss for each."""
    devices_low: int = Field(default=1, ge=1, le=10_000)
    """Each batch draws its number of devices, those about the geometric mean most often, from here …"""
    devices_high: int | None = Field(default=None, ge=1, le=10_000)
    """… to here, as far as its round has so many; None: all devices of the round (paper)."""
    zipf: float = Field(default=0.0, ge=0, le=1)
    """Share of the batches whose devices choose independently by a Zipf law with an exponent from 0 to 2 (paper: none)."""
    estimates: Literal["batch", "round"] = "batch"
    """What decoding a batch starts from: estimates of rates and noise from its own slots, or about those that all slots of
    its round would tell, as where the layer is used. These take no time to find."""
    side_information: bool = False
    """Whether slots have rates of their own, from side information: their layer and the base station's codeword
    (paper: no)."""


class LossSettings(Settings):
    """Weights of the terms beside the squared error of the counts, which has weight one."""

    per_device: bool = False
    """Divide the errors of the counts and of the number of devices by that number, so that crowded slots weigh no more than
    others (paper: no)."""

    sparsity: float = Field(default=0.01, ge=0, le=1e6)
    """Weight of the ratio of the soft counts' sum to the true sum (paper: λ₁ = 0.01)."""
    orthogonality: float = Field(default=0.001, ge=0, le=1e6)
    """Weight of the codebook transform's distance from an orthogonal one (paper: λ_W = 0.001)."""
    activity: float = Field(default=0.01, ge=0, le=1e6)
    """Weight of the squared error of the number of active devices (paper: λ_K = 0.01)."""
    quantization: float = Field(default=0.0, ge=0, le=1e6)
    """Weight of the aggregate's error against the unquantised aggregate; needs raw fragments (paper: 0, in a variant
    0.1)."""
    update: float = Field(default=0.0, ge=0, le=1e6)
    """Weight of the aggregate's error against the aggregate of the true counts. An error of a count then costs what it does
    to the update."""


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


class PaperLossSettings(Settings):
    """Weights of the terms beside the squared error of the counts, which has weight one (Sec. III-E, Loss Function)."""

    sparsity: float = Field(default=0.01, ge=0, le=1e6)
    """λ₁, of the soft counts' ℓ1 norm over the true one."""
    orthogonality: float = Field(default=0.001, ge=0, le=1e6)
    """λ_W, of the codebook transform's distance from an orthogonal one."""
    activity: float = Field(default=0.01, ge=0, le=1e6)
    """λ_K, of the squared error of the number of devices; slots of a batch share the estimate."""
    quantization: float = Field(default=0.0, ge=0, le=1e6)
    """λ_q, of the energy that quantisation leaves of each device's messages over theirs (the paper's variant: 0.1). Nothing
    that is trained moves it, so it shifts the loss and no gradient. Needs raw fragments."""


class PaperRoundsSettings(OrderSettings):
    """What is trained on."""

    min_rounds: int = Field(default=100, ge=3, le=10**6)
    """Fewest rounds that training takes, so that few slots of many rounds are seen."""
    train_samples: int | None = Field(default=64_000, ge=1, le=10**9)
    """Slots drawn once from the training rounds (paper: 64,000)."""
    validation_samples: int = Field(default=8_000, ge=1, le=10**9)
    """Slots of the validation rounds; every epoch has the same slots and the same noise (paper: 8,000)."""
    batch_slots: int = Field(default=64, ge=1, le=65_536)
    """Slots of one batch, all from one round, which share what EM learns (paper: 64)."""
    block_batches: int | None = Field(default=None, ge=1, le=10**6)
    """Batches whose gradients are accumulated for one step; None: all batches of a round (paper). With one, an epoch of few
    rounds has many more steps."""


class PaperTrainingSettings(TrainingSettings):
    """Training of the paper's layer, completely described."""

    EXAMPLE: ClassVar[str] = "paper"

    codeword_length: int = Field(default=64, ge=1, le=65_536)
    """Real channel uses of one slot (paper: l = 64)."""
    net: AmpDaNetSettings = AmpDaNetSettings()
    codebook: CodebookSettings = CodebookSettings(start="gaussian")
    loss: PaperLossSettings = PaperLossSettings()
    data: PaperRoundsSettings = PaperRoundsSettings()

    def memory_needs(self, num_codewords: int) -> dict[str, int]:
        """Return bytes by what they are for, at the least, for `aircomp.common.memory.check_memory`."""
        net = self.net
        slots = -(-(self.data.train_samples or self.data.batch_slots) // self.data.min_rounds)
        return {
            "the layers of the decoder (net.num_layers, net.filters, net.kernel)": net.num_layers
            * (LAYER_OBJECTS + 4 * net.filters**2 * net.kernel),
            "the codebook (codeword_length)": 4 * num_codewords * self.codeword_length,
            "what a block leaves for its gradient (data.train_samples, net.num_layers, net.filters)": 4
            * slots
            * net.num_layers
            * num_codewords
            * (2 * net.filters + 40),
        }


PAPER_PRESETS = Presets(PaperTrainingSettings, "train", "paper_presets")


class CodeRoundsSettings(BatchesSettings):
    """What an analog code is trained on."""

    validation_samples: int = Field(default=8_192, ge=1, le=10**9)
    """Slots of the validation rounds; every epoch has the same slots and the same noise."""
    batch_slots: int = Field(default=256, ge=1, le=65_536)
    """Slots of one batch, all from one round."""
    snr_db_low: float = Field(default=-10.0, ge=-40, le=60)
    """Each batch draws its SNR uniformly in decibels, from here …"""
    snr_db_high: float = Field(default=20.0, ge=-40, le=60)
    """… to here."""
    devices_low: int = Field(default=2, ge=1, le=10_000)
    """Each batch draws its number of devices, small ones as often as large ones, from here …"""
    devices_high: int = Field(default=40, ge=1, le=10_000)
    """… to here, as far as the rounds have so many."""
    fading: float = Field(default=0.0, ge=0, le=1)
    """Share of the batches whose devices have Rayleigh gains, of which they undo the phases."""


class CodeSettings(TrainingSettings):
    """Training of an analog code, completely described."""

    EXAMPLE: ClassVar[str] = "learned-analog"

    codeword_length: int = Field(default=64, ge=2, le=4096)
    """Real channel uses of one slot."""
    code: AnalogCodeSettings = AnalogCodeSettings()
    data: CodeRoundsSettings = CodeRoundsSettings()

    @model_validator(mode="after")
    def _check_devices(self) -> "CodeSettings":
        if self.code.devices is not None and self.data.devices_high > self.code.devices:
            raise ValueError(
                f"data.devices_high = {self.data.devices_high} is above code.devices = {self.code.devices}; lower it"
            )
        return self


CODE_PRESETS = Presets(CodeSettings, "train", "code_presets")


class FadingSettings(Settings):
    """How gains are spread in training: each batch draws from nothing to the largest."""

    antennas: int = Field(default=64, ge=1, le=64)
    """Most antennas; small numbers are drawn as often as large ones."""
    power_db: float = Field(default=3.0, ge=0, le=20)
    """Largest standard deviation of a device's error of power, in decibels."""
    correlation: float = Field(default=0.95, ge=0, lt=1)
    """Largest correlation of neighbouring antennas."""
    ramp_deg: float = Field(default=90.0, ge=0, le=360)
    """Largest turn of a device's phase from the middle of a codeword to either end, in degrees."""


class FadedRoundsSettings(BatchesSettings):
    """What a blind receiver is trained on."""

    batch_slots: int = Field(default=96, ge=1, le=65_536)
    """Slots of one batch, all from one round; fewer with more than ten antennas."""
    snr_db_low: float = Field(default=-5.0, ge=-40, le=60)
    """Each batch draws its SNR uniformly in decibels, from here …"""
    snr_db_high: float = Field(default=15.0, ge=-40, le=60)
    """… to here."""
    drawn: float = Field(default=0.5, ge=0, le=1)
    """Share of the batches whose devices choose by a drawn power law in place of a saved round's choices."""
    devices_low: int = Field(default=3, ge=1, le=1_000)
    """Such a batch draws its number of devices, small ones as often as large ones, from here …"""
    devices_high: int = Field(default=24, ge=1, le=1_000)
    """… to here."""


class BlindTrainingSettings(TrainingSettings):
    """Training of a blind receiver, completely described."""

    EXAMPLE: ClassVar[str] = "blind-net"

    codeword_length: int = Field(default=64, ge=2, le=4096, multiple_of=2)
    """Real channel uses of one slot, two of which are a complex one."""
    fading: FadingSettings = FadingSettings()
    data: FadedRoundsSettings = FadedRoundsSettings()


BLIND_PRESETS = Presets(BlindTrainingSettings, "train", "blind_presets")


class JointTrainingSettings(TrainingSettings):
    """Training of a joint code, completely described."""

    EXAMPLE: ClassVar[str] = "joint-net"

    codeword_length: int = Field(default=64, ge=2, le=4096)
    """Real channel uses of one slot; the code then works with any, training only has these."""
    joint: JointCodeSettings = JointCodeSettings()
    data: RoundsSettings = RoundsSettings()


JOINT_PRESETS = Presets(JointTrainingSettings, "train", "joint_presets")
