"""TUMA: the digital link over antennas in several places, with a codebook for every zone of the area.

device in zone z, codeword j ─► word z·n + j ─► air ─► antennas of every access point ─► counts of all words ─► summed over z

A device knows its own place, and so its zone. The base station knows where access points are and how power falls with
distance, so it knows how loud each of them hears a device of each zone; it does not know where devices are.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.channel.places import Layout, places
from aircomp.common.packing import pack
from aircomp.common.rng import generator
from aircomp.decode.tuma import NAME, Tuma, TumaSettings, Zones
from aircomp.errors import ConfigError
from aircomp.quantize.codebook import kmeans_plus_plus
from aircomp.uplinks.base import Announced, Memory, Relay, Sent
from aircomp.uplinks.digital import DigitalUplink, compare
from aircomp.uplinks.outputs import Counts
from aircomp.uplinks.radio import RadioUplink

_KNOWN_PLACES = 8192
"""Places that stand for the whole area in what the base station knows of zones."""
_TRIALS = 4
"""Candidates for each centre of a cluster."""


def zone_of(positions: Float[Tensor, "devices 2"], zones: int) -> Int[Tensor, " devices"]:
    """Return the zone of every device: that of the nearest of so many points, which share the area about evenly."""
    return torch.cdist(positions.double(), places(zones).to(positions.device)).argmin(dim=1)


@lru_cache(maxsize=8)
def known_zones(layout: Layout, zones: int, number: int) -> Zones:
    """Return what the base station knows of zones: their share of the area, and how their devices arrive.

    Args:
        layout: Mean gains by place.
        zones: How many there are.
        number: Places that stand for each: centres of clusters of places that are heard alike, in decibels.
    """
    everywhere = places(_KNOWN_PLACES)
    zone, levels = zone_of(everywhere, zones), layout.arriving(everywhere).log().float()
    found = [_clusters(levels[zone == z], number) for z in range(zones)]
    widest = max(len(weights) for _, weights in found)
    powers = [torch.nn.functional.pad(centres, (0, 0, 0, widest - len(centres))).exp() for centres, _ in found]
    weights = [torch.nn.functional.pad(weights, (0, widest - len(weights))) for _, weights in found]
    shares = torch.bincount(zone, minlength=zones) / len(zone)
    return Zones(shares, torch.stack(powers), torch.stack(weights))


def _clusters(
    levels: Float[Tensor, "places access_points"], number: int
) -> tuple[Float[Tensor, "clusters access_points"], Float[Tensor, " clusters"]]:
    """Return the centres of places that are heard alike, and their shares; fewer where places do not differ."""
    draws = torch.rand(number, _TRIALS, dtype=torch.float64, generator=generator(0, "places in zones"))
    seeds = levels[kmeans_plus_plus(levels, draws)]
    nearest = torch.cdist(levels, seeds).argmin(dim=1)
    sizes = torch.bincount(nearest, minlength=len(seeds))
    sums = torch.zeros_like(seeds).index_add_(0, nearest, levels)
    return sums / sizes[:, None], sizes / len(levels)


class TumaUplink(Relay):
    """The digital link with zones.

    Args:
        link: What is announced, and chosen by devices.
        codebook: The random-access codewords of all zones, one zone after the other.
        settings: Of zones and of the receiver.
    """

    offers = Counts

    def __init__(self, link: DigitalUplink, codebook: Float[Tensor, "words uses"], settings: TumaSettings):
        super().__init__(link)
        self.name, self.codebook, self.settings = link.name, codebook, settings
        self.zones = len(codebook) // len(link.codebook)
        if codebook.shape[1] % 2:
            raise ConfigError(
                f"uplink.codeword_length = {codebook.shape[1]}: {NAME!r} takes two real uses for a complex one; make it even"
            )

    def encode(
        self, messages: Float[Tensor, "devices params"], announced: Announced, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Choose codewords, and send those of the own zone."""
        sent = self.link.encode(messages, announced, csi, rng=rng)
        if self.zones == 1:
            return sent
        signal: Any = sent.signal  # Codewords: this link has no pilots
        zone = zone_of(_known(csi.positions), self.zones).to(signal.indices.device)
        words = signal.indices.long() + len(self.link.codebook) * zone[:, None]
        return replace(sent, signal=replace(signal, indices=words, codebook=self.codebook))

    def decode(
        self, received: Inexact[Tensor, "antennas sent uses"], announced: Announced, csi: AtReceiver
    ) -> tuple[Counts, Memory]:
        """Estimate how many devices sent each codeword, whatever their zone."""
        receiver = Tuma(
            pack(self.codebook), known_zones(_known(csi.layout), self.zones, self.settings.places), self.settings
        )
        return RadioUplink(self.link, receiver).decode(received, announced, csi)

    def diagnose(self, sent: Sent, announced: Announced, output: Any) -> dict[str, float]:
        """Compare the true counts with the decoded ones."""
        signal: Any = sent.signal
        chosen = replace(signal, indices=signal.indices % len(self.link.codebook))
        return compare(replace(sent, signal=chosen), announced, output)


def _known(places: Any) -> Any:
    if places is None:
        raise ConfigError(
            f"uplink = {NAME!r} needs to know places; use channel.kind = 'fading' without in-phase control"
        )
    return places
