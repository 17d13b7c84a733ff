"""One link-level harness: the codewords that devices chose go over the air, and a decoder counts them.

    chosen codewords ──► channel: gains, noise ──► Trial ──► decoder or receiver ──► Decoded ──► how near it is

Rounds are saved or drawn ones. Evaluation, held-out rounds, studies, pages and the training of receivers send them by it; a
whole scheme, with updates in place of codewords, is sent by `aircomp.Link`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, Unpack, runtime_checkable

import torch
from jaxtyping import Bool, Float, Inexact, Int, Integer
from torch import Tensor

from aircomp.channel.base import Channel, Csi
from aircomp.channel.signal import Signal
from aircomp.common.packing import pack
from aircomp.common.results import Row
from aircomp.decoders.base import Decoded, Decoder, Known
from aircomp.decoders.fading.receiver import Receiver, Reception, joined
from aircomp.encode.codebook import sent_counts
from aircomp.encode.signal import Codewords
from aircomp.measure import metrics


@dataclass(frozen=True)
class Trial:
    """A round that went over the air: what devices chose, and what the antennas heard of it."""

    chosen: Integer[Tensor, "devices data"]
    codebook: Float[Tensor, "codewords uses"]
    received: Inexact[Tensor, "antennas slots uses"]
    csi: Csi
    rows: Int[Tensor, " data"] | None = None
    """The slots with codewords, where others carry pilots; None: all."""

    @property
    def speaking(self) -> Bool[Tensor, "devices data"] | None:
        """Who sends in which slot; None: everybody in all of them."""
        found = self.csi.at_devices.speaking(*self.received.shape[1:])
        return found if found is None or self.rows is None else found[:, self.rows]

    @cached_property
    def counts(self) -> Int[Tensor, "slots codewords"]:
        """How many devices sent each codeword."""
        return sent_counts(self.chosen, self.speaking, len(self.codebook))

    def decode(self, decoder: Decoder, popularity: Float[Tensor, " codewords"], **known: Unpack[Known]) -> Decoded:
        """Let a decoder for gains of one count at the first antenna."""
        return decoder.decode(self.received[0], popularity, **known)

    def receive(
        self, receiver: Receiver, popularity: Float[Tensor, " codewords"], num_active: float | None = None
    ) -> Decoded:
        """Let a receiver count at all antennas, block by block; it estimates the number of devices if it is not told."""
        csi = self.csi.at_receiver
        blocks = tuple(csi.slot_blocks(*self.received.shape[1:]))
        seen = Reception(pack(self.received), popularity, blocks, csi.gain_model, num_active)
        return joined(receiver.receive(seen))

    def compare(self, decoded: Decoded, quant_codebook: Float[Tensor, "codewords fragment"]) -> Row:
        """Return how near what was decoded is to what was sent."""
        counts, quant_codebook = self.counts, quant_codebook.to(self.counts.device)
        return {
            "count_accuracy": metrics.count_accuracy(counts, decoded.counts),
            "count_nmse": metrics.count_nmse(counts, decoded.mean),
            "update_nmse_soft": metrics.update_nmse(counts, decoded.mean, quant_codebook),
            "update_nmse_hard": metrics.update_nmse(counts, decoded.counts, quant_codebook),
            "num_active_mae": abs(decoded.num_active_hat - len(self.chosen)),
            "pupe": metrics.pupe(counts, decoded.counts),
        }


@runtime_checkable
class Pilots(Protocol):
    """Which slots of a round carry pilots, and what devices send in all of them."""

    @property
    def slots(self) -> int:
        """Slots of the round."""
        ...

    @property
    def rows(self) -> Int[Tensor, " data"]:
        """Those with codewords."""
        ...

    def send(self, indices: Int[Tensor, "devices data"], codebook: Float[Tensor, "codewords uses"]) -> Signal:
        """Put the pilots among the codewords."""
        ...


def send(
    chosen: Integer[Tensor, "devices data"],
    codebook: Float[Tensor, "codewords uses"],
    channel: Channel,
    *,
    rng: torch.Generator,
    fading: torch.Generator | None = None,
    pilots: Pilots | None = None,
) -> Trial:
    """Send a round of codewords.

    Args:
        chosen: The codeword that each device chose in each slot that carries one.
        codebook: One codeword a row, of real uses.
        channel: What lies between.
        rng: Where the noise comes from.
        fading: Where gains come from, if from elsewhere.
        pilots: What is sent beside codewords; None: nothing.
    """
    slots = chosen.shape[1] if pilots is None else pilots.slots
    signal = Codewords(chosen, codebook) if pilots is None else pilots.send(chosen, codebook)
    csi = channel.sound(len(chosen), slots * codebook.shape[1], rng=rng if fading is None else fading)
    received = channel.carry(signal, csi, rng=rng)
    return Trial(chosen, codebook, received, csi, None if pilots is None else pilots.rows)
