"""Sixteen antennas in one place, or four in each of four places: how often are the counts right?"""

import statistics
from functools import cache

import torch

from aircomp.channel.base import make_channel
from aircomp.channel.settings import ChannelSettings, PowerSettings
from aircomp.common.packing import pack
from aircomp.common.rng import generator
from aircomp.decoders.fading.blind import Blind
from aircomp.decoders.fading.receiver import Reception
from aircomp.decoders.settings import BlindSettings, TumaSettings
from aircomp.decoders.tuma import Tuma
from aircomp.encode.codebook import count, make_codebook
from aircomp.encode.signal import Codewords
from aircomp.measure.metrics import count_accuracy
from aircomp.schemes.digital.tuma import known_zones, zone_of

DEVICES, CODEWORDS, USES, SLOTS, SEEDS = 10, 128, 64, 64, 5
WAYS = {
    "statistical, blind, 1 place": ("statistical", 1, 1),
    "statistical, blind, 4 places": ("statistical", 4, 1),
    "statistical, tuma, 4 places": ("statistical", 4, 4),
    "none, blind, 1 place": ("none", 1, 1),
    "none, tuma, 4 places": ("none", 4, 4),
}
"""Power control, access points and zones."""
POPULARITY = torch.arange(1.0, CODEWORDS + 1).reciprocal() / torch.arange(1.0, CODEWORDS + 1).reciprocal().sum()


@cache
def codewords(zones: int) -> torch.Tensor:
    """Draw the codewords of all zones, which takes seconds."""
    return make_codebook("low-coherence", zones * CODEWORDS, USES, rng=generator(0, "codebook"))


def accuracy(control: str, access_points: int, zones: int, snr_db: float, seed: int) -> float:
    """Send a round, with new places of the devices, and count."""
    channel = ChannelSettings(
        kind="fading",
        snr_db=snr_db,
        snr_reference="transmit",
        antennas=16,
        access_points=access_points,
        path_loss=3.76,
        block_slots=1,
    )
    air = make_channel(channel, PowerSettings(control=control))
    csi = air.sound(DEVICES, SLOTS * USES, rng=generator(seed, "fading"))
    codebook = codewords(zones)
    chosen = torch.multinomial(POPULARITY.expand(DEVICES, -1), SLOTS, True, generator=generator(seed, "choices"))
    zone = zone_of(csi.at_devices.positions, zones)
    sent = Codewords(chosen + CODEWORDS * zone[:, None], codebook)
    received = pack(air.carry(sent, csi, rng=generator(seed, "noise")))
    if zones == 1:
        receiver = Blind(pack(codebook), BlindSettings(agreement=0.0))
    else:
        settings = TumaSettings(agreement=0.0)
        receiver = Tuma(pack(codebook), known_zones(csi.at_receiver.layout, zones, settings.places), settings)
    seen = Reception(received, POPULARITY, gain_model=csi.at_receiver.gain_model, num_active=float(DEVICES))
    return count_accuracy(count(chosen, CODEWORDS), receiver.receive(seen)[0].counts)


if __name__ == "__main__":
    for name, way in WAYS.items():
        for snr_db in (-10.0, 0.0, 5.0, 10.0):
            found = [accuracy(*way, snr_db, seed) for seed in range(SEEDS)]
            print(
                f"{name:30} {snr_db:4.0f} dB {statistics.fmean(found):.3f} ± {statistics.stdev(found):.3f}", flush=True
            )
