"""Settings of codebooks and of learned codes."""

from typing import Literal

from pydantic import Field, model_validator

from aircomp.common.settings import Settings

CodebookKind = Literal["gaussian", "bernoulli", "two-bases", "bases", "low-coherence", "low-coherence-real"]


MOST_LEVELS, MOST_TYPES = 8, 1001
"""What constellations are searched for: more types leave points too near to each other to be of use."""


class CodebookSettings(Settings):
    """Where the codebook starts and how it is learned."""

    start: CodebookKind = "two-bases"
    """Codebook before the first step (paper: gaussian; two orthonormal bases are better before and after training)."""
    form: Literal["product", "single", "fixed"] = "product"
    """What training moves. product: base codewords and a transform, as in SimVQ (the paper's). single: one matrix. fixed:
    nothing."""
    noise_follows: bool = False
    """Whether training has noise that follows the power that arrives, as under the `slot` and `round` SNR. Codewords then
    learn to cancel in the mean over devices, which costs power and says nothing about the counts (paper: no)."""
    common: float = Field(default=0.0, ge=0, lt=1)
    """Share of each codeword's energy in one direction that all have in common and nothing else has (paper: 0). Whatever
    devices choose, it adds up to their number, which training would otherwise hide."""

    @model_validator(mode="after")
    def _check(self) -> "CodebookSettings":
        if self.noise_follows and self.form == "fixed":
            raise ValueError(
                "noise_follows is on, but form = 'fixed' has no gradients; turn it off, or learn the codebook"
            )
        return self


Form = Literal["systematic", "free"]


class AnalogCodeSettings(Settings):
    """The networks of a learned analog code."""

    form: Form = "systematic"
    """systematic: the parameters are sent as they are, and a network fills the other uses. free: the network makes all uses
    of a slot, as in nomographic networks."""
    width: int = Field(default=64, ge=1, le=4096)
    """Units of each of the two hidden layers, on both sides."""
    devices: int | None = Field(default=None, ge=1, le=1024)
    """How many devices have networks of their own, each of which sees its device's SNR: nomographic networks as published. By
    default one network serves any number of devices, and does not see their channels."""

    @model_validator(mode="after")
    def _check(self) -> "AnalogCodeSettings":
        if self.devices is not None and self.form != "free":
            raise ValueError(f"devices = {self.devices} is for form = 'free', but form = {self.form!r} was given")
        return self


class JointCodeSettings(Settings):
    """The network of a joint code."""

    width: int = Field(default=24, ge=1, le=1024)
    """Units of each of its two hidden layers."""
