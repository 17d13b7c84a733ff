"""One experiment: the settings of every component in one tree, and the presets that fill it.

A preset is a TOML file that reads like the set-up paragraph of a paper; unknown keys are errors.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from aircomp.aggregation.readout import Readout
from aircomp.channel import ChannelSettings, PowerSettings
from aircomp.channel.power import COHERENT
from aircomp.common.settings import Except, Needs, NeedsTable, Presets, Settings, absolute, needs
from aircomp.data.partition import PartitionSettings
from aircomp.decode.tuma import NAME as TUMA
from aircomp.device.corrupt import CorruptionSettings
from aircomp.device.feedback import FeedbackSettings
from aircomp.device.local import LocalSettings
from aircomp.engines.local import Engine
from aircomp.fl.models import ModelSettings
from aircomp.fl.own import OwnParts
from aircomp.fl.participation import ParticipationSettings
from aircomp.server.step import ServerSettings
from aircomp.uplinks.receivers import INFORMED
from aircomp.uplinks.settings import PILOTED, UplinkSettings


class DataSettings(Settings):
    """What the devices hold."""

    name: str = "digits"
    """digits, fashion-mnist or cifar10."""
    augment: bool = False
    """Random crop with padding 4 and horizontal flip, as usual for CIFAR-10."""


class DevicesSettings(Settings):
    """The devices of the federation."""

    total: int = Field(default=40, ge=1, le=1_000_000)
    """Number of devices, K_t in the paper."""


class AggregateSettings(Settings):
    """How the received messages become one update."""

    NEEDS: ClassVar[NeedsTable] = {"keep": needs("rule", "trimmed-mean", "coordinate-trimmed-mean")}

    rule: str = "mean"
    """Aggregation rule; `aircomp.aggregator_names()` lists them."""
    keep: float = Field(default=0.8, gt=0, le=1)
    """Share of the mass that the trimmed means keep; 0.8 in the paper."""
    readout: Readout = "auto"
    """What the mean is formed of. integers: the decoded counts (the paper's). soft: their posterior means. norm: the
    soft mean, scaled to the norm of the integers' mean. unbiased: the soft mean, lengthened to the length that the
    true mean has on average; it learns fastest at low SNR. auto: integers for amp-da and amp-da-net, as published,
    and for every rule but the mean; otherwise unbiased."""


Buffers = Literal["average", "local", "recomputed", "estimated"]

RUN_ONLY = {"rounds", "workers", "engine", "ray_address", "device", "checkpoint_seconds"}
"""Settings that do not change the bits of a round: a run may be resumed with others."""
LATER = {
    "start": "",
    "local.together": 1,
    "local.precision": "float32",
    "own": OwnParts().model_dump(mode="json"),
    "power.cap": False,  # before the group that it joined
    "power": PowerSettings().model_dump(mode="json", exclude={"cap"}),
    "uplink.energy": "equal",
    "uplink.rate": "fixed",
    "uplink.pilots": None,
    "uplink.peak": None,
    "server.base": "own-data",
    **{
        f"channel.{name}": value
        for name, value in ChannelSettings().model_dump(mode="json").items()
        if name not in ("snr_db", "snr_reference")
    },
    **{
        f"uplink.{name}": getattr(UplinkSettings(), name).model_dump()
        for name in (
            *("amp_da", "gamp", "posterior", "nnls", "widened", "blind", "semi_blind", "covariance"),
            *("md_aircomp", "analog", "tdma", "vote", "digits", "a_dsgd", "channelcomp", "receiver_csi", "tuma"),
            "blind_net",
        )
    },
}
"""Settings that came later, at values that change nothing: there they are no part of a run's identity, so that runs which
an older version began can be resumed."""


RENAMED = {
    "uplink": "uplink.name",
    "side_information": "uplink.side_information",
    "encode": "uplink",
    "air": "uplink",
    "quantize": "uplink.quantize",
}
"""Settings and groups by the names that they had before the uplink had a group of its own; files, flags and keywords with
those names still work."""

_OWN_UPLINK = needs("own.uplink", "")
_NOISY = (
    *needs("uplink.name", Except("ideal", "perfect"), refused=True),
    *needs("own.channel", "", refused=True),
)


class Experiment(Settings):
    """A federated run, completely described."""

    NEEDS: ClassVar[NeedsTable] = {
        "uplink.name": needs("own.decoder", "", refused=True),
        "workers": needs("engine", Except("serial")),
        "ray_address": needs("engine", "ray"),
        "buffers": (
            *needs("model.name", Except("digits-cnn")),
            Needs({"model.norm": ("batch",), "own.model": Except("")}),
        ),
        "uplink.side_information": (
            Needs({"uplink.name": ("gamp", "posterior", "gamp-net", *INFORMED, TUMA), "own.decoder": Except("")}),
        ),
        "data.name": needs("own.dataset", "", refused=True),
        "model": needs("own.model", "", refused=True),
        "local.together": needs("own.model", ""),
        "feedback": (Needs({"uplink.name": Except("ideal"), "corruption.kind": ("silent",)}),),
        "uplink": _OWN_UPLINK,
        "channel": _NOISY,
        **dict.fromkeys(("uplink.energy", "uplink.rate"), needs("channel.kind", "awgn", refused=True)),
        "uplink.pilots": (Needs({"channel.kind": ("awgn",), "uplink.name": PILOTED}, refused=True),),
        "channel.errors.csi_correlation": needs("power.control", *COHERENT),
        **dict.fromkeys(
            ("power.control", "power.threshold", "power.peak_db"),
            (*_NOISY, *needs("channel.kind", "fading", refused=True)),
        ),
        "power.cap": (*_NOISY, *needs("channel.snr_reference", "transmit", refused=True)),
        "aggregate.rule": needs("own.aggregator", "", refused=True),
        "aggregate.readout": needs("uplink.name", Except("ideal")),
        "server.include_base_station": _OWN_UPLINK,
        "partition.base_station_samples": needs("server.base", "own-data", refused=True),
    }

    rounds: int = Field(default=60, ge=0)
    """Rounds to run."""
    seed: int = Field(default=0, ge=0)
    """Everything random derives from it."""
    evaluate_every: int = Field(default=1, ge=1)
    """Rounds between two evaluations on the test set; the last round is always evaluated."""
    workers: int = Field(default=0, ge=0, le=1024)
    """Processes that train devices; 0 means one for each core (with Ray: each core of the cluster)."""
    engine: Engine = "processes"
    """Where devices train: in this process, in local ones, or on a Ray cluster. The result does not depend on it."""
    ray_address: str = ""
    """HOST:PORT of a Ray cluster; empty means RAY_ADDRESS from the environment, or else a Ray on this machine alone."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where tensors are computed."""
    checkpoint_seconds: float = Field(default=10.0, ge=0)
    """Time between two checkpoints; 0 saves every round."""
    buffers: Buffers = "average"
    """What becomes of BatchNorm's statistics. average: averaged exactly outside the radio, which every result
    declares. local: each device keeps its own, and tests use the base station's. recomputed: computed anew on the
    base station's data. estimated: summed exactly and divided by the rounded estimate of the number of devices, as
    the authors' code does; this explains a part of their Table I."""
    start: str = ""
    """Begin from this trained model: a finished run, or a safetensors file of parameters and buffers."""
    data: DataSettings = DataSettings()
    devices: DevicesSettings = DevicesSettings()
    participation: ParticipationSettings = ParticipationSettings()
    partition: PartitionSettings = PartitionSettings()
    model: ModelSettings = ModelSettings()
    local: LocalSettings = LocalSettings()
    corruption: CorruptionSettings = CorruptionSettings()
    feedback: FeedbackSettings = FeedbackSettings()
    uplink: UplinkSettings = UplinkSettings()
    channel: ChannelSettings = ChannelSettings()
    power: PowerSettings = PowerSettings()
    aggregate: AggregateSettings = AggregateSettings()
    server: ServerSettings = ServerSettings()
    own: OwnParts = OwnParts()

    @field_validator("start")
    @classmethod
    def _absolute(cls, start: str) -> str:
        return start and str(absolute(Path(start)))

    def __init__(self, **values: Any):  # Any: pydantic checks the types
        super().__init__(**with_present_names(values))

    def changed(self, **values: Any) -> "Experiment":
        """Return a copy with dotted-path values replaced; older names are taken for the present ones."""
        return super().changed(**{present_name(path): value for path, value in values.items()})

    @property
    def identity(self) -> dict[str, Any]:
        """What determines the bits of every round: all settings but those that only say where and how long."""
        settings = self.model_dump(mode="json", exclude=RUN_ONLY)
        for path, default in LATER.items():
            *groups, name = path.split(".")
            inside = settings
            for group in groups:
                inside = inside[group]
            if inside[name] == default:
                del inside[name]
        return _with_first_names(settings)

    @property
    def applied_snr_db(self) -> float | None:
        """The SNR that the channel has; None where there is no channel, or one of the user's own."""
        noiseless = self.uplink.name in ("ideal", "perfect") or self.own.channel
        return None if noiseless else self.channel.snr_db


def present_name(path: str) -> str:
    """Return a setting's path as it is today.

    >>> present_name("encode.layer"), present_name("uplink"), present_name("channel.snr_db")
    ('uplink.layer', 'uplink.name', 'channel.snr_db')
    """
    if path in RENAMED and RENAMED[path] != "uplink":
        return RENAMED[path]
    group, dot, rest = path.partition(".")
    return f"{RENAMED[group]}.{rest}" if dot and group in RENAMED and group != "uplink" else path


def with_present_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings, as an older file may hold them, in today's form."""
    found = {name: value for name, value in values.items() if not _is_older(name, value)}
    uplink = found.get("uplink", {})
    for name, value in values.items():
        if _is_older(name, value) and isinstance(uplink, Mapping):
            parts = {"quantize": value} if name == "quantize" else value if isinstance(value, Mapping) else {}
            uplink = {**uplink, **(parts or {"name" if name == "uplink" else name: value})}
            found["uplink"] = uplink
    return found


def _is_older(name: str, value: Any) -> bool:
    """Tell whether a setting has its older form; what had no such form either is left for the check of names."""
    if name in ("encode", "air", "quantize"):
        return isinstance(value, Mapping)
    return name == "side_information" or (name == "uplink" and isinstance(value, str))


def _with_first_names(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings as runs of older versions hashed them: with the uplink's parts in groups of their own."""
    uplink = dict(settings["uplink"])
    first = {"uplink": uplink.pop("name"), "side_information": uplink.pop("side_information")}
    first |= {"quantize": uplink.pop("quantize"), "air": {"repeat": uplink.pop("repeat")}, "encode": uplink}
    return settings | first


PRESETS = Presets(Experiment, "presets")
preset_names, load_experiment, read_toml = PRESETS.names, PRESETS.load, PRESETS.read
