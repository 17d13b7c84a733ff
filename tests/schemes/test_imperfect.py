"""Every scheme over fading, with each imperfection alone and with all of them together: it runs, and reports."""

import math

import pytest
import torch

from aircomp.channel.base import make_channel
from aircomp.channel.settings import ChannelSettings, PowerSettings
from aircomp.link import Link, communicate
from aircomp.schemes.base import SchemeContext
from aircomp.schemes.outputs import Vote
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import SchemeSettings, scheme_names
from helpers.draws import seeded
from helpers.schemes import RIVALS, needs_phase, uses_air

ERRORS = {"csi_correlation": 0.95, "phase_deg": 20.0, "power_db": 3.0, "timing": 0.2, "frequency": 1e-5}
BLOCK, SLOTS = 16, 64
ON_AIR = [name for name in scheme_names() if uses_air(name) and name != "joint-net"]
"""All but one that is refused over fading: its network knows no gains."""
SLOW = ("posterior", "semi-blind", "blind-net")


def exchange(name, errors):
    phase = needs_phase(name)
    settings = ChannelSettings(
        kind="fading",
        snr_db=15.0,
        antennas=1 if phase else 4,
        block_slots=BLOCK,
        errors=errors,
        snr_reference="transmit",
    )
    channel = make_channel(settings, PowerSettings(control="inversion" if phase else "statistical"))
    uplink = make_scheme(SchemeSettings(name=name), SchemeContext(block_uses=64 * BLOCK))
    given = torch.randn(8, 20 * SLOTS, generator=seeded(1)) ** 3
    rule = "sign-vote" if uplink.offers is Vote else "mean"
    return uplink, communicate(Link(uplink, channel, rule), given[0], given[1:], {}, 0)


def check(name, errors):
    uplink, done = exchange(name, errors)
    assert done.update.isfinite().all()
    assert done.update.any() or name == "computation-rate"  # a bound, which is silent below its threshold
    reported = uplink.diagnose(done.sent, done.broadcast, done.output)
    assert reported
    assert all(math.isfinite(value) for value in reported.values())
    assert done.air.channel_uses == 64 * SLOTS


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", RIVALS)
def test_every_rival_lives_with_each_imperfection(name, error):
    check(name, {error: ERRORS[error]})


@pytest.mark.seconds
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in ON_AIR]
)
def test_every_scheme_lives_with_all_imperfections_together(name):
    check(name, ERRORS)
