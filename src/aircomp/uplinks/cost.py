"""What a scheme costs for a model of a given size: air, energy, and work at the base station."""

from dataclasses import dataclass

from aircomp.common.checks import check_methods, check_number, check_type
from aircomp.common.results import Row
from aircomp.decode.amp_da_net import AmpDaNetDecoder
from aircomp.quantize.fragment import num_slots
from aircomp.uplinks.base import Uplink
from aircomp.uplinks.digital import DigitalUplink

ITERATIONS = {"amp-da": 50, "amp-da-pooled": 50, "gamp": 10, "omp": 13, "nnls": 50}
"""Passes over the codebook that each decoder makes at most."""


@dataclass(frozen=True)
class Radio:
    """The air that the scheme is sent through."""

    bandwidth_hz: float = 1e6
    """Bandwidth; one complex symbol, that is two real channel uses, per second and hertz."""

    def __post_init__(self) -> None:
        check_number("bandwidth_hz", self.bandwidth_hz, low=0, open_low=True, high=1e15)


def round_cost(uplink: Uplink, num_params: int, num_active: int, radio: Radio) -> Row:
    """Return the cost of one round as a row of a result."""
    check_methods("uplink", uplink, "cost")
    check_number("num_params", num_params, low=1, high=1e15, integer=True)
    check_number("num_active", num_active, low=1, high=1e9, integer=True)
    check_type("radio", radio, Radio, "a Radio")
    cost = uplink.cost(num_params, num_active)
    return {
        "uplink": uplink.name,
        "num_parameters": num_params,
        "num_active": num_active,
        "num_slots": cost.num_slots,
        "channel_uses": cost.channel_uses,
        "channel_uses_per_parameter": cost.channel_uses / num_params,
        "air_seconds": cost.channel_uses / (2 * radio.bandwidth_hz),
        "bandwidth_hz": radio.bandwidth_hz,
        "energy_per_device": cost.energy_per_device,
        "base_station_gflop": _giga(decoding_flops(uplink, num_params)),
        "side_information": ", ".join(cost.side_information) or "none",
    }


def decoding_flops(uplink: Uplink, num_params: int) -> float | None:
    """Estimate the decoder's arithmetic for a round: four products with the codebook in each iteration and slot.

    A learned decoder adds its convolutions. Not counted are the estimates that the slots of a round share. None if unknown,
    as for sampling, which runs until its chains agree.
    """
    if not isinstance(uplink, DigitalUplink):
        return 0.0
    products = 4 * 2 * uplink.codebook.numel()
    slots = num_slots(num_params, uplink.settings.fragment_length)
    if isinstance(uplink.decoder, AmpDaNetDecoder):
        net = uplink.decoder.net
        kernels = sum(weight.numel() for weight in net.cnn.parameters() if weight.ndim > 1)
        return float(slots * (net.settings.num_layers * products + 2 * kernels * len(uplink.codebook)))
    iterations = ITERATIONS.get(uplink.name)
    return None if iterations is None else float(slots * iterations * products)


def _giga(flops: float | None) -> float | None:
    return None if flops is None else flops / 1e9
