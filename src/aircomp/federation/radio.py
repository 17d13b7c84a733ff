"""The link of an experiment: its scheme, its channel and its rule, for a run or for a round on its own."""

from jaxtyping import Int
from torch import Tensor

from aircomp.aggregation.rules import Rule
from aircomp.aggregation.settings import TrimmedRule
from aircomp.channel.base import Channel, make_channel
from aircomp.decoders.base import Decoder
from aircomp.federation.experiment import Experiment
from aircomp.link import Link, context_for
from aircomp.schemes.base import Scheme
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import SlotSettings


def make_link(
    experiment: Experiment,
    slot_layers: Int[Tensor, " slots"] | None,
    *,
    shapes: tuple[tuple[int, ...], ...] | None = None,
    uplink: Scheme | None = None,
    channel: Channel | None = None,
    rule: Rule | None = None,
    decoder: Decoder | None = None,
) -> Link:
    """Return what an experiment sends over; parts of the user's own take the place of those that its settings name.

    Args:
        experiment: The settings.
        slot_layers: The parameter tensor of each fragment.
        shapes: The shapes of those tensors.
        uplink: A scheme.
        channel: A channel.
        rule: An aggregation rule.
        decoder: A decoder on the digital link.
    """
    air = channel or make_channel(experiment.channel, experiment.power)
    context = context_for(
        air,
        slot_layers,
        shapes,
        readout=experiment.aggregate.readout,
        seed=experiment.seed,
        device=experiment.device,
        include_base_station=experiment.server.include_base_station,
    )
    settings = experiment.aggregate
    scheme = uplink
    if decoder is not None:
        from aircomp.schemes.digital.counting import with_decoder  # other schemes need no digital link

        scheme = with_decoder(decoder, experiment.own.decoder, experiment.uplink, context)
    elif scheme is None:
        scheme = make_scheme(experiment.uplink, context)
    return Link(
        scheme,
        air,
        rule or settings.rule,
        keep=settings.keep if isinstance(settings, TrimmedRule) else 1.0,
        readout=settings.readout,
        seed=experiment.seed,
        cap=experiment.power.cap,
        budget=None if uplink is None else (experiment.fragment_length, _slot_uses(experiment)),
    )


def _slot_uses(experiment: Experiment) -> int:
    """Return the real channel uses of a slot of the digital link, at whose cost schemes are compared."""
    return getattr(experiment.uplink, "codeword_length", SlotSettings.model_fields["codeword_length"].default)
