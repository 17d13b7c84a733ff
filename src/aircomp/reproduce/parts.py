"""What results are made of: shared jobs, and what comes out of them."""

from dataclasses import dataclass
from typing import Any

from aircomp.common.results import Row
from aircomp.report.page import Figure, Table
from aircomp.reproduce.jobs import Job, Payload
from aircomp.reproduce.scales import Scale

Found = list[tuple[Row, Payload]]
"""What identifies each job within its result, and what the job found."""


@dataclass(frozen=True)
class Outcome:
    """A finished result."""

    rows: list[Row]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]


def as_published(snr_db: float) -> dict[str, Any]:
    """Return the settings of a run over the paper's network; without another layer it is the package's, `paper`."""
    return {"uplink": "amp-da-net", "side_information": "none"} | at(snr_db)


def at(snr_db: float) -> dict[str, Any]:
    """Return the settings of the paper's channel: the noise follows each slot's power, as in its code."""
    return {"channel.snr_db": snr_db, "channel.snr_reference": "slot"}


def federated(scale: Scale, seed: int, settings: dict[str, Any], layer: Job | None = None) -> Job:
    """Return one federated run; its mean is of integers, the paper's, unless the settings have another."""
    everything = {"aggregate.readout": "integers"} | scale.federated | {"seed": seed} | settings
    needs = () if layer is None else (layer,)
    if scale.central is not None:
        needs += (central(scale, settings),)
    return Job("simulate", {"preset": scale.preset, "settings": everything}, needs)


def central(scale: Scale, settings: dict[str, Any], training: dict[str, Any] | None = None) -> Job:
    """Return the central training of a federated run's model, as the scale has it unless told otherwise."""
    model = {name: value for name, value in settings.items() if name.startswith("model.")}
    return Job("central", {"preset": scale.preset, "settings": model, "central": training or scale.central})


def fragments(scale: Scale, seed: int, settings: dict[str, Any] | None = None) -> Job:
    """Return a collection of fragments, the raw ones included."""
    everything = scale.collected | {"seed": seed} | (settings or {})
    return Job("collect", {"preset": scale.collect_preset, "settings": everything, "raw": True})


def trained(scale: Scale, seed: int, settings: dict[str, Any], *collections: Job) -> Job:
    """Return a layer of the paper's, trained on some collections."""
    everything = scale.pretrained | {"seed": seed} | settings
    return Job("pretrain", {"preset": "paper", "settings": everything}, collections)
