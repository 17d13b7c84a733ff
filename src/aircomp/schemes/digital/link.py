r"""The digital link (Sec. III-A to III-D): quantise, send one codeword a fragment, count who sent what.

    base station                                        K_a devices, all at once
    base_update [W]                                     messages [K_a, W]
      │ split, k-means++, order by popularity             │ split into J fragments of length d
      ▼                                                   ▼
    quantizer: codebook Q [n, d], popularity π            │
      │          └──────────── Q, on the wire ──────────► nearest codeword of Q
      │                                                   │ indices [K_a, J]
      │                                                   ▼
      │                                                 codeword of C [n, l] in every slot
      │                                                   │
      │                       noise ──► channel: received = counts · C + noise   [J, l]
      ▼                                                   ▼
    decoder: how many sent each codeword? ◄───────────────┘
      │ counts [J, n], each row sums to K̂
      ▼
    aggregate(counts, Q) [J, d] ─► join ─► update [W] ─► server step

What goes beyond the paper wraps this link with the same three verbs: pilots (`pilots.py`), repetition (`repetition.py`),
matched energies (`energies.py`), the joint code (`joint.py`), two sizes (`rate.py`), receivers for fading (`radio.py`).
"""

import copy
import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.common import rng as rngs
from aircomp.decoders.base import Decoded, Decoder, run_decoder
from aircomp.encode.codebook import count, sent_counts
from aircomp.encode.signal import Codewords
from aircomp.errors import ConfigError
from aircomp.measure import metrics
from aircomp.quantize.codebook import Quantizer, build, lookup, nearest
from aircomp.quantize.fragment import join, split
from aircomp.schemes.base import NOISE_VAR, Broadcast, Memory, Private, Scheme, SchemeContext, Sent, in_phase, new_seed
from aircomp.schemes.outputs import Counts
from aircomp.schemes.settings import InformedSettings, QuantizedSettings

NUM_ACTIVE = "num_active"
"""What the link remembers beside the noise: the number of devices, as the base station estimated it."""


SNR_RANGE_DB = (-40.0, 80.0)
"""Estimates stay in this range: a decoder that leaves no noise, or only noise, must not give an infinite number."""


@dataclass(frozen=True)
class DigitalPrivate:
    """What the base station keeps of a round."""

    quantizer: Quantizer
    slot_layers: Int[Tensor, " slots"] | None
    """The parameter tensor each slot belongs to."""
    seed: Int[Tensor, ""]
    """Of the slots that it draws to rehearse decoding."""


