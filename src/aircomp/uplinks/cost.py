"""What a scheme costs for a model of a given size: air, energy, and work at the base station.

Nothing is declared: the scheme encodes a round of random updates, and the meter of the federated runs reads it. A model with
more than `MOST_PARAMETERS` is measured at that size and scaled by the number of slots.
"""

import math
from dataclasses import dataclass

import torch

from aircomp.channel.awgn import Awgn
from aircomp.common import rng as rngs
from aircomp.common.checks import check_methods, check_number, check_type
from aircomp.common.results import Row
from aircomp.decode.amp_da_net import AmpDaNetDecoder
from aircomp.quantize.fragment import num_slots
from aircomp.uplinks.analog import AnalogUplink
from aircomp.uplinks.base import Uplink
from aircomp.uplinks.digital import DigitalUplink
from aircomp.uplinks.ideal import IdealUplink
from aircomp.uplinks.meter import Air, measure
from aircomp.uplinks.perfect import PerfectUplink

ITERATIONS = {"amp-da": 50, "amp-da-pooled": 50, "gamp": 10, "omp": 13, "nnls": 50}
"""Passes over the codebook that each decoder makes at most."""
NOTHING_TO_DECODE = (IdealUplink, PerfectUplink, AnalogUplink)
"""Schemes whose sum arrives as it is."""
MOST_PARAMETERS, MOST_DEVICES = 100_000, 4
"""Of the round that is measured; what a device spends does not depend on the number of devices."""
SNR_DB = 10.0
"""By which devices that take turns choose their rates."""


@dataclass(frozen=True)
class Radio:
    """The air that the scheme is sent through."""

    bandwidth_hz: float = 1e6
    """Bandwidth; one complex symbol, that is two real channel uses, per second and hertz."""

    def __post_init__(self) -> None:
        check_number("bandwidth_hz", self.bandwidth_hz, low=0, open_low=True, high=1e15)


def round_cost(uplink: Uplink, num_params: int, num_active: int, radio: Radio) -> Row:
    """Return the cost of one round as a row of a result."""
    check_methods("uplink", uplink, "broadcast", "encode")
    check_number("num_params", num_params, low=1, high=1e15, integer=True)
    check_number("num_active", num_active, low=1, high=1e9, integer=True)
    check_type("radio", radio, Radio, "a Radio")
    size = min(num_params, MOST_PARAMETERS)
    air = dry_run(uplink, size, min(num_active, MOST_DEVICES))
    slots = math.ceil(air.num_slots * num_params / size)
    uses = air.channel_uses // max(air.num_slots, 1) * slots
    return {
        "uplink": uplink.name,
        "num_parameters": num_params,
        "num_active": num_active,
        "num_slots": slots,
        "channel_uses": uses,
        "channel_uses_per_parameter": uses / num_params,
        "air_seconds": uses / (2 * radio.bandwidth_hz),
        "bandwidth_hz": radio.bandwidth_hz,
        "energy_per_device": float(air.energy.mean()) * slots / max(air.num_slots, 1),
        "peak_power": air.peak_power,
        "downlink_bits": air.downlink_bits,
        "base_station_gflop": _giga(decoding_flops(uplink, num_params)),
        "side_information": ", ".join(air.side_information) or "none",
    }


def dry_run(uplink: Uplink, num_params: int, num_active: int) -> Air:
    """Meter a round of random updates, up to where it would go on the air."""
    base, *updates = torch.randn(1 + num_active, num_params, generator=rngs.generator(0, "dry run")).unbind()
    announced = uplink.broadcast(base, {}, rng=rngs.generator(0, "codebook"))
    csi = Awgn(SNR_DB).sound(num_active, announced.num_uses, rng=rngs.generator(0, "fading"))
    sent = uplink.encode(torch.stack(updates), announced, csi.at_devices, rng=rngs.generator(0, "encode"))
    return measure(uplink, announced, sent, csi)


def decoding_flops(uplink: Uplink, num_params: int) -> float | None:
    """Estimate the decoder's arithmetic for a round: four products with the codebook in each iteration and slot.

    A learned decoder adds its convolutions. Not counted are the estimates that the slots of a round share. None if unknown:
    of sampling, which runs until its chains agree, of receivers, whose work grows with antennas that only a channel has,
    and of schemes that are not this package's.
    """
    if isinstance(uplink, NOTHING_TO_DECODE):
        return 0.0
    if not isinstance(uplink, DigitalUplink):
        return None
    products = 4 * 2 * uplink.codebook.numel()
    slots = num_slots(num_params, uplink.settings.quantize.fragment_length)
    if isinstance(uplink.decoder, AmpDaNetDecoder):
        net = uplink.decoder.net
        kernels = sum(weight.numel() for weight in net.cnn.parameters() if weight.ndim > 1)
        return float(slots * (net.settings.num_layers * products + 2 * kernels * len(uplink.codebook)))
    iterations = ITERATIONS.get(uplink.name)
    return None if iterations is None else float(slots * iterations * products)


def _giga(flops: float | None) -> float | None:
    return None if flops is None else flops / 1e9
