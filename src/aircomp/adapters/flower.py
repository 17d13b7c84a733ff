"""Flower apps over our uplinks: a mod for the clients, a strategy around the server's own.

       ServerApp: UplinkStrategy                                    ClientApp(mods=[uplink_mod])
    train the base station, build the codebook
    selection of the wrapped strategy ──── arrays, codebook ───────► your training, unchanged
                                                                     update + memory ─► nearest codewords
    superpose, noise, decode, aggregate ◄── one index per fragment ─ memory stays in context.state
    global step ─► arrays of the next round

Schemes without a codebook receive messages whole. The strategy encodes them, and tells each device with the next message what
its last one stood for.

The pair is used like Flower's own pair for differential privacy: wrap the strategy, name the mod. See
`docs/howto/flower.md`.
"""

from importlib.util import find_spec

from aircomp.adapters import missing_extra

if find_spec("flwr") is None:
    raise missing_extra("flower")

from aircomp.adapters.flower_mod import uplink_mod
from aircomp.adapters.flower_records import ClientFailed
from aircomp.adapters.flower_strategy import UplinkStrategy

__all__ = ["ClientFailed", "UplinkStrategy", "uplink_mod"]
