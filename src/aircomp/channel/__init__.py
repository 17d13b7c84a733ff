"""What the air does: gains, superposition and noise."""

from aircomp.channel.awgn import Awgn
from aircomp.channel.base import Channel
from aircomp.channel.power import PowerSettings
from aircomp.channel.snr import ChannelSettings

__all__ = ["Awgn", "Channel", "ChannelSettings", "PowerSettings", "make_channel"]


def make_channel(settings: ChannelSettings, power: PowerSettings) -> Channel:
    """Build a channel; power control is a part of it, because it decides what the air gets."""
    match settings.kind, power.control:
        case "awgn", "none":
            return Awgn(settings.snr_db, settings.snr_reference)
