"""Settings of the server's optimiser."""

from typing import Literal

from pydantic import Field, model_validator

from aircomp.common.settings import Tagged


class ServerSettings(Tagged):
    """The server's optimiser."""

    kind: str = "fedavg"
    """fedavg: the paper's; fedavgm: with momentum; fedadam, fedyogi: with a step size for each parameter."""
    learning_rate: float = Field(default=1.0, gt=0, le=1000)
    """The global learning rate (paper: η); in fedadam and fedyogi about the step of each parameter: try 0.01 there."""
    include_base_station: bool = False
    """Whether the base station's own update takes part in the aggregate; who aggregates acts on it, not `step`."""
    base: Literal["own-data", "first-device"] = "own-data"
    """What the base station builds the quantiser from. own-data: an update of its own, from images that no device holds
    (paper: D_0). first-device: the message of the first active device, which reaches it outside the radio, as in the
    authors' code; devices then hold all images."""

    @model_validator(mode="after")
    def _has_an_update_to_include(self) -> "ServerSettings":
        if self.include_base_station and self.base == "first-device":
            raise ValueError(
                "include_base_station = true, but with base = 'first-device' the base station has no update; turn one off"
            )
        return self


class FedAvg(ServerSettings):
    """The step is the aggregate."""

    kind: Literal["fedavg"] = "fedavg"


class FedAvgM(ServerSettings):
    """The step has momentum."""

    kind: Literal["fedavgm"] = "fedavgm"
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """What is kept of the earlier steps."""


class Adaptive(ServerSettings):
    """Each parameter has a step size of its own."""

    kind: Literal["fedadam", "fedyogi"]  # pyright: ignore[reportGeneralTypeIssues] (which one must be said)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of the first moment."""
    beta2: float = Field(default=0.99, ge=0, lt=1)
    """Decay of the second moment."""
    adaptivity: float = Field(default=1e-3, ge=1e-9, le=1000)
    """τ, added to the root of the second moment; smaller adapts more."""
