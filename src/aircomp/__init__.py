"""Digital over-the-air computation for federated edge learning: simulate, decode, compare.

    link = aircomp.Link("gamp", aircomp.Awgn(snr_db=5.0))
    sent = link.send(updates)                            # one round: sent.update, sent.nmse, sent.cost
    run = aircomp.federate(model, clients, link, loss=loss, test=test)      # a federation of any task
    run = aircomp.simulate("digits", uplink="gamp-net", snr_db=10.0)        # a preset

    layer = aircomp.CommunicationLayer.load()
    received = aircomp.transmit(counts, layer.codebook, snr_db=5.0, rng=torch.Generator().manual_seed(0))
    layer.decode(received, popularity).counts

What is listed here is the public API, and with the extra `flower` also `UplinkStrategy` and `uplink_mod`; other modules may
move. The library logs under the name `aircomp` and prints nothing.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# the module, and the name in it where that is another; none after the colon is the module itself
_PUBLIC = {
    "Link": "aircomp.link",
    "Exchange": "aircomp.link",
    "Awgn": "aircomp.channel.awgn",
    "Fading": "aircomp.channel.fading",
    "federate": "aircomp.federation.federate",
    "Local": "aircomp.device.settings:LocalSettings",
    "Uniform": "aircomp.federation.settings",
    "Fixed": "aircomp.federation.settings",
    "Bernoulli": "aircomp.federation.settings",
    "Trace": "aircomp.federation.settings",
    "Server": "aircomp.server.settings:ServerSettings",
    "Feedback": "aircomp.device.settings:FeedbackSettings",
    "Corruption": "aircomp.device.settings:CorruptionSettings",
    "split": "aircomp.data.clients",
    "metrics": "aircomp.measure.scores:",
    "plot": "aircomp.measure.plot",
    "simulate": "aircomp.federation.simulate",
    "Simulation": "aircomp.federation.run",
    "arena": "aircomp.studies.call",
    "sweep": "aircomp.studies.call",
    "transmit": "aircomp.channel.awgn",
    "Recording": "aircomp.channel.sigmf",
    "read_sigmf": "aircomp.channel.sigmf",
    "write_sigmf": "aircomp.channel.sigmf",
    "make_decoder": "aircomp.schemes.digital.decoders",
    "decoder_names": "aircomp.schemes.digital.decoders",
    "Decoded": "aircomp.decoders.base",
    "make_codebook": "aircomp.encode.codebook",
    "aggregate": "aircomp.aggregation.rules",
    "aggregator_names": "aircomp.aggregation.rules",
    "make_scheme": "aircomp.schemes.registry",
    "scheme": "aircomp.schemes.registry",
    "uplink_names": "aircomp.schemes.registry",
    "Scheme": "aircomp.schemes.base",
    "MeanScheme": "aircomp.schemes.base",
    "Broadcast": "aircomp.schemes.base",
    "Sent": "aircomp.schemes.base",
    "Counts": "aircomp.schemes.outputs",
    "Mean": "aircomp.schemes.outputs",
    "Vectors": "aircomp.schemes.outputs",
    "Vote": "aircomp.schemes.outputs",
    "CommunicationLayer": "aircomp.layer.communication",
    "layer_names": "aircomp.layer.zoo",
    "pick_layer": "aircomp.layer.zoo",
    "AirCompError": "aircomp.errors",
}
_OF_FLOWER = {"UplinkStrategy": "aircomp.adapters.flower", "uplink_mod": "aircomp.adapters.flower"}
"""Public with the extra `flower` alone."""

__all__ = [
    "AirCompError",
    "Awgn",
    "Bernoulli",
    "Broadcast",
    "CommunicationLayer",
    "Corruption",
    "Counts",
    "Decoded",
    "Exchange",
    "Fading",
    "Feedback",
    "Fixed",
    "Link",
    "Local",
    "Mean",
    "MeanScheme",
    "Recording",
    "Scheme",
    "Sent",
    "Server",
    "Simulation",
    "Trace",
    "Uniform",
    "Vectors",
    "Vote",
    "__version__",
    "aggregate",
    "aggregator_names",
    "arena",
    "decoder_names",
    "federate",
    "layer_names",
    "make_codebook",
    "make_decoder",
    "make_scheme",
    "metrics",
    "pick_layer",
    "plot",
    "read_sigmf",
    "scheme",
    "simulate",
    "split",
    "sweep",
    "transmit",
    "uplink_names",
    "write_sigmf",
]

if TYPE_CHECKING:
    from aircomp.aggregation.rules import aggregate, aggregator_names
    from aircomp.channel.awgn import Awgn, transmit
    from aircomp.channel.fading import Fading
    from aircomp.channel.sigmf import Recording, read_sigmf, write_sigmf
    from aircomp.data.clients import split
    from aircomp.decoders.base import Decoded
    from aircomp.device.settings import CorruptionSettings as Corruption
    from aircomp.device.settings import FeedbackSettings as Feedback
    from aircomp.device.settings import LocalSettings as Local
    from aircomp.encode.codebook import make_codebook
    from aircomp.errors import AirCompError
    from aircomp.federation.federate import federate
    from aircomp.federation.run import Simulation
    from aircomp.federation.settings import Bernoulli, Fixed, Trace, Uniform
    from aircomp.federation.simulate import simulate
    from aircomp.layer.communication import CommunicationLayer
    from aircomp.layer.zoo import layer_names, pick_layer
    from aircomp.link import Exchange, Link
    from aircomp.measure import scores as metrics
    from aircomp.measure.plot import plot
    from aircomp.schemes.base import Broadcast, MeanScheme, Scheme, Sent
    from aircomp.schemes.digital.decoders import decoder_names, make_decoder
    from aircomp.schemes.outputs import Counts, Mean, Vectors, Vote
    from aircomp.schemes.registry import make_scheme, scheme, uplink_names
    from aircomp.server.settings import ServerSettings as Server
    from aircomp.studies.call import arena, sweep


def __dir__() -> list[str]:
    """List the public names, also those that are not imported yet."""
    return __all__


def __getattr__(name: str) -> Any:
    """Import public names when first used: `aircomp --help` should not wait for torch."""
    from importlib import import_module

    known = _PUBLIC | _OF_FLOWER
    if name not in known:
        raise AttributeError(f"module 'aircomp' has no attribute {name!r}")
    module, other, inside = known[name].partition(":")
    found = import_module(module)
    return found if other and not inside else getattr(found, inside or name)
