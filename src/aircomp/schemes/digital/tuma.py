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
from aircomp.decoders.tuma import Tuma, Zones
from aircomp.errors import ConfigError
from aircomp.quantize.codebook import kmeans_plus_plus
from aircomp.schemes.base import Broadcast, Memory, Scheme, SchemeContext, Sent
from aircomp.schemes.digital.counting import codebook_of
from aircomp.schemes.digital.link import Digital, DigitalPrivate
from aircomp.schemes.digital.radio import Radio
from aircomp.schemes.digital.received import NoDecoder, Received, check_even
from aircomp.schemes.digital.repetition import Repetition
from aircomp.schemes.outputs import Counts
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import TumaLinkSettings

MOST_WORDS = 4096
"""Codewords of all zones: they are designed together, with matrices of their number squared, which here take 134 MB each."""
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


@scheme(
    "tuma",
    sends="codewords of the codebook of its zone",
    needs="any, with fading",
    source="Okumuş et al. 2025",
    checked="derived",
    against="the law of the gains of a zone, and counts without noise",
)
class TumaLink(Digital):
    """The digital link with zones.

    Args:
        settings: Its options.
        context: What the link is made for.
        words: The random-access codewords of all zones, one zone after the other.
    """

    settings_class = TumaLinkSettings
    needs_places = True

    @classmethod
    def make(cls, settings: TumaLinkSettings, context: SchemeContext) -> Scheme:
        """Draw a codebook for every zone."""
        zones, number = settings.decoder.zones or context.access_points, settings.quantize.num_codewords
        if zones * number > MOST_WORDS:
            raise ConfigError(
                f"{zones} zones of {number} codewords are {zones * number}, and all zones together have at most "
                f"{MOST_WORDS}; lower uplink.decoder.zones or quantize.num_codewords"
            )
        all_words = settings.changed(**{"quantize.num_codewords": zones * number})
        words = codebook_of(Received.designed_codebook, all_words, context)
        if len(words) != zones * number:
            raise ConfigError(
                f"the trained codebook has {len(words)} codewords, and {zones} zones of {number} need {zones * number}; "
                "leave uplink.codebook at 'auto'"
            )
        link = cls(settings, context, words)
        return link if settings.repeat == 1 else Repetition(link, settings.repeat)

    def __init__(self, settings: TumaLinkSettings, context: SchemeContext, words: Float[Tensor, "words uses"]):
        check_even(self.name, words)
        number = settings.quantize.num_codewords
        super().__init__(settings, context, words[:number], NoDecoder())
        self.words, self.zones, self.receiver_settings = words, len(words) // number, settings.decoder

    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Choose codewords, and send those of the own zone."""
        sent = super().encode(messages, broadcast, csi, rng=rng)
        if self.zones == 1:
            return sent
        signal: Any = sent.signal  # Codewords
        zone = zone_of(_known(csi.positions, self.name), self.zones).to(signal.indices.device)
        words = signal.indices.long() + len(self.codebook) * zone[:, None]
        return replace(sent, signal=replace(signal, indices=words, codebook=self.words))

    def decode(
        self,
        received: Inexact[Tensor, "antennas slots uses"],
        broadcast: Broadcast,
        private: DigitalPrivate,
        csi: AtReceiver,
    ) -> tuple[Counts, Memory]:
        """Estimate how many devices sent each codeword, whatever their zone."""
        zones = known_zones(_known(csi.layout, self.name), self.zones, self.receiver_settings.places)
        receiver = Tuma(pack(self.words), zones, self.receiver_settings)
        return Radio(self, receiver).decode(received, broadcast, private, csi)

    def diagnose(self, sent: Sent, broadcast: Broadcast, output: Any) -> dict[str, float]:
        """Compare the true counts with the decoded ones."""
        signal: Any = sent.signal
        chosen = replace(signal, indices=signal.indices % len(self.codebook))
        return super().diagnose(replace(sent, signal=chosen), broadcast, output)


def _known(places: Any, name: str) -> Any:
    if places is None:
        raise ConfigError(
            f"uplink = {name!r} needs to know places; use channel.kind = 'fading' without in-phase control"
        )
    return places
