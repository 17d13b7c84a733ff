"""How fast are quantisation, decoding and rounding? A paper-sized round, one thread, beside the plain versions."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.channel.awgn import transmit
from aircomp.common import rng as rngs
from aircomp.common.arithmetic import switched_off
from aircomp.common.results import Row
from aircomp.common.threads import one_thread
from aircomp.decoders.base import Decoded, Decoder
from aircomp.decoders.rounding import round_to_sum
from aircomp.encode.codebook import count, make_codebook
from aircomp.layer.communication import CommunicationLayer
from aircomp.quantize.codebook import build, nearest
from aircomp.quantize.settings import QuantizeSettings
from aircomp.schemes.digital.decoders import make_decoder
from benchmarks.timing import interleaved
from plain import gamp as plain_gamp
from plain import quantize as plain_quantize
from plain import rounding as plain_rounding

NUM_ACTIVE, NUM_CODEWORDS, USES = 10, 128, 64


def bench_decode(num_slots: int, repeats: int) -> list[Row]:
    """Return slots per second of each kernel and of its plain version; plain ones run on fewer slots."""
    rng = rngs.generator(0, "bench")
    fragments = torch.randn(NUM_ACTIVE + 1, num_slots, 20, generator=rng) ** 3  # heavy-tailed, as updates are
    quantizer = build(fragments[0], QuantizeSettings(), rng=rngs.generator(0, "bench codebook"))
    counts = count(nearest(fragments[1:], quantizer.codebook), NUM_CODEWORDS)
    layer = CommunicationLayer.load()
    network = layer.decoder()
    books = {"two-bases": make_codebook("two-bases", NUM_CODEWORDS, USES, rng=rng), "learned": layer.codebook}
    received = {
        k: transmit(counts, book, snr_db=10.0, rng=rngs.generator(0, "bench noise")) for k, book in books.items()
    }
    gamp, popularity = make_decoder("gamp", books["two-bases"]), quantizer.popularity
    soft = gamp.decode(received["two-bases"], popularity).mean
    draws = torch.rand(NUM_CODEWORDS, 6, dtype=torch.float64, generator=rng)
    few, some = min(20, num_slots), min(500, num_slots)

    # (fast, slots of it, plain, slots of it)
    pairs: dict[str, tuple[Callable[[], object], int, Callable[[], object], int]] = {
        "gamp": (
            lambda: gamp.decode(received["two-bases"], popularity),
            num_slots,
            lambda: plain_gamp.gamp(
                received["two-bases"][:few],
                books["two-bases"],
                torch.full((few,), 0.02),
                NUM_ACTIVE * (popularity + 1e-4),
                iterations=10,
            ),
            few,
        ),
        "gamp, compiled kernels beside torch": (
            lambda: gamp.decode(received["two-bases"], popularity),
            num_slots,
            lambda: without_kernels(gamp, received["two-bases"], popularity),
            num_slots,
        ),
        "gamp-net, compiled kernels beside torch": (
            lambda: network.decode(received["learned"], popularity),
            num_slots,
            lambda: without_kernels(network, received["learned"], popularity),
            num_slots,
        ),
        "rounding": (
            lambda: round_to_sum(soft, NUM_ACTIVE),
            num_slots,
            lambda: plain_rounding.round_to_sum(soft[:some], NUM_ACTIVE),
            some,
        ),
        "quantise ten devices": (
            lambda: nearest(fragments[1:], quantizer.codebook),
            num_slots,
            lambda: plain_quantize.nearest(fragments[1:, :some].flatten(0, 1), quantizer.codebook),
            some,
        ),
        "quantisation codebook": (
            lambda: build(fragments[0], QuantizeSettings(), rng=rngs.generator(0, "bench codebook")),
            num_slots,
            lambda: plain_quantize.kmeans_plus_plus(fragments[0, :some], draws),
            some,
        ),
    }
    with one_thread():
        fast = interleaved({name: pair[0] for name, pair in pairs.items()}, repeats)
        plain = interleaved({name: pair[2] for name, pair in pairs.items()}, repeats)
    return [
        speed_row(name, fast[name], slots, plain[name], plain_slots)
        for name, (_, slots, _, plain_slots) in pairs.items()
    ]


def without_kernels(decoder: Decoder, received: Tensor, popularity: Tensor) -> Decoded:
    """Decode with torch's operations alone."""
    with switched_off():
        return decoder.decode(received, popularity)


def bench_scaling(num_slots: int, repeats: int) -> list[Row]:
    """Return decoding time against the number of slots: it should grow in proportion."""
    rng = rngs.generator(0, "bench scaling")
    indices, popularity = zipf_round(num_slots, NUM_CODEWORDS, rng=rng)
    counts = count(indices, NUM_CODEWORDS)
    sizes = quarters(num_slots)
    rows = []
    for name, kind in (("amp-da", "bernoulli"), ("gamp", "two-bases")):
        codebook = make_codebook(kind, NUM_CODEWORDS, USES, rng=rng)
        received = transmit(counts, codebook, snr_db=10.0, rng=rng)
        decoder = make_decoder(name, codebook)
        runs = {str(size): partial(decoder.decode, received[:size], popularity) for size in sizes}
        with one_thread():
            seconds = interleaved(runs, repeats)
        rows += [scaling_row(name, "slots", size, size, seconds[str(size)]) for size in sizes]
    return rows


def zipf_round(
    num_slots: int, num_codewords: int, *, rng: torch.Generator
) -> tuple[Int[Tensor, "devices slots"], Float[Tensor, " codewords"]]:
    """Return what ten devices choose whose codewords have popularity 1, 1/2, 1/3, …; and that popularity."""
    popularity = 1 / torch.arange(1, num_codewords + 1).float()
    chosen = torch.multinomial(popularity, NUM_ACTIVE * num_slots, replacement=True, generator=rng)
    return chosen.view(NUM_ACTIVE, num_slots), popularity / popularity.sum()


def quarters(num_slots: int) -> list[int]:
    """Return a quarter, a half and all of the slots, at least one each."""
    return [max(1, num_slots // part) for part in (4, 2, 1)]


def speed_row(name: str, seconds: float, slots: int, plain_seconds: float, plain_slots: int) -> Row:
    """Return slots per second of a kernel and of its plain version, and their ratio."""
    rate, plain_rate = slots / seconds, plain_slots / plain_seconds
    return {
        "contender": name,
        "seconds": seconds,
        "slots": slots,
        "slots_per_second": rate,
        "plain_slots_per_second": plain_rate,
        "times_plain": rate / plain_rate,
    }


def scaling_row(name: str, axis: str, value: int, slots: int, seconds: float) -> Row:
    """Return one point of a scaling table: what was varied, to which value, and the time it took."""
    return {
        "contender": name,
        "axis": axis,
        "value": value,
        "slots": slots,
        "seconds": seconds,
        "microseconds_per_slot": 1e6 * seconds / slots,
    }
