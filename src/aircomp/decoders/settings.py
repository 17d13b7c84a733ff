"""Settings of the decoders, one class each."""

from typing import Literal

from pydantic import Field, field_validator, model_validator

from aircomp.common.settings import Settings

SideInformation = Literal["both", "layer", "own", "none"]
"""What a decoder is told of each slot beforehand: its layer, the base station's own codeword there, both or nothing."""


Estimate = Literal["mean", "map", "ml", "lmmse"]


# Devices of a slot choose alike more often than independent draws: measured 0.017 on ResNet fragments; of 0, 0.02, 0.04 and
# 0.08 between the second and the third decode best on ResNet, VGG and digits (`tools/fit_constants.py agreement`).
AGREEMENT = 0.03


class GampSettings(Settings):
    """Options of GAMP."""

    iterations: int = Field(default=10, ge=1, le=10_000)
    """Iterations of message passing; more than ten change little."""
    agreement: float = Field(default=AGREEMENT, ge=0, lt=1)
    """Probability that two devices of a slot choose alike beyond that of independent draws."""


class AmpDaSettings(Settings):
    """Options of AMP-DA; the defaults are those of the authors of AMP-DA-Net."""

    damping: float = Field(default=0.3, ge=0, lt=1)
    """Share of the old state that each iteration keeps."""
    max_iterations: int = Field(default=50, ge=1, le=10_000)
    """The most iterations; from the 16th on, a rising residual of the batch ends them earlier."""
    batch_slots: int = Field(default=64, ge=1, le=4096)
    """Consecutive slots that share activity, noise variance and stopping; what is left of a round is a shorter batch."""


class PosteriorSettings(Settings):
    """Options of the sampler."""

    sweeps: int = Field(default=200, ge=1, le=100_000)
    """Samples kept of every chain."""
    burn_in: int = Field(default=50, ge=0, le=100_000)
    """Sweeps before the first sample that is kept; annealed chains begin with more noise, which falls meanwhile."""
    chains: int = Field(default=2, ge=2, le=1024)
    """How many chains; the first starts from decoded counts, the others are annealed."""
    agreement: float = Field(default=AGREEMENT, ge=0, lt=1)
    """Probability that two devices of a slot choose alike beyond that of independent draws."""
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    """Seed of the random numbers."""


class NnlsSettings(Settings):
    """Options of non-negative least squares."""

    num_steps: int = Field(default=100, ge=1, le=1_000_000)
    """Steps of the projected gradient, the same number for every slot."""


class GampNetSettings(Settings):
    """The network's shape; its sizes do not depend on the codebook."""

    form: Literal["gamp-net"] = "gamp-net"
    """Which network it is; a layer's file says so."""
    num_layers: int = Field(default=10, ge=1, le=1000)
    """Unrolled iterations (paper: 10)."""
    filters: int = Field(default=32, ge=1, le=4096)
    """Channels of the CNN (paper: 32)."""
    kernel: int = Field(default=3, ge=1, le=1023)
    """Codewords a convolution sees, an odd number (paper: 3)."""
    agreement: float = Field(default=0.0, ge=0, lt=1)
    """Agreement of devices in the estimates that the network starts from (`aircomp.decoders.amp.prior`; paper: 0)."""

    @field_validator("kernel")
    @classmethod
    def _odd(cls, kernel: int) -> int:
        if kernel % 2 == 0:
            raise ValueError("expected an odd number, so that a convolution has a middle")
        return kernel


