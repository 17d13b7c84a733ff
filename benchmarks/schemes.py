"""How long does a round of each scheme take? One thread, a process for each scheme, `amp-da` beside each of them.

What is timed is `aircomp.link.communicate`, all that goes over the radio; devices do not train. Schemes that need signals in
phase meet white noise, and the others fading with as many antennas as asked for. Time is the processor's, which other
programs do not lengthen much.
"""

import multiprocessing
import resource
import time
from dataclasses import dataclass

import torch

from aircomp.common import rng as rngs
from aircomp.common.results import Row
from aircomp.federation.configure import configure
from aircomp.federation.experiment import Experiment
from aircomp.federation.simulate import make_link
from aircomp.link import Link, communicate
from aircomp.schemes.registry import scheme_class

BESIDE = "amp-da"
"""The scheme whose time the others' are compared with."""
LAYERS = 60
"""Parameter tensors of the model, about as many as the paper's ResNet has."""
PATH_LOSS = 3.76
"""By which access points hear devices of other places differently."""
WARM_UP = 256
"""Slots of the round that is not timed."""


@dataclass(frozen=True)
class RoundSize:
    """The round that every scheme is timed on."""

    slots: int = 13_487
    devices: int = 10
    antennas: int = 1
    access_points: int = 1


def bench_schemes(names: tuple[str, ...], size: RoundSize) -> list[Row]:
    """Time a round of each scheme, one after the other."""
    context = multiprocessing.get_context("spawn")  # memory of its own: what one scheme took, the next did not
    rows = []
    for name in names:
        with context.Pool(1) as pool:
            rows.append(pool.apply(time_scheme, (name, size)))
    return rows


def time_scheme(name: str, size: RoundSize) -> Row:
    """Time a round of one scheme, then one of `amp-da`."""
    torch.set_num_threads(1)
    seconds = _time(name, size)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # kilobytes on Linux
    return {
        "uplink": name,
        "slots": size.slots,
        "antennas": size.antennas if fades(name) else 1,
        "access_points": size.access_points if fades(name) else 1,
        "seconds": seconds,
        "times_amp_da": seconds / _time(BESIDE, size),
        "peak_gib": peak,
    }


def fades(name: str) -> bool:
    """Return whether a scheme is timed over fading: it needs no signals in phase."""
    return scheme_class(name).facts.needs.startswith("any")


def _time(name: str, size: RoundSize) -> float:
    link = _link(name, size)
    length = 20
    given = torch.randn(1 + size.devices, size.slots * length, generator=rngs.generator(0, "bench rounds")).pow_(3)
    warm = given[:, : WARM_UP * length]
    communicate(link, warm[0], warm[1:], {}, 0)
    start = time.process_time()
    communicate(link, given[0], given[1:], {}, 1)
    return time.process_time() - start


def _link(name: str, size: RoundSize) -> Link:
    fading = {
        "channel.kind": "fading",
        "channel.antennas": size.antennas,
        "channel.access_points": size.access_points,
        "channel.path_loss": PATH_LOSS if size.access_points > 1 else 0.0,  # in one place it changes no arithmetic
        "power.control": "statistical",
    }
    settings = {"uplink": name, "channel.snr_db": 5.0} | (fading if fades(name) else {})
    layers = torch.arange(size.slots) * LAYERS // size.slots
    return make_link(configure(Experiment(), settings), layers)
