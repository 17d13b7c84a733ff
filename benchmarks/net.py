"""How fast is GAMP-Net? Beside its plain version, and against its sizes.

The weights are random: speed does not depend on what was learned.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.channel.awgn import transmit
from aircomp.common import rng as rngs
from aircomp.common.results import Row
from aircomp.common.threads import one_thread
from aircomp.decoders.net.gamp_net import CHUNK, GampNet, GampNetDecoder
from aircomp.decoders.settings import AGREEMENT, GampNetSettings
from aircomp.encode.codebook import count, make_codebook
from benchmarks.decode import USES, quarters, scaling_row, speed_row, zipf_round
from benchmarks.timing import interleaved
from plain.gamp_net import unroll as plain_unroll

log = logging.getLogger(__name__)

TOLERANCE = 1e-4
"""By how much fast and plain may differ: float32 through ten layers."""
PLAIN_SLOTS = 300
"""Slots for the plain version; more than one chunk of the fast one."""
SCALING_SLOTS = 2_048
"""At most so many slots in the scaling tables, which have ten points."""


@dataclass(frozen=True)
class Sizes:
    """What decoding time depends on; the paper's but for the slots."""

    slots: int
    layers: int = 10
    codewords: int = 128
    filters: int = 32


@dataclass(frozen=True)
class Example:
    """A network with its codebook, and a round to decode."""

    decoder: GampNetDecoder
    received: Float[Tensor, "slots uses"]
    popularity: Float[Tensor, " codewords"]

    @staticmethod
    def of(sizes: Sizes) -> "Example":
        """Draw a round of ten devices at 10 dB and a network with random weights."""
        rng = rngs.generator(0, "bench net")
        # random directions: two bases would end at 128 codewords
        codebook = make_codebook("gaussian", sizes.codewords, USES, rng=rng)
        indices, popularity = zipf_round(sizes.slots, sizes.codewords, rng=rng)
        received = transmit(count(indices, sizes.codewords), codebook, snr_db=10.0, rng=rng)
        net = GampNet(GampNetSettings(num_layers=sizes.layers, filters=sizes.filters, agreement=AGREEMENT), rng=rng)
        set_last_convolutions(net, rng=rng)
        return Example(GampNetDecoder(net, codebook), received, popularity)

    def decode(self) -> None:
        """Decode the round."""
        self.decoder.decode(self.received, self.popularity)


@torch.no_grad()
def set_last_convolutions(net: GampNet, *, rng: torch.Generator) -> None:
    """Let the CNNs, which start with nothing to correct, correct a little: nothing is multiplied by zero."""
    for cnn in net.cnn:
        cnn.get_parameter("weight_out").normal_(0, 0.01, generator=rng)


def bench_net(num_slots: int, repeats: int) -> Row:
    """Return the decoder's speed beside the plain version's.

    The plain version runs on fewer slots and only through the layers, without the estimates before and the rounding
    after, which is to its advantage.
    """
    example = Example.of(Sizes(num_slots))
    few = min(PLAIN_SLOTS, num_slots)
    plain, difference = _plain_layers(example, few)
    with one_thread():
        seconds = interleaved({"fast": example.decode, "plain": plain}, repeats)
    return speed_row("gamp-net", seconds["fast"], num_slots, seconds["plain"], few) | {
        "largest_difference": difference,
        "agrees": agrees("gamp-net", difference),
    }


def bench_net_scaling(num_slots: int, repeats: int) -> list[Row]:
    """Return decoding time against slots, layers, codewords and filters, one varied at a time."""
    paper = Sizes(min(num_slots, SCALING_SLOTS))
    axes = {
        "slots": quarters(paper.slots),
        "layers": [5, 10, 20],
        "codewords": [64, 128, 256],
        "filters": [16, 32, 64],
    }
    points = [(axis, value, replace(paper, **{axis: value})) for axis, values in axes.items() for value in values]
    runs = {
        str(sizes): Example.of(sizes).decode for _, _, sizes in points
    }  # the paper's sizes are in all axes, run once
    with one_thread():
        seconds = interleaved(runs, repeats)
    return [scaling_row("gamp-net", axis, value, sizes.slots, seconds[str(sizes)]) for axis, value, sizes in points]


def agrees(name: str, difference: float) -> bool:
    """Tell whether fast and plain are the same, and warn if not: the speed of something else says nothing."""
    if not difference <= TOLERANCE:  # not the other way round, for NaN
        log.warning("%s differs from its plain version by %.2g, more than %.0e", name, difference, TOLERANCE)
        return False
    return True


def _plain_layers(example: Example, few: int) -> tuple[Callable[[], Tensor], float]:
    """Return a run of the plain version on some slots, and the largest difference of its counts from the fast one's."""
    decoder, received = example.decoder, example.received[:few]
    shared, noise = decoder.pilot.estimate(example.received, example.popularity)

    def run() -> Tensor:
        with torch.no_grad():
            return plain_unroll(decoder.net, received, decoder.codebook, shared.rate, noise[:few]).mean

    with torch.no_grad():
        fast = decoder.net.unroll(received, decoder.codebook, shared.rate, noise[:few], chunk=CHUNK).mean
    return run, float((fast - run()).abs().max())
