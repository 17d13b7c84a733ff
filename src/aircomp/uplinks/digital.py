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

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.channel.awgn import Channel, superpose
from aircomp.common.checks import check_type
from aircomp.decode.base import Decoded, Decoder
from aircomp.decode.side import SideInformation, visible_side_information
from aircomp.encode.codebook import count
from aircomp.encode.schedule import AirSettings, choose_repeat, combine, estimate_snr_db, only, place, schedule
from aircomp.errors import ConfigError
from aircomp.measure import metrics
from aircomp.quantize.codebook import Quantizer, QuantizeSettings, build
from aircomp.quantize.fragment import join, num_slots, split
from aircomp.quantize.nearest import lookup, nearest
from aircomp.uplinks.base import Cost, Encoded, Reception


@dataclass(frozen=True)
class Announced:
    """What the base station broadcasts before the round."""

    quantizer: Quantizer
    """Built from the asked slots alone, and so are popularity and the base station's own choices."""
    num_params: int
    slot_layers: Int[Tensor, " asked"] | None
    """The parameter tensor each asked slot belongs to; known to all, as the model is."""
    asked: Int[Tensor, " asked"] | None = None
    """The slots to send, ascending; None means all of them."""
    repeat: int = 1
    """How often each is sent."""


class DigitalUplink:
    """Quantise, encode, superpose, decode: one scheme for each decoder and random-access codebook.

    Args:
        name: What results call it.
        codebook: The random-access codebook.
        decoder: Counts from what the antenna saw.
        channel: Superposition and noise.
        settings: Of the quantiser.
        slot_layers: The parameter tensor of each slot, for decoders that use it.
        include_base_station: Whether the base station's own update joins the aggregate.
        air: How often slots are sent; every one once by default.
        shared_noise: Whether all slots meet the same noise, so that copies of some tell it for all.
        side_information: What the decoder is told of each slot beforehand.
    """

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
        air: AirSettings | None = None,
        shared_noise: bool = True,
        side_information: SideInformation = "both",
    ):
        if len(codebook) != settings.num_codewords:
            raise ConfigError(
                f"quantize.num_codewords = {settings.num_codewords}, but the random-access codebook has {len(codebook)} "
                "codewords; make them equal"
            )
        self.name, self.codebook, self.decoder, self.channel = name, codebook, decoder, channel
        self.settings, self.slot_layers, self.include_base_station = settings, slot_layers, include_base_station
        self.air, self.shared_noise = air or AirSettings(), shared_noise
        self.side_information: SideInformation = side_information

    def broadcast(
        self, base_update: Float[Tensor, " params"], *, rng: torch.Generator, snr_db: float | None = None
    ) -> Announced:
        """Build the round's quantisation codebook from the base station's own fragments, and choose the slots to send.

        Args:
            base_update: The base station's own update.
            rng: Where the codebook's randomness comes from.
            snr_db: The SNR that the base station estimated in the last round, for `air.repeat = "auto"`.
        """
        fragments = split(base_update, self.settings.fragment_length)
        energy = fragments.square().sum(dim=1)
        repeat = choose_repeat(self.air, snr_db, energy)
        asked = schedule(energy, repeat)
        quantizer = build(only(fragments, asked), self.settings, rng=rng)
        layers = self.slot_layers if self.slot_layers is None or asked is None else self.slot_layers[asked]
        return Announced(quantizer, base_update.numel(), layers, asked, repeat)

    def encode(self, messages: Float[Tensor, "devices params"], announced: Announced) -> Encoded:
        """Choose the nearest codeword of every asked fragment of every device; the rest is left to error feedback."""
        codebook, fragments = announced.quantizer.codebook, split(messages, self.settings.fragment_length)
        indices = nearest(only(fragments, announced.asked), codebook)
        sent = place(lookup(indices, codebook), announced.asked, fragments.shape[1])
        return Encoded(indices, join(sent, announced.num_params), torch.ones(len(messages), dtype=torch.bool))

    def transmit(self, encoded: Encoded, announced: Announced, *, rng: torch.Generator) -> Float[Tensor, "slots uses"]:
        """Superpose all devices' codewords, slot by slot, and pass them through the channel, every copy on its own."""
        signal = superpose(count(encoded.payload, len(self.codebook)), self.codebook)
        signal = signal.repeat_interleave(announced.repeat, dim=0)
        return self.channel.transmit(signal, num_active=len(encoded.payload), rng=rng)

    def decode(self, received: Float[Tensor, "slots uses"], announced: Announced) -> Reception:
        """Estimate how many devices sent each codeword in each slot."""
        quantizer, (combined, copies_noise) = announced.quantizer, combine(received, announced.repeat)
        layers, own = visible_side_information(self.side_information, announced.slot_layers, quantizer.base_indices)
        decoded = self.decoder.decode(
            combined,
            quantizer.popularity,
            noise_var=copies_noise if self.shared_noise else None,
            slot_layers=layers,
            bs_indices=own,
            quant_codebook=quantizer.codebook,
        )
        check_type("what the decoder returned", decoded, Decoded, "an aircomp.Decoded")
        noise = float(decoded.noise_var.double().mean()) if copies_noise is None else copies_noise
        reception = receive(decoded, announced, self.include_base_station)
        return replace(reception, snr_db=estimate_snr_db(combined, noise, announced.repeat))

    def cost(self, num_params: int, num_active: int) -> Cost:
        """Return the air of one round: l channel uses and one unit-energy codeword in each slot and copy.

        With `air.repeat = "auto"` it is that of a round in which every slot is sent once; no round costs more.
        """
        slots = num_slots(num_params, self.settings.fragment_length)
        repeat = 1 if self.air.repeat == "auto" else self.air.repeat
        slots = slots // repeat * repeat
        return Cost(slots * self.codebook.shape[1], float(slots), (), slots)

    def diagnose(self, encoded: Encoded, announced: Announced, reception: Reception) -> dict[str, float]:
        """Compare the true counts with the decoded ones."""
        return compare(encoded, announced, reception)


def receive(decoded: Decoded, announced: Announced, include_base_station: bool) -> Reception:
    """Turn decoded counts into what is aggregated; the base station's own codeword is one more, known exactly."""
    counts, soft = decoded.counts, decoded.mean
    if include_base_station:
        own = count(announced.quantizer.base_indices[None], counts.shape[1])
        counts, soft = counts + own, soft + own
    return Reception(
        num_params=announced.num_params,
        num_active_hat=decoded.num_active_hat,
        counts=counts,
        codewords=announced.quantizer.codebook,
        soft_counts=soft,
        asked=announced.asked,
        detail={"decoded": decoded},
    )


def compare(encoded: Encoded, announced: Announced, reception: Reception) -> dict[str, float]:
    """Measure a round of the digital link against the truth."""
    decoded: Decoded = reception.detail["decoded"]
    quant_codebook = announced.quantizer.codebook
    truth = count(encoded.payload, decoded.counts.shape[1])
    heard = {} if reception.snr_db is None else {"snr_db_hat": reception.snr_db}
    return heard | {
        "repeat": float(announced.repeat),
        "count_accuracy": metrics.count_accuracy(truth, decoded.counts),
        "count_nmse": metrics.count_nmse(truth, decoded.mean),
        "update_nmse": metrics.update_nmse(truth, decoded.counts, quant_codebook),
        "update_nmse_soft": metrics.update_nmse(truth, decoded.mean, quant_codebook),
        "pupe": metrics.pupe(truth, decoded.counts),
        "collision_rate": metrics.collision_rate(truth),
    }
