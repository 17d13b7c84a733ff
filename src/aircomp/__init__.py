"""Digital over-the-air computation for federated edge learning: simulate, decode, compare.

    run = aircomp.simulate("digits", uplink="gamp-net", snr_db=10.0, rounds=20)
    run.test_accuracy

    layer = aircomp.CommunicationLayer.load()
    received = aircomp.transmit(counts, layer.codebook, snr_db=5.0, rng=torch.Generator().manual_seed(0))
    layer.decode(received, popularity).counts

What is listed here is the public API; other modules may move. The library logs under the name `aircomp` and prints nothing.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "simulate": "aircomp.fl.simulate",
    "Simulation": "aircomp.fl.simulate",
    "arena": "aircomp.comparison.call",
    "sweep": "aircomp.comparison.call",
    "transmit": "aircomp.channel.awgn",
    "make_decoder": "aircomp.uplinks.decoders",
    "decoder_names": "aircomp.uplinks.decoders",
    "Decoded": "aircomp.decode.base",
    "make_codebook": "aircomp.encode.codebook",
    "aggregate": "aircomp.aggregation.rules",
    "aggregator_names": "aircomp.aggregation.rules",
    "make_uplink": "aircomp.uplinks.schemes",
    "uplink_names": "aircomp.uplinks.schemes",
    "CommunicationLayer": "aircomp.layer",
    "layer_names": "aircomp.layer",
    "pick_layer": "aircomp.layer",
    "AirCompError": "aircomp.errors",
}

__all__ = [
    "AirCompError",
    "CommunicationLayer",
    "Decoded",
    "Simulation",
    "__version__",
    "aggregate",
    "aggregator_names",
    "arena",
    "decoder_names",
    "layer_names",
    "make_codebook",
    "make_decoder",
    "make_uplink",
    "pick_layer",
    "simulate",
    "sweep",
    "transmit",
    "uplink_names",
]

if TYPE_CHECKING:
    from aircomp.aggregation.rules import aggregate, aggregator_names
    from aircomp.channel.awgn import transmit
    from aircomp.comparison.call import arena, sweep
    from aircomp.decode.base import Decoded
    from aircomp.encode.codebook import make_codebook
    from aircomp.errors import AirCompError
    from aircomp.fl.simulate import Simulation, simulate
    from aircomp.layer import CommunicationLayer, layer_names, pick_layer
    from aircomp.uplinks.decoders import decoder_names, make_decoder
    from aircomp.uplinks.schemes import make_uplink, uplink_names


def __dir__() -> list[str]:
    """List the public names, also those that are not imported yet."""
    return __all__


def __getattr__(name: str) -> Any:
    """Import public names when first used: `aircomp --help` should not wait for torch."""
    from importlib import import_module

    if name not in _PUBLIC:
        raise AttributeError(f"module 'aircomp' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)
