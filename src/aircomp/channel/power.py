"""Power control: what devices make of what they know of the channel."""

from typing import Literal

from aircomp.common.settings import Settings


class PowerSettings(Settings):
    """How devices choose their transmit power."""

    control: Literal["none"] = "none"
    """none: every device sends at its nominal mean power. A channel with gains of one needs no more."""
