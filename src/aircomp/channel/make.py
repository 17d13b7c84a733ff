"""The channel that settings describe."""

from aircomp.channel.awgn import Awgn
from aircomp.channel.base import Channel
from aircomp.channel.fading import Fading
from aircomp.channel.settings import AwgnSettings, BlockFadingSettings, ChannelSettings, PowerSettings


def make_channel(settings: ChannelSettings, power: PowerSettings) -> Channel:
    """Build a channel; power control is a part of it, because it decides what the air gets."""
    if isinstance(settings, BlockFadingSettings):
        return Fading(settings, power)
    assert isinstance(settings, AwgnSettings)  # a group is always one of its alternatives
    # with gains of one there is nothing to control
    return Awgn(settings.snr_db, settings.snr_reference, settings.disturbance)
