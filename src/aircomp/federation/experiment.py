"""One experiment: the settings of every component in one tree, and the presets that fill it.

A preset is a TOML file that reads like the set-up paragraph of a paper; unknown keys are errors.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from aircomp.aggregation.settings import AggregateSettings
from aircomp.channel.settings import ChannelSettings, PowerSettings
from aircomp.common.settings import Presets, Settings, absolute
from aircomp.data.settings import PartitionSettings
from aircomp.device.settings import CorruptionSettings, FeedbackSettings, LocalSettings
from aircomp.engines import Engine
from aircomp.federation.settings import DataSettings, DevicesSettings, ModelSettings, OwnParts, ParticipationSettings
from aircomp.quantize.settings import FragmentSettings
from aircomp.schemes.settings import SCHEMES, SchemeSettings
from aircomp.server.settings import ServerSettings

Buffers = Literal["average", "local", "recomputed", "estimated"]

RUN_ONLY = {"rounds", "workers", "engine", "ray_address", "device", "checkpoint_seconds"}
"""Settings that do not change the bits of a round: a run may be resumed with others."""


class Experiment(Settings):
    """A federated run, completely described."""

    rounds: int = Field(default=60, ge=0, le=10**9)
    """Rounds to run."""
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    """Everything random derives from it."""
    evaluate_every: int = Field(default=1, ge=1, le=10**9)
    """Rounds between two evaluations on the test set; the last round is always evaluated."""
    workers: int = Field(default=0, ge=0, le=1024)
    """Processes that train devices; 0 means one for each core (with Ray: each core of the cluster)."""
    engine: Engine = "processes"
    """Where devices train: in this process, in local ones, or on a Ray cluster. The result does not depend on it."""
    ray_address: str = ""
    """HOST:PORT of a Ray cluster; empty means RAY_ADDRESS from the environment, or else a Ray on this machine alone."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where tensors are computed."""
    checkpoint_seconds: float = Field(default=10.0, ge=0, le=1e9)
    """Time between two checkpoints; 0 saves every round."""
    buffers: Buffers = "average"
    """What becomes of BatchNorm's statistics. average: averaged exactly outside the radio, which every result
    declares. local: each device keeps its own, and tests use the base station's. recomputed: computed anew on the
    base station's data. estimated: summed exactly and divided by the rounded estimate of the number of devices, as
    the authors' code does; this explains a part of their Table I."""
    weights: Literal["equal", "samples"] = "equal"
    """What devices count by. equal: each as one (the paper's). samples: each by how many it holds; it multiplies its update
    with its share of the samples over the mean share, which both sides know, so counts and means stay what they are."""
    start: str = ""
    """Begin from this trained model: a finished run, or a safetensors file of parameters and buffers."""
    sketch: float = Field(default=0.0, ge=0, le=1)
    """Channel uses of sketches before each round, over those of the update; 0: none. In its own turn each device sends random
    sums of its update, by which the base station admits devices; the others stay silent."""
    data: DataSettings = DataSettings()
    devices: DevicesSettings = DevicesSettings()
    participation: ParticipationSettings = ParticipationSettings()
    partition: PartitionSettings = PartitionSettings()
    model: ModelSettings = ModelSettings()
    local: LocalSettings = LocalSettings()
    corruption: CorruptionSettings = CorruptionSettings()
    feedback: FeedbackSettings = FeedbackSettings()
    uplink: SchemeSettings = SchemeSettings()
    channel: ChannelSettings = ChannelSettings()
    power: PowerSettings = PowerSettings()
    aggregate: AggregateSettings = AggregateSettings()
    server: ServerSettings = ServerSettings()
    own: OwnParts = OwnParts()

    @field_validator("start")
    @classmethod
    def _absolute(cls, start: str) -> str:
        return start and str(absolute(Path(start)))

    @field_validator("uplink", mode="before")
    @classmethod
    def _named(cls, uplink: Any) -> Any:  # Any: pydantic checks the types
        return {"name": uplink} if isinstance(uplink, str) else uplink

    def changed(self, **values: Any) -> "Experiment":
        """Return a copy with dotted-path values replaced; `uplink="gamp"` names the uplink and leaves its other settings."""
        return super().changed(**{"uplink.name" if name == "uplink" else name: v for name, v in values.items()})

    @property
    def identity(self) -> dict[str, Any]:
        """What determines the bits of every round: all settings but those that only say where and how long."""
        return self.model_dump(mode="json", exclude=RUN_ONLY)

    @property
    def scheme_name(self) -> str:
        """What results call the scheme: that of the user's own, or the one that is named."""
        return self.own.uplink or self.own.decoder or self.uplink.name

    @property
    def model_name(self) -> str:
        """What results call the model: the name of the user's own, or of the one that settings name."""
        return self.own.model or self.model.name

    @property
    def dataset_name(self) -> str:
        """What results call the dataset, likewise."""
        return self.own.dataset or self.data.name

    @property
    def rule_name(self) -> str:
        """What results call the aggregation rule, likewise."""
        return self.own.aggregator or self.aggregate.rule

    @property
    def fragment_length(self) -> int:
        """Parameters of a slot of the digital link, which schemes without slots have in mind, too."""
        return getattr(self.uplink, "quantize", FragmentSettings()).fragment_length

    @property
    def applied_snr_db(self) -> float | None:
        """The SNR that the channel has; None where there is no channel, or one of the user's own."""
        named = not self.own.uplink and not self.own.decoder
        noiseless = (named and not SCHEMES[self.uplink.name].uses_radio) or self.own.channel
        return None if noiseless else self.channel.snr_db


PRESETS = Presets(Experiment, "presets")
preset_names, load_experiment, read_toml = PRESETS.names, PRESETS.load, PRESETS.read


SHORT_NAMES = {
    "uplink": "uplink.name",
    "channel": "channel.kind",
    "snr_db": "channel.snr_db",
    "snr_reference": "channel.snr_reference",
    "aggregator": "aggregate.rule",
    "layer": "uplink.layer",
}
"""Keywords of `simulate` that stand for a setting further down."""


def full_name(name: str) -> str:
    """Return the path of a setting that has a short name; others are themselves."""
    return SHORT_NAMES.get(name, name)
