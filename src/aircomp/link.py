"""The digital uplink, end to end (Sec. III-A to III-D). Read this file first.

       base station                                    K_a devices, all at once
    base_update [W]                                     messages [K_a, W]
         │ split, k-means++, order by popularity             │ split into J fragments of length d
         ▼                                                   ▼
    quantizer: codebook Q [n, d], popularity π ──────► nearest codeword of Q
                                   (announced)               │ indices [K_a, J]
                                                             ▼
                                                    codeword of C [n, l] in every slot
                                                             │
                       noise ─────────────► channel: received = counts · C + noise   [J, l]
                                                             ▼
                                              decoder: how many sent each codeword?
                                                             │ counts [J, n], each row sums to K̂
                                                             ▼
                                              aggregate(counts, Q) [J, d] ─► join ─► update [W] ─► server step

Each method below is one arrow of the drawing. Aggregation and server step follow in `fl/round.py`, for every scheme alike.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp import metrics
from aircomp.channel.awgn import Channel, superpose
from aircomp.decode.base import Decoded, Decoder
from aircomp.encode.codebook import count
from aircomp.errors import ConfigError
from aircomp.quantize.codebook import Quantizer, QuantizeSettings, build
from aircomp.quantize.fragment import join, num_slots, split
from aircomp.quantize.nearest import lookup, nearest
from aircomp.uplinks.base import Cost, Encoded, Reception


@dataclass(frozen=True)
class Announced:
    """What the base station broadcasts before the round."""

    quantizer: Quantizer
    num_params: int
    slot_layers: Int[Tensor, " slots"] | None
    """The parameter tensor each slot belongs to; known to all, as the model is."""


class DigitalUplink:
    """Quantise, encode, superpose, decode: one scheme for each decoder and random-access codebook."""

    def __init__(
        self,
        name: str,
        codebook: Float[Tensor, "codewords uses"],
        decoder: Decoder,
        channel: Channel,
        settings: QuantizeSettings,
        *,
        slot_layers: Int[Tensor, " slots"] | None = None,
        include_base_station: bool = False,
    ):
        if len(codebook) != settings.num_codewords:
            raise ConfigError(
                f"quantize.num_codewords = {settings.num_codewords}, but the random-access codebook has {len(codebook)} "
                "codewords; make them equal"
            )
        self.name, self.codebook, self.decoder, self.channel = name, codebook, decoder, channel
        self.settings, self.slot_layers, self.include_base_station = settings, slot_layers, include_base_station

    def broadcast(self, base_update: Float[Tensor, " params"], *, rng: torch.Generator) -> Announced:
        """Build the round's quantisation codebook from the base station's own fragments."""
        fragments = split(base_update, self.settings.fragment_length)
        return Announced(build(fragments, self.settings, rng=rng), base_update.numel(), self.slot_layers)

    def encode(self, messages: Float[Tensor, "devices params"], announced: Announced) -> Encoded:
        """Choose the nearest codeword of every fragment of every device."""
        codebook = announced.quantizer.codebook
        indices = nearest(split(messages, self.settings.fragment_length), codebook)
        reconstruction = join(lookup(indices, codebook), announced.num_params)
        return Encoded(indices, reconstruction, torch.ones(len(messages), dtype=torch.bool))

    def transmit(self, encoded: Encoded, announced: Announced, *, rng: torch.Generator) -> Float[Tensor, "slots uses"]:
        """Superpose all devices' codewords, slot by slot, and pass them through the channel."""
        signal = superpose(count(encoded.payload, len(self.codebook)), self.codebook)
        return self.channel.transmit(signal, num_active=len(encoded.payload), rng=rng)

    def decode(self, received: Float[Tensor, "slots uses"], announced: Announced) -> Reception:
        """Estimate how many devices sent each codeword in each slot."""
        quantizer = announced.quantizer
        decoded = self.decoder.decode(
            received,
            quantizer.popularity,
            bs_indices=quantizer.base_indices,
            slot_layers=announced.slot_layers,
            quant_codebook=quantizer.codebook,
        )
        return receive(decoded, announced, self.include_base_station)

    def cost(self, num_params: int, num_active: int) -> Cost:
        """Return the air of one round: l channel uses and one unit-energy codeword in each slot."""
        slots = num_slots(num_params, self.settings.fragment_length)
        return Cost(slots * self.codebook.shape[1], float(slots), (), slots)

    def diagnose(self, encoded: Encoded, announced: Announced, reception: Reception) -> dict[str, float]:
        """Compare the true counts with the decoded ones."""
        return compare(encoded, announced, reception)


def receive(decoded: Decoded, announced: Announced, include_base_station: bool) -> Reception:
    """Turn decoded counts into what is aggregated; the base station's own codeword is one more, known exactly."""
    counts = decoded.counts
    if include_base_station:
        own = announced.quantizer.base_indices[None]
        counts = counts + count(own, counts.shape[1])
    return Reception(
        num_params=announced.num_params,
        num_active_hat=decoded.num_active_hat,
        counts=counts,
        codewords=announced.quantizer.codebook,
        detail={"decoded": decoded},
    )


def compare(encoded: Encoded, announced: Announced, reception: Reception) -> dict[str, float]:
    """Measure a round of the digital link against the truth."""
    decoded: Decoded = reception.detail["decoded"]
    quant_codebook = announced.quantizer.codebook
    truth = count(encoded.payload, decoded.counts.shape[1])
    return {
        "accuracy": metrics.count_accuracy(truth, decoded.counts),
        "count_nmse": metrics.count_nmse(truth, decoded.mean),
        "update_nmse": metrics.update_nmse(truth, decoded.counts, quant_codebook),
        "update_nmse_soft": metrics.update_nmse(truth, decoded.mean, quant_codebook),
        "pupe": metrics.pupe(truth, decoded.counts),
        "collision_rate": metrics.collision_rate(truth),
    }
