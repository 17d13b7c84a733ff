"""The link of an experiment: its scheme, its channel and its rule, for a run or for a round on its own."""

from jaxtyping import Int
from torch import Tensor

from aircomp.aggregation import Rule
from aircomp.channel import Channel, Fading, make_channel
from aircomp.decode.base import Decoder
from aircomp.fl.experiment import Experiment
from aircomp.link import Link
from aircomp.uplinks.base import Uplink, UplinkContext
from aircomp.uplinks.decoders import PUBLISHED
from aircomp.uplinks.schemes import make_uplink


def make_link(
    experiment: Experiment,
    slot_layers: Int[Tensor, " slots"] | None,
    *,
    uplink: Uplink | None = None,
    channel: Channel | None = None,
    rule: Rule | None = None,
    decoder: Decoder | None = None,
) -> Link:
    """Return what an experiment sends over; parts of the user's own take the place of those that its settings name.

    Args:
        experiment: The settings.
        slot_layers: The parameter tensor of each fragment.
        uplink: A scheme.
        channel: A channel.
        rule: An aggregation rule.
        decoder: A decoder on the digital link.
    """
    air = channel or make_channel(experiment.channel, experiment.power)
    context = UplinkContext(
        slot_layers=slot_layers,
        seed=experiment.seed,
        device=experiment.device,
        include_base_station=experiment.server.include_base_station,
        snr_reference="round" if channel is not None else experiment.channel.snr_reference,
        block_uses=air.block_uses if isinstance(air, Fading) else 0,
        access_points=air.settings.access_points if isinstance(air, Fading) else 1,
    )
    settings = experiment.aggregate
    published = decoder is None and uplink is None and experiment.uplink.name in PUBLISHED
    readout = "integers" if published and settings.readout == "auto" else settings.readout
    return Link(
        uplink or make_uplink(experiment.uplink, context, decoder=decoder),
        air,
        rule or settings.rule,
        keep=settings.keep,
        readout=readout,
        seed=experiment.seed,
        cap=experiment.power.cap,
    )