class Digital(Scheme):
    """One scheme for each decoder and random-access codebook.

    Args:
        settings: Of the quantiser and of side information.
        context: What the link is made for.
        codebook: The random-access codebook.
        decoder: Counts from what the antenna saw.
        name: What results call it, where the class has no name.
    """

    offers = Counts

    def __init__(
        self,
        settings: QuantizedSettings,
        context: SchemeContext,
        codebook: Float[Tensor, "codewords uses"],
        decoder: Decoder,
        name: str = "",
    ):
        if len(codebook) != settings.quantize.num_codewords:
            raise ConfigError(
                f"quantize.num_codewords = {settings.quantize.num_codewords}, but the random-access codebook has "
                f"{len(codebook)} codewords; make them equal"
            )
        self.settings, self.context, self.codebook, self.decoder = settings, context, codebook, decoder
        if name:
            self.name = name

    def with_codebook(self, codebook: Float[Tensor, "codewords uses"]) -> "Digital":
        """Return the link with other codewords; its decoder must be able to take them."""
        other = copy.copy(self)
        other.codebook, other.decoder = codebook, cast(Any, self.decoder).with_codebook(codebook)
        return other

    def broadcast(
        self,
        base_update: Float[Tensor, " params"],
        memory: Memory,
        *,
        rng: torch.Generator,
        slots: Int[Tensor, " slots"] | None = None,
    ) -> tuple[Broadcast, DigitalPrivate]:
        """Build the round's quantisation codebook from the base station's own fragments.

        Args:
            base_update: The base station's own update.
            memory: What the link remembers.
            rng: Where every random number of this call comes from.
            slots: The slots of the whole update that this one consists of; None: it is whole.
        """
        fragments, layers = split(base_update, self.settings.fragment_length), self.context.slot_layers
        quantizer = build(fragments, self.settings.quantize, rng=rng)
        if layers is not None:
            layers = layers[: len(fragments)] if slots is None else layers[slots]
        uses = len(fragments) * self.codebook.shape[1]
        private = DigitalPrivate(quantizer, layers, new_seed(rng))
        return Broadcast(base_update.numel(), uses, {"codebook": quantizer.codebook}), private

    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Choose the nearest codeword of every fragment, and send it."""
        return self.send(choose_codewords(messages, broadcast), broadcast, csi)

    def send(self, indices: Int[Tensor, "devices slots"], broadcast: Broadcast, csi: AtDevices) -> Sent:
        """Send codewords that the devices have chosen; a silent device's do not count as sent."""
        fragments = lookup(indices, broadcast.values["codebook"])
        speaking = csi.speaking(indices.shape[1], self.codebook.shape[1])
        if speaking is not None:
            fragments = fragments * speaking[:, :, None].to(fragments)
        return Sent(Codewords(indices, self.codebook), join(fragments, broadcast.num_params), speaking)

    def decode(
        self,
        received: Inexact[Tensor, "antennas slots uses"],
        broadcast: Broadcast,
        private: DigitalPrivate,
        csi: AtReceiver,
    ) -> tuple[Counts, Memory]:
        """Estimate how many devices sent each codeword in each slot, from what the first antenna heard in phase."""
        heard = in_phase(received)
        decoded = self.count(heard, private, csi)
        return self.conclude(decoded, heard, float(decoded.noise_var.double().mean()), broadcast, private)

    def count(self, heard: Float[Tensor, "slots uses"], private: DigitalPrivate, csi: AtReceiver) -> Decoded:
        """Run the decoder, which sees what the base station knows of each slot beforehand."""
        quantizer = private.quantizer
        layers, own = self.known_of_slots(private)
        return run_decoder(
            self.decoder,
            heard,
            quantizer.popularity,
            num_active=csi.num_active,
            noise_var=csi.noise_var if self.context.snr_reference != "slot" else None,
            slot_layers=layers,
            bs_indices=own,
            quant_codebook=quantizer.codebook,
        )

    def known_of_slots(self, private: DigitalPrivate) -> tuple[Tensor | None, Tensor | None]:
        """Return layer and own codeword of each slot, None where the decoder does not see them."""
        if not isinstance(self.settings, InformedSettings):
            return None, None
        from aircomp.decoders.side import visible_side_information  # only for decoders that may see it

        told = self.settings.side_information
        return visible_side_information(told, private.slot_layers, private.quantizer.base_indices)

    def conclude(
        self,
        decoded: Decoded,
        heard: Float[Tensor, "slots uses"],
        noise_var: float,
        broadcast: Broadcast,
        private: DigitalPrivate,
    ) -> tuple[Counts, Memory]:
        """Return what is aggregated, with what a calibrated readout needs, and what the next round may depend on."""

        def rehearse() -> tuple[Tensor, Tensor] | None:
            from aircomp.schemes.digital.rehearsal import Rehearsal  # only a calibrated readout asks for it

            words, known = private.quantizer, self.known_of_slots(private)
            made = Rehearsal(self.decoder, self.codebook, words.popularity, words.codebook, decoded, *known)
            return made.rehearse(rngs.generator(int(private.seed), "rehearsal"))

        output = replace(
            counts_of(decoded, broadcast, private, self.context.include_base_station),
            diagnostics={"snr_db_hat": estimate_snr_db(heard, noise_var, 1)},
            rehearse=rehearse,
        )
        memory = {NOISE_VAR: noise_var, NUM_ACTIVE: decoded.num_active_hat}
        return output, {name: torch.tensor(value, dtype=torch.float64) for name, value in memory.items()}

    def diagnose(self, sent: Sent, broadcast: Broadcast, output: Counts) -> dict[str, float]:
        """Compare the true counts with the decoded ones."""
        return compare(sent, broadcast, output)

    def operations(self, num_slots: int) -> float | None:
        """Return the products with the codebook and those of convolutions, if the decoder can tell."""
        passes = getattr(self.decoder, "passes", None)
        if passes is None:
            return None
        convolutions = getattr(self.decoder, "convolutions", 0)
        return float(num_slots * (passes * 4 * 2 * self.codebook.numel() + 2 * convolutions))


