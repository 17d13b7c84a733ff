"""Checks for your own parts: what everything downstream relies on, as plain assertions with a sentence each.

from aircomp.testing import check_uplink

def test_my_scheme():
    check_uplink(MyScheme)
"""

from aircomp.testing.channels import check_channel
from aircomp.testing.decoders import check_decoded, check_decoder
from aircomp.testing.quantizers import check_quantizer
from aircomp.testing.receivers import check_receiver
from aircomp.testing.rules import check_rule
from aircomp.testing.uplinks import check_uplink

__all__ = [
    "check_channel",
    "check_decoded",
    "check_decoder",
    "check_quantizer",
    "check_receiver",
    "check_rule",
    "check_uplink",
]
