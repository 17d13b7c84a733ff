"""What a scheme costs for a model of a given size: air, energy, and work at the base station.

Nothing is declared: the scheme encodes a round of random updates, and the meter of the federated runs reads it. A model with
more than `MOST_PARAMETERS` is measured at that size and scaled by the number of slots.
"""

import math
from dataclasses import dataclass, replace
from functools import partial

import torch

from aircomp.channel.awgn import Awgn
from aircomp.channel.base import Channel, Csi
from aircomp.channel.fading import Fading
from aircomp.channel.settings import FadingSettings, PowerSettings
from aircomp.common import rng as rngs
from aircomp.common.checks import check_methods, check_number, check_type
from aircomp.common.results import Row
from aircomp.schemes.base import Broadcast, Private, Scheme, Sent, check_devices
from aircomp.schemes.meter import Air, measure
from aircomp.schemes.work import count_operations

MOST_PARAMETERS, MOST_DEVICES = 100_000, 4
"""Of the round that is measured; what a device spends does not depend on the number of devices."""
MOST_DECODED, MOST_HEARD = 2_560, 16
"""Parameters and devices of the round whose decoding is counted."""
SNR_DB = 10.0
"""By which devices that take turns choose their rates: that of all devices together."""
BOLTZMANN = 1.380649e-23
"""Joules per kelvin."""


@dataclass(frozen=True)
class Radio:
    """The air that the scheme is sent through."""

    bandwidth_hz: float = 1e6
    """Bandwidth; one complex symbol, that is two real channel uses, per second and hertz."""
    power_dbm: float = 23.0
    """Mean power with which a device sends at the nominal energy; a phone has 23 dBm at the most, .2 W."""
    noise_figure_db: float = 5.0
    """Noise of the base station's receiver over that of its temperature, 290 K."""
    downlink_bits_per_use: float = 2.0
    """Bits that the base station broadcasts in a complex symbol of the same bandwidth."""
    turnaround_s: float = 1e-3
    """Time between the broadcast and the devices' signals, and after them."""

    def __post_init__(self) -> None:
        check_number("bandwidth_hz", self.bandwidth_hz, low=0, open_low=True, high=1e15)
        check_number("power_dbm", self.power_dbm, low=-200, high=200)
        check_number("noise_figure_db", self.noise_figure_db, low=0, high=100)
        check_number("downlink_bits_per_use", self.downlink_bits_per_use, low=0, open_low=True, high=1e3)
        check_number("turnaround_s", self.turnaround_s, low=0, high=1e6)

    @property
    def noise_dbm(self) -> float:
        """Power of the noise in the band: that of 290 K, and the receiver's."""
        return 10 * math.log10(BOLTZMANN * 290 * self.bandwidth_hz * 1e3) + self.noise_figure_db

    def path_loss_db(self, num_active: int) -> float:
        """Return how much devices may lose on the way to arrive with `SNR_DB` together."""
        return self.power_dbm + 10 * math.log10(num_active) - SNR_DB - self.noise_dbm


def round_cost(scheme: Scheme, num_params: int, num_active: int, radio: Radio) -> Row:
    """Return the cost of one round as a row of a result: its air, and the base station's work.

    Raises:
        ConfigError: If the scheme cannot serve so many devices.
    """
    row = air_cost(scheme, num_params, num_active, radio)
    check_devices(scheme, num_active)
    scheme.check_round(row["num_slots"], num_active)
    return row | {"base_station_gflop": decoding_flops(scheme, row["num_slots"], num_params, num_active) / 1e9}


def air_cost(scheme: Scheme, num_params: int, num_active: int, radio: Radio) -> Row:
    """Return what one round takes of the air and of devices; nothing is decoded."""
    check_methods("scheme", scheme, "broadcast", "encode")
    check_number("num_params", num_params, low=1, high=1e15, integer=True)
    check_number("num_active", num_active, low=1, high=1e9, integer=True)
    check_type("radio", radio, Radio, "a Radio")
    size = min(num_params, MOST_PARAMETERS)
    air = dry_run(scheme, size, min(num_active, MOST_DEVICES))
    slots = math.ceil(air.num_slots * num_params / size)
    uses = air.channel_uses // max(air.num_slots, 1) * slots
    seconds = uses / (2 * radio.bandwidth_hz)
    downlink = air.downlink_bits / (radio.bandwidth_hz * radio.downlink_bits_per_use)
    louder = float(air.energy.mean()) / air.nominal_energy if air.nominal_energy else 0.0
    return {
        "uplink": scheme.name,
        "num_parameters": num_params,
        "num_active": num_active,
        "num_slots": slots,
        "channel_uses": uses,
        "channel_uses_per_parameter": uses / num_params,
        "air_seconds": seconds,
        "round_seconds": downlink + seconds + 2 * radio.turnaround_s,
        "round_joules": 10 ** (radio.power_dbm / 10 - 3) * seconds * louder,
        "path_loss_db": radio.path_loss_db(num_active),
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
    broadcast: Broadcast
    private: Private
    csi: Csi
    sent: Sent

    @classmethod
    def of(cls, scheme: Scheme, num_params: int, num_active: int) -> "DryRun":
        """Broadcast and encode."""
        base, *updates = torch.randn(1 + num_active, num_params, generator=rngs.generator(0, "dry run")).unbind()
        announced, private = scheme.broadcast(base, {}, rng=rngs.generator(0, "codebook"))
        # antennas in several places need to know where devices are, which white noise does not tell
        fading = Fading(FadingSettings(snr_db=SNR_DB), PowerSettings())
        channel = fading if scheme.needs_places else Awgn(SNR_DB)
        csi = channel.sound(num_active, announced.num_uses, rng=rngs.generator(0, "fading"))
        sent = scheme.encode(
            torch.stack(updates), announced.at_devices(), csi.at_devices, rng=rngs.generator(0, "encode")
        )
        return cls(channel, announced, private, csi, sent)


def dry_run(scheme: Scheme, num_params: int, num_active: int) -> Air:
    """Meter a round of random updates."""
    run = DryRun.of(scheme, num_params, num_active)
    return measure(scheme, run.broadcast, run.sent, run.csi)


def decoding_flops(scheme: Scheme, num_slots: int, num_params: int, num_active: int) -> float:
    """Estimate the base station's arithmetic for a round.

    A scheme that knows it tells it (`Scheme.operations`): the digital link with a decoder whose iterations are known takes
    four products with the codebook in each iteration and slot, and the convolutions of a learned decoder; not the estimates
    that the slots of a round share. Of all other schemes, yours too: what a round of one antenna, `MOST_DECODED` parameters
    and at most `MOST_HEARD` devices takes, counted while it is decoded and scaled to the size of the model. That errs upwards
    for receivers that settle the noise on some slots of a round, because a small round has few others.
    """
    known = scheme.operations(num_slots)
    if known is not None:
        return known
    size = min(num_params, MOST_DECODED)
    run = DryRun.of(scheme, size, min(num_active, MOST_HEARD))
    received = run.sent.payload
    if received is None:
        received = run.channel.carry(run.sent.signal, run.csi, rng=rngs.generator(0, "noise"))
    announced = replace(run.broadcast, agreed=run.sent.agreed)
    decode = partial(scheme.decode, received, announced, run.private, run.csi.at_receiver)
    return count_operations(decode) * num_params / size