def choose_codewords(messages: Float[Tensor, "devices params"], broadcast: Broadcast) -> Int[Tensor, "devices slots"]:
    """Do what a device does with its message: choose the nearest codeword of every fragment."""
    codebook = broadcast.values["codebook"]
    return nearest(split(messages, codebook.shape[1]), codebook)


def dequantize(indices: Int[Tensor, "devices slots"], broadcast: Broadcast) -> Float[Tensor, "devices params"]:
    """Return the updates that the devices' indices stand for."""
    return join(lookup(indices, broadcast.values["codebook"]), broadcast.num_params)


def counts_of(decoded: Decoded, broadcast: Broadcast, private: DigitalPrivate, include_base_station: bool) -> Counts:
    """Turn decoded counts into what is aggregated; the base station's own codeword is one more, known exactly."""
    quantizer = private.quantizer
    own = count(quantizer.base_indices[None], len(quantizer.codebook)) if include_base_station else None
    return Counts(
        counts=decoded.counts,
        codewords=quantizer.codebook,
        num_params=broadcast.num_params,
        num_active_hat=decoded.num_active_hat,
        soft_counts=decoded.mean,
        own=own,
    )


def compare(sent: Sent, broadcast: Broadcast, output: Counts) -> dict[str, float]:
    """Measure a round of the digital link against the truth."""
    signal, words, soft = cast(Codewords, sent.signal), broadcast.values["codebook"], output.soft_counts
    assert soft is not None  # from `counts_of`
    truth = sent_counts(signal.indices, sent.delivered, len(words))
    return {
        "count_accuracy": metrics.count_accuracy(truth, output.counts),
        "count_nmse": metrics.count_nmse(truth, soft),
        "update_nmse": metrics.update_nmse(truth, output.counts, words),
        "update_nmse_soft": metrics.update_nmse(truth, soft, words),
        "pupe": metrics.pupe(truth, output.counts),
        "collision_rate": metrics.collision_rate(truth),
    }


def estimate_snr_db(combined: Float[Tensor, "asked uses"], noise_var: float, repeat: int) -> float:
    """Estimate the SNR of one channel use, before copies were averaged.

    Args:
        combined: What the decoder saw, copies averaged.
        noise_var: The noise variance in it.
        repeat: Number of copies.
    """
    power = float(combined.double().square().mean()) - noise_var
    low, high = SNR_RANGE_DB
    if power <= 0 or noise_var <= 0 or power == math.inf:
        return low if power <= 0 else high
    return min(max(10 * math.log10(power / (noise_var * repeat)), low), high)


class Wrapper(Scheme):
    """A scheme around a digital link; it has the link's name, and offers what the link offers.

    Args:
        link: The digital link, perhaps wrapped already.
    """

    offers = Counts

    def __init__(self, link: "Digital | Wrapper"):
        self.link, self.name, self.context = link, link.name, link.context
        self.settings, self.codebook = link.settings, link.codebook
        self.side_information, self.estimates_num_active = link.side_information, link.estimates_num_active
        self.readout = link.readout

    @abstractmethod
    def broadcast(
        self,
        base_update: Float[Tensor, " params"],
        memory: Memory,
        *,
        rng: torch.Generator,
        slots: Int[Tensor, " slots"] | None = None,
    ) -> tuple[Broadcast, Private]:
        """Broadcast as `Digital.broadcast` does."""

    @abstractmethod
    def decode(
        self,
        received: Inexact[Tensor, "antennas slots uses"],
        broadcast: Broadcast,
        private: Private,
        csi: AtReceiver,
    ) -> tuple[Counts, Memory]:
        """Recover the counts, and what is remembered."""

    def operations(self, num_slots: int) -> float | None:
        """Take what the link does."""
        return self.link.operations(num_slots)
