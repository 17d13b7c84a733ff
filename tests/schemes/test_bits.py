r"""No scheme is exact in more slots than the bits that the air carries allow.

Devices send fragments that are the base station's codewords, each drawn on its own with equal shares. So the counts of a slot
hold $H$ bits, and nothing beside the air tells of them. What arrives is at most $l/2 \log_2(1 + \mathrm{SNR})$ bits: no
signal of that power tells more, with gains of one, or with gains that the base station knows better than it can (the
logarithm is concave, so gains that differ carry less than their mean). By Fano's inequality a share of the slots is wrong
(`aircomp.measure.information.exact_limit`).
"""

from dataclasses import dataclass

import pytest
import torch

from aircomp.channel.awgn import Awgn
from aircomp.channel.fading import Fading
from aircomp.channel.settings import ChannelSettings, PowerSettings
from aircomp.common.radio import SnrReference
from aircomp.encode.codebook import count
from aircomp.link import Exchange, Link, communicate
from aircomp.measure.information import capacity_bits, exact_limit
from aircomp.quantize.levels import nearest_level
from aircomp.schemes.base import SchemeContext
from aircomp.schemes.outputs import Counts
from aircomp.schemes.registry import make_scheme, scheme_class
from aircomp.schemes.settings import scheme_names
from helpers.draws import seeded
from helpers.schemes import needs_phase, sized, uses_air

CODEWORDS, LENGTH, SLOTS, BLOCK = 128, 20, 512, 64
SHARES = torch.ones(CODEWORDS)
LUCK = 3 * 0.5 / SLOTS**0.5
"""Three standard deviations, at most, of a share of the slots."""
OF_LEVELS = {"channelcomp": 4, "tbma-lattice": 16}
"""Count levels of single parameters, not codewords: they have a test of their own. How many times less than the limit they
may reach: a waveform for each level spends most of the power that arrives on how many devices there are."""
COUNTING = [
    name
    for name in scheme_names()
    if uses_air(name) and scheme_class(name).offers is Counts and "codeword" in scheme_class(name).facts.sends
]
"""All that count codewords."""
INDICES = ("tdma-vq", "tdma-coded", "capacity")
"""Schemes that bring every device's index: a slot is exact if all of them are right."""
SLOW = ("posterior", "semi-blind")


@dataclass(frozen=True)
class Outcome:
    share: float
    """Of the slots, exactly right."""
    limit: float


def exchange(name: str, snr_db: float, devices: int) -> Exchange:
    """Send a round of codewords through one antenna, whose SNR is that of the signal as it arrives."""
    rng = seeded(3)
    words = torch.randn(CODEWORDS, LENGTH, generator=rng)
    chosen = torch.randint(CODEWORDS, (1 + devices, SLOTS), generator=rng)
    chosen[0, :CODEWORDS] = torch.arange(CODEWORDS)  # the base station has all of them
    fades = name in COUNTING and not needs_phase(name)
    reference: SnrReference = "round"
    air = ChannelSettings(kind="fading", snr_db=snr_db, snr_reference=reference, block_slots=BLOCK)
    channel = Fading(air, PowerSettings()) if fades else Awgn(snr_db, reference)
    settings = sized(name, fragment_length=LENGTH, num_codewords=CODEWORDS)
    uplink = make_scheme(settings, SchemeContext(block_uses=64 * BLOCK if fades else 0))
    messages = words[chosen].flatten(1)
    return communicate(Link(uplink, channel), messages[0], messages[1:], {}, 0)


def measured(name: str, snr_db: float, devices: int) -> Outcome:
    done = exchange(name, snr_db, devices)
    sent = done.messages.unflatten(1, (SLOTS, LENGTH))
    if name in INDICES and len(done.output.vectors) < devices:  # a device did not get through
        right = torch.zeros(SLOTS)
    elif name in INDICES:
        right = (done.output.vectors.unflatten(1, (SLOTS, LENGTH)) - sent).abs().amax((0, 2)) < 1e-4
    else:
        output = done.output
        indices = torch.cdist(sent, output.codewords.expand(devices, -1, -1)).argmin(2)
        truth = count(indices, CODEWORDS)
        asked = torch.arange(SLOTS) if output.asked is None else output.asked
        right = torch.zeros(SLOTS, dtype=torch.bool)
        right[asked] = (output.counts == truth[asked]).all(1)
    bits = capacity_bits(snr_db, done.broadcast.num_uses) / SLOTS
    return Outcome(float(right.double().mean()), exact_limit(bits, SHARES, devices))


@pytest.mark.seconds
@pytest.mark.parametrize(("devices", "snr_db"), [(2, -8.0), (10, 0.0)])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in (*COUNTING, *INDICES)]
)
def test_no_scheme_is_exact_in_more_slots_than_bits_allow(name, devices, snr_db):
    found = measured(name, snr_db, devices)
    assert found.limit < 0.95  # the limit says something
    assert found.share <= found.limit + LUCK


@pytest.mark.seconds
def test_schemes_come_within_reach_of_the_limit():
    at_capacity, decoded = measured("capacity", -6.0, 2), measured("gamp", -6.0, 2)
    assert at_capacity.share > 0.8 * at_capacity.limit  # what is lost is which device sent what: a bit a slot
    assert decoded.share > decoded.limit / 3  # 64 uses are few for a code


def test_a_scheme_that_is_told_the_counts_passes_the_limit():
    told = measured("perfect", -6.0, 2)
    assert told.share > told.limit + LUCK


@pytest.mark.parametrize("snr_db", [-5.0, 0.0, 5.0])
@pytest.mark.parametrize("name", OF_LEVELS)
def test_no_constellation_tells_more_types_than_bits_allow(name, snr_db):
    devices, params = 6, 4000
    given = torch.randint(-1, 2, (1 + devices, params), generator=seeded(4)).float()
    link = Link((scheme := make_scheme(name)), Awgn(snr_db, "round"))
    done = communicate(link, given[0], given[1:], {}, 0)
    levels = nearest_level(
        done.sent.reconstruction / scheme._round(done.broadcast).limits, 3
    )  # the round has room for all
    right = float((done.output.counts == count(levels, 3)).all(1).double().mean())
    limit = exact_limit(capacity_bits(snr_db, done.broadcast.num_uses) / params, torch.ones(3), devices)
    assert limit < 0.95
    assert limit / OF_LEVELS[name] < right <= limit + LUCK
