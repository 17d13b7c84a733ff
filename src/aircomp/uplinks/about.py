"""What each scheme is, in words: for `aircomp schemes`, docs and pages."""

from dataclasses import dataclass

from aircomp.common.results import Row
from aircomp.uplinks.cost import Radio, air_cost
from aircomp.uplinks.schemes import make_uplink, uplink_names

_OURS = "this package"
_QIAO = "Qiao et al. 2024"
_TARIZZO = "Tarizzo et al. 2025"
_CODEWORD = "codewords of a shared codebook"


@dataclass(frozen=True)
class About:
    """A scheme in a few words."""

    sends: str
    """What a device sends."""
    channel: str
    """What the scheme needs: `none` uses no channel, `in phase` needs signals of equal phase, `any` takes every channel."""
    paper: str
    """Where it comes from."""


ABOUT = {
    "ideal": About("its update, exactly", "none", "bound"),
    "perfect": About("codeword indices, without error", "none", "bound"),
    "amp-da": About(_CODEWORD, "in phase", f"{_QIAO}, as {_TARIZZO} run it"),
    "amp-da-net": About("codewords of a learned codebook", "in phase", _TARIZZO),
    "gamp-net": About("codewords of a learned codebook", "in phase", f"{_OURS}; after {_TARIZZO}"),
    "gamp": About(_CODEWORD, "in phase", f"{_OURS}; GAMP: Rangan 2011"),
    "joint-net": About(
        "codewords that a trained network leans towards what they stand for",
        "in phase",
        f"{_OURS}, trained; joint source-channel coding",
    ),
    "posterior": About(_CODEWORD, "in phase", f"{_OURS}, by sampling"),
    "omp": About(_CODEWORD, "in phase", "Tropp and Gilbert 2007"),
    "nnls": About(_CODEWORD, "in phase", "Lawson and Hanson 1974"),
    "widened": About(_CODEWORD, "in phase, or nearly", _OURS),
    "blind": About(_CODEWORD, "any", f"{_OURS}; multisource AMP: Okumuş et al. 2025"),
    "blind-net": About(
        "codewords of a learned codebook", "any", f"{_OURS}, trained; multisource AMP: Okumuş et al. 2025"
    ),
    "semi-blind": About(_CODEWORD, "any", _OURS),
    "md-aircomp": About(_CODEWORD, "in phase at the first antenna", _QIAO),
    "receiver-csi": About(f"{_CODEWORD}, and a pilot of its own", "any", _OURS),
    "md-aircomp-plus": About(f"{_CODEWORD}, and one pilot for all", "any, many antennas", "Qiao et al. 2026"),
    "tuma": About("codewords of the codebook of its zone", "any, with fading", "Okumuş et al. 2025"),
    "covariance": About(_CODEWORD, "any", "Fengler et al. 2021"),
    "analog": About("its update, uncoded; layers with small updates louder", "in phase", _OURS),
    "hybrid": About("its update, as whole numbers and uncoded remainders", "in phase", _OURS),
    "baa": About("its update, uncoded", "in phase", "Zhu et al. 2020"),
    "cotaf": About("its update, uncoded; the longest update sets the scale", "in phase", "Sery et al. 2021"),
    "fed-ota": About("its update, uncoded", "in phase, behind a beam", "Yang et al. 2020"),
    "blind-analog": About("its update, uncoded", "any, many antennas", "composite pilot: Amiri et al. 2021"),
    "tdma-vq": About("codeword indices, in turns", "any", f"{_OURS}, rates at capacity"),
    "tdma-coded": About("codeword indices, in turns, with a convolutional code", "in phase", "Viterbi 1967"),
    "tdma-qsgd": About("parameters rounded at random, in turns", "any", "Alistarh et al. 2017"),
    "tdma-sign": About("signs and one scale, in turns", "any", "Karimireddy et al. 2019"),
    "tdma-topk": About("its largest parameters, in turns", "any", "Stich et al. 2018"),
    "d-dsgd": About("where its largest parameters are, and their mean, in turns", "any", "Amiri and Gündüz 2020"),
    "obda": About("signs", "in phase", "Zhu et al. 2021"),
    "fsk-mv": About("signs, as one of two tones", "any", "Şahin et al. 2021"),
    "sumcomp": About("two digits of every parameter", "in phase", "Razavikia et al. 2025"),
    "bit-slicing": About("three digits of every parameter", "in phase", "Liu et al. 2025"),
    "channelcomp": About("one of three levels of every parameter, as points", "in phase", "Razavikia et al. 2024"),
    "a-dsgd": About("random sums of its largest parameters, uncoded", "in phase", "Amiri and Gündüz 2020"),
    "ca-dsgd": About("what a-dsgd does, behind its inverted gain", "in phase, by inversion", "Amiri and Gündüz 2020b"),
    "capacity": About("codeword indices, decoded together", "any", "bound: multiple-access capacity"),
    "compute-forward": About("whole numbers, of which sums arrive", "in phase", "bound: Nazer and Gastpar 2011"),
    "learned-analog": About(
        "its update, through a trained network", "in phase", f"{_OURS}; nomographic networks: Bouzinis et al. 2024"
    ),
    "reed": About("its update, as energies of two tones", "any, many antennas", "Chen and Bozorgasl 2026"),
}


def scheme_rows(num_params: int, num_active: int, radio: Radio) -> list[Row]:
    """Return a row for every scheme: what it sends, offers and needs to know, and what it costs.

    Args:
        num_params: Parameters of the model.
        num_active: Devices that send.
        radio: The air that they share.
    """
    rows = []
    for name in uplink_names():
        uplink, about = make_uplink(name), ABOUT[name]
        words = {"sends": about.sends, "offers": uplink.offers.__name__.lower(), "needs_channel": about.channel}
        rows.append(air_cost(uplink, num_params, num_active, radio) | words | {"paper": about.paper})
    return rows