class AmpDaNetSettings(Settings):
    """The network's form and shape; its sizes do not depend on the codebook."""

    form: Literal["paper", "authors"] = "paper"
    """paper: the text, literally. authors: what the authors' published code computes."""
    num_layers: int = Field(default=10, ge=1, le=1000)
    """Unrolled iterations (paper: 10)."""
    filters: int = Field(default=32, ge=1, le=4096)
    """Channels of the CNN (paper: 32)."""
    kernel: int = Field(default=3, ge=1, le=1023)
    """Codewords a convolution sees, an odd number (paper: 3)."""
    em: Literal["batch", "slot"] = "batch"
    """Whether EM refines λ and α for a batch of slots (the paper's equations) or for each slot (its remark on K)."""
    start: Literal["constants", "estimates"] = "constants"
    """K and σ² before the first layer: 10 and 100, the authors', for the paper gives none; or estimates from the round,
    this package's."""

    @field_validator("kernel")
    @classmethod
    def _odd(cls, kernel: int) -> int:
        if kernel % 2 == 0:
            raise ValueError("expected an odd number, so that a convolution has a middle")
        return kernel

    @model_validator(mode="after")
    def _authors_have_no_options(self) -> "AmpDaNetSettings":
        if self.form == "authors" and (self.em, self.start) != ("batch", "constants"):
            raise ValueError(
                'form = "authors" has em = "batch" and start = "constants"; leave them out, or set form = "paper"'
            )
        return self


class WidenedSettings(Settings):
    """Options of GAMP with a widened likelihood."""

    iterations: int = Field(default=15, ge=1, le=10_000)
    """Iterations of message passing."""
    agreement: float = Field(default=AGREEMENT, ge=0, lt=1)
    """Probability that two devices of a slot choose alike beyond that of independent draws."""


class BlindSettings(Settings):
    """Options of the blind receiver."""

    iterations: int = Field(default=8, ge=1, le=10_000)
    """Iterations of message passing."""
    damping: float = Field(default=0.3, ge=0, lt=1)
    """Share of the old estimate that each iteration keeps."""
    agreement: float = Field(default=AGREEMENT, ge=0, lt=1)
    """Probability that two devices of a slot choose alike beyond that of independent draws."""


class SemiBlindSettings(Settings):
    """Options of the semi-blind receiver."""

    passes: int = Field(default=4, ge=1, le=1000)
    """How often the codewords of the devices and their gains are estimated in turn."""
    repairs: int = Field(default=8, ge=0, le=1000)
    """How many gains are tried anew in a block that noise does not explain."""
    blind: BlindSettings = BlindSettings()
    """Options of the first decoding, which is blind."""


class BlindNetSettings(Settings):
    """Options of the trained blind receiver."""

    agreement: float = Field(default=AGREEMENT, ge=0, lt=1)
    """Probability that two devices of a slot choose alike beyond that of independent draws."""
    memory: bool = True
    """Whether the gains of every block of eight or more slots are learnt from them, as `semi-blind` does: far better, and
    slower."""


class CovarianceSettings(Settings):
    """Options of the covariance receiver."""

    fit: Literal["nnls", "ml"] = "ml"
    """How the covariance is fitted: non-negative least squares (nnls) or maximum likelihood (ml)."""
    sweeps: int = Field(default=5, ge=1, le=10_000)
    """Passes over all codewords."""


class MdAirCompSettings(Settings):
    """Options of MD-AirComp's receiver; the defaults are the published ones."""

    damping: float = Field(default=0.3, ge=0, lt=1)
    """Share of the old state that each iteration keeps."""
    max_iterations: int = Field(default=50, ge=1, le=10_000)
    """The most iterations; from the 16th on, a rising residual of the round ends them earlier."""


class ReceiverCsiSettings(Settings):
    """Options of the link whose base station learns channels from pilots."""

    pilots: int = Field(default=1, ge=1, le=1024)
    """Slots of every coherence block that carry pilots; 32 complex uses in such slots have room for 31 devices."""
    passes: int = Field(default=4, ge=0, le=1000)
    """How often channels are improved by the codewords that were found with them; 0: pilots alone tell them."""


class TumaSettings(BlindSettings):
    """Options of zones and of their receiver."""

    zones: int | None = Field(default=None, ge=1, le=64)
    """Parts of the area, each with codewords of its own; by default as many as access points."""
    places: int = Field(default=16, ge=1, le=256)
    """Places in a zone that stand for all where a device can be."""
