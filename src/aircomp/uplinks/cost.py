"""What a scheme costs for a model of a given size: air, energy, and work at the base station.

Nothing is declared: the scheme encodes a round of random updates, and the meter of the federated runs reads it. A model with
more than `MOST_PARAMETERS` is measured at that size and scaled by the number of slots.
"""

import math
from dataclasses import dataclass, replace

import torch

from aircomp.channel.awgn import Awgn
from aircomp.channel.base import Channel, Csi
from aircomp.channel.fading import Fading
from aircomp.channel.power import PowerSettings
from aircomp.channel.settings import ChannelSettings
from aircomp.common import rng as rngs
from aircomp.common.checks import check_methods, check_number, check_type
from aircomp.common.results import Row
from aircomp.decode.amp_da_net import AmpDaNetDecoder
from aircomp.decode.gamp_net import GampNetDecoder
from aircomp.quantize.fragment import num_slots
from aircomp.uplinks.base import Announced, Sent, Uplink, check_devices
from aircomp.uplinks.block_pilots import BlockPilotsUplink
from aircomp.uplinks.digital import DigitalUplink
from aircomp.uplinks.ideal import IdealUplink
from aircomp.uplinks.meter import Air, measure
from aircomp.uplinks.perfect import PerfectUplink
from aircomp.uplinks.tuma import TumaUplink
from aircomp.uplinks.work import count_operations

ITERATIONS = {"amp-da": 50, "gamp": 10, "omp": 13, "nnls": 50}
"""Passes over the codebook that each decoder makes at most."""
NOTHING_TO_DECODE = (IdealUplink, PerfectUplink)
"""Schemes that are told what they would have to decode."""
MOST_PARAMETERS, MOST_DEVICES = 100_000, 4
"""Of the round that is measured; what a device spends does not depend on the number of devices."""
MOST_DECODED, MOST_HEARD = 2_560, 16
"""Parameters and devices of the round whose decoding is counted."""
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
    """Return the cost of one round as a row of a result: its air, and the base station's work.

    Raises:
        ConfigError: If the scheme cannot serve so many devices.
    """
    row = air_cost(uplink, num_params, num_active, radio)
    check_devices(uplink, num_active)
    if isinstance(uplink, BlockPilotsUplink):
        uplink.plan(row["num_slots"]).check_devices(num_active)
    return row | {"base_station_gflop": decoding_flops(uplink, num_params, num_active) / 1e9}


def air_cost(uplink: Uplink, num_params: int, num_active: int, radio: Radio) -> Row:
    """Return what one round takes of the air and of devices; nothing is decoded."""
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
        "side_information": ", ".join(air.side_information) or "none",
    }


@dataclass(frozen=True)
class DryRun:
    """A round of random updates, up to where it goes on the air."""

    channel: Channel
    announced: Announced
    csi: Csi
    sent: Sent

    @classmethod
    def of(cls, uplink: Uplink, num_params: int, num_active: int) -> "DryRun":
        """Broadcast and encode."""
        base, *updates = torch.randn(1 + num_active, num_params, generator=rngs.generator(0, "dry run")).unbind()
        announced = uplink.broadcast(base, {}, rng=rngs.generator(0, "codebook"))
        # antennas in several places need to know where devices are, which white noise does not tell
        places = isinstance(uplink, TumaUplink)
        channel = Fading(ChannelSettings(kind="fading", snr_db=SNR_DB), PowerSettings()) if places else Awgn(SNR_DB)
        csi = channel.sound(num_active, announced.num_uses, rng=rngs.generator(0, "fading"))
        sent = uplink.encode(torch.stack(updates), announced, csi.at_devices, rng=rngs.generator(0, "encode"))
        return cls(channel, announced, csi, sent)


def dry_run(uplink: Uplink, num_params: int, num_active: int) -> Air:
    """Meter a round of random updates."""
    run = DryRun.of(uplink, num_params, num_active)
    return measure(uplink, run.announced, run.sent, run.csi)


def decoding_flops(uplink: Uplink, num_params: int, num_active: int) -> float:
    """Estimate the base station's arithmetic for a round.

    Of the digital link with a decoder whose iterations are known: four products with the codebook in each iteration and slot,
    and the convolutions of a learned decoder; not the estimates that the slots of a round share. Of all other schemes, yours
    too: what a round of one antenna, `MOST_DECODED` parameters and at most `MOST_HEARD` devices takes, counted while it is
    decoded and scaled to the size of the model. That errs upwards for receivers that settle the noise on some slots of a
    round, because a small round has few others.
    """
    if isinstance(uplink, NOTHING_TO_DECODE):
        return 0.0
    slots = num_slots(num_params, uplink.settings.quantize.fragment_length) if isinstance(uplink, DigitalUplink) else 0
    if isinstance(uplink, DigitalUplink) and isinstance(uplink.decoder, AmpDaNetDecoder | GampNetDecoder):
        net = uplink.decoder.net
        kernels = sum(weight.numel() for weight in net.cnn.parameters() if weight.ndim > 1)
        products = net.settings.num_layers * _products(uplink)
        return float(slots * (products + 2 * kernels * len(uplink.codebook)))
    if isinstance(uplink, DigitalUplink) and uplink.name in ITERATIONS:
        return float(slots * ITERATIONS[uplink.name] * _products(uplink))
    size = min(num_params, MOST_DECODED)
    run = DryRun.of(uplink, size, min(num_active, MOST_HEARD))
    received = run.channel.carry(run.sent.signal, run.csi, rng=rngs.generator(0, "noise"))
    announced = replace(run.announced, agreed=run.sent.agreed)
    return count_operations(lambda: uplink.decode(received, announced, run.csi.at_receiver)) * num_params / size


def _products(uplink: DigitalUplink) -> int:
    """Return the operations of one iteration on one slot."""
    return 4 * 2 * uplink.codebook.numel()
