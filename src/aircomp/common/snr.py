"""What an SNR refers to: one name for what the channel sets its noise by and what a receiver knows of it."""

from typing import Literal

SnrReference = Literal["round", "slot", "transmit"]
"""The mean received power of the round, that of each slot, or the power that devices transmit.

To a receiver the last is like the first: one noise variance for the whole round.
"""
