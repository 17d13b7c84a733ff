"""The digital uplink (Sec. III-A to III-D): quantise, send one codeword a fragment, count who sent what.

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
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.common import rng as rngs
from aircomp.common.checks import check_type
from aircomp.decode.base import Decoded, Decoder
from aircomp.decode.basis import leading_basis
from aircomp.decode.copies import combine, estimate_snr_db
from aircomp.decode.heard_pilots import PilotEstimate, hear_pilots, in_phase, nearer
from aircomp.decode.moments import RoundMoments
from aircomp.decode.number import count_devices, counting_direction, join_numbers, whole_devices
from aircomp.decode.side import visible_side_information
from aircomp.encode.codebook import count, random_rotation
from aircomp.encode.energy import PEAK, codeword_energies, limited, scale_to_one
from aircomp.encode.joint_code import JointCode, Shaped
from aircomp.encode.pilots import WithPilots, last_slots, num_pilots, pilot_sequence
from aircomp.encode.schedule import choose_repeat, leave_out, put_slots, schedule, take_slots
from aircomp.encode.signal import Codewords
from aircomp.errors import ConfigError
from aircomp.measure import metrics
from aircomp.quantize.codebook import Quantizer, build
from aircomp.quantize.fragment import join, num_slots, split
from aircomp.quantize.nearest import lookup, nearest
from aircomp.uplinks.base import MEAN_ENERGY, NOISE_VAR, Announced, Memory, Scheme, Sent, UplinkContext, remembered
from aircomp.uplinks.outputs import Counts
from aircomp.uplinks.rehearsal import Stage
from aircomp.uplinks.settings import UNEQUAL, UplinkSettings

SNR_DB, NUM_ACTIVE = "snr_db", "num_active"
"""What the link remembers beside the noise: the SNR of one channel use, and the number of devices, as the base station
estimated them last."""
SCALE = "scale"
"""What devices and base station agree on where energies are matched: the factor that makes the mean energy one."""


@dataclass(frozen=True)
class Kept:
    """What the base station keeps of a round that it announced."""

    quantizer: Quantizer
    """Built from the asked slots alone, and so are popularity and the base station's own choices."""
    slot_layers: Int[Tensor, " asked"] | None
    """The parameter tensor each asked slot belongs to."""
    asked: Int[Tensor, " asked"] | None
    """The slots to send, ascending; None means all of them."""
    repeat: int
    """How often each is sent."""
    shaped: Shaped | None = None
    """The round's own codewords, before devices and base station agree on their scale; None: those of the link."""
    pilots: int = 0
    """Slots with pilots behind the others."""


def choose_codewords(
    messages: Float[Tensor, "devices params"], announced: Announced
) -> tuple[Int[Tensor, "devices asked"], Float[Tensor, "devices params"]]:
    """Do what a device does with its message: choose the nearest codeword of every asked fragment.

    Returns:
        The indices, and the updates that they stand for: zero where nothing was asked.
    """
    codebook, asked = announced.downlink["codebook"], announced.downlink.get("asked")
    fragments = split(messages, codebook.shape[1])
    indices = nearest(take_slots(fragments, asked), codebook)
    return indices, stands_for(indices, announced)


def stands_for(indices: Int[Tensor, "devices asked"], announced: Announced) -> Float[Tensor, "devices params"]:
    """Return the updates that the devices' indices stand for."""
    codebook, asked = announced.downlink["codebook"], announced.downlink.get("asked")
    slots = num_slots(announced.num_params, codebook.shape[1])
    return join(put_slots(lookup(indices, codebook), asked, slots), announced.num_params)


def where_sent(
    reconstruction: Float[Tensor, "devices params"], heard: Bool[Tensor, "devices asked"], announced: Announced
) -> Float[Tensor, "devices params"]:
    """Return the updates with zeros in the fragments that a device did not send."""
    length = announced.downlink["codebook"].shape[1]
    slots = num_slots(announced.num_params, length)
    parts = heard[..., None].expand(-1, -1, length).to(reconstruction)
    return reconstruction * join(put_slots(parts, announced.downlink.get("asked"), slots), announced.num_params)


class DigitalUplink(Scheme):
    """One scheme for each decoder and random-access codebook.

    Args:
        name: What results call it.
        codebook: The random-access codebook.
        decoder: Counts from what the antenna saw.
        settings: Of the quantiser, of repetition, of side information.
        context: What the link is made for.
        pilots_of: How many slots of a round carry pilots, from the number of its slots; by default as the settings say.
        code: Makes the codewords of every round, in place of matched energies.
    """

    offers = Counts

    def __init__(
        self,
        name: str,
        codebook: Float[Tensor, "codewords uses"],
        decoder: Decoder,
        settings: UplinkSettings,
        context: UplinkContext | None = None,
        pilots_of: Callable[[int], int] | None = None,
        code: JointCode | None = None,
    ):
        if len(codebook) != settings.quantize.num_codewords:
            raise ConfigError(
                f"quantize.num_codewords = {settings.quantize.num_codewords}, but the random-access codebook has "
                f"{len(codebook)} codewords; make them equal"
            )
        if settings.energy == "matched" and not hasattr(decoder, "with_codebook"):
            raise ConfigError(
                f"uplink.energy = 'matched' gives codewords unequal energies, and the decoder of {name!r} needs equal ones; "
                f"use {' or '.join(UNEQUAL)}, or a decoder with the method with_codebook"
            )
        if code is not None and settings.quantize.fragment_length >= codebook.shape[1]:
            raise ConfigError(
                f"quantize.fragment_length = {settings.quantize.fragment_length}, but {name!r} needs fewer parameters than "
                f"the {codebook.shape[1]} uses of a codeword; shorten fragments or lengthen codewords"
            )
        self.name, self.codebook, self.decoder, self.code = name, codebook, decoder, code
        self.settings, self.context = settings, context or UplinkContext()
        self.pilots_of = pilots_of or self._num_pilots
        self.peak = PEAK if settings.peak is None else settings.peak
        self.unequal = settings.energy == "matched" or code is not None
        if self.unequal:
            self.side_information = MEAN_ENERGY
        if code is not None:
            rotation = random_rotation(codebook.shape[1], rngs.generator(self.context.seed, "lean"))
            self.spread = rotation[: settings.quantize.fragment_length].to(codebook)

    def broadcast(self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator) -> Announced:
        """Build the round's quantisation codebook from the base station's own fragments, and choose the slots to send."""
        settings, layers = self.settings.quantize, self.context.slot_layers
        fragments = split(base_update, settings.fragment_length)
        energy = fragments.square().sum(dim=1)
        repeat = choose_repeat(self.settings.repeat, remembered(memory, SNR_DB), energy)
        asked, pilots = schedule(energy, repeat), self.pilots_of(len(fragments))
        if pilots:  # in the place of slots, so that the round is as long as without
            asked = leave_out(asked, len(fragments), -(-pilots // repeat), rng=rng).to(energy.device)
        quantizer = build(take_slots(fragments, asked), settings, rng=rng)
        shaped = self._shaped(quantizer, memory)
        layers = None if layers is None else layers[: len(fragments)] if asked is None else layers[asked]
        kept = Kept(quantizer, layers, asked, repeat, shaped, pilots)
        downlink = {"codebook": quantizer.codebook, "popularity": quantizer.popularity}
        if asked is not None:
            downlink["asked"] = asked
        if shaped is not None:  # devices compute the same codewords
            downlink |= {name: memory[name] for name in (NOISE_VAR, *([NUM_ACTIVE] if self.code else []))}
        uses = (len(quantizer.base_indices) * repeat + kept.pilots) * self.codebook.shape[1]
        return Announced(base_update.numel(), uses, downlink, kept)

    @torch.no_grad()
    def _shaped(self, quantizer: Quantizer, memory: Memory) -> Shaped | None:
        """Return the codewords of the round; without an estimate of the noise they are those of the link."""
        noise_var, num_active = remembered(memory, NOISE_VAR), remembered(memory, NUM_ACTIVE)
        if not self.unequal or noise_var is None:
            return None
        words, popularity = quantizer.codebook, quantizer.popularity
        if self.code is None:
            return Shaped(codeword_energies(words, popularity, noise_var, self.peak), self.codebook)
        if num_active is None:
            return None
        return self.code(words, popularity, noise_var, num_active, self.peak, self.codebook, self.spread)

    def _rows(self, shaped: Shaped, scale: float) -> Float[Tensor, "codewords uses"]:
        """Return the random-access codebook of a round whose codewords differ in energy."""
        amplitudes = limited(shaped.energies, scale, self.peak).sqrt()
        return shaped.directions * amplitudes.to(self.codebook)[:, None]

    def encode(
        self, messages: Float[Tensor, "devices params"], announced: Announced, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Choose codewords; what was not asked for is left to error feedback."""
        return self.send(*choose_codewords(messages, announced), announced, csi)

    def send(
        self,
        indices: Int[Tensor, "devices asked"],
        reconstruction: Float[Tensor, "devices params"],
        announced: Announced,
        csi: AtDevices,
    ) -> Sent:
        """Send codewords that the devices have chosen; a silent device's do not count as sent."""
        kept: Kept = announced.kept
        codebook, agreed = self.codebook, {}
        if kept.shaped is not None:
            chosen = torch.bincount(indices.flatten(), minlength=len(codebook))
            scale = scale_to_one(kept.shaped.energies, chosen, self.peak)
            codebook, agreed = self._rows(kept.shaped, scale), {SCALE: torch.tensor(scale, dtype=torch.float64)}
        signal = Codewords(indices, codebook, kept.repeat)
        copies, uses = indices.shape[1] * kept.repeat, self.codebook.shape[1]
        if kept.pilots:
            signal = WithPilots(signal, pilot_sequence(uses), last_slots(copies, kept.pilots))
        speaking = csi.speaking(copies + kept.pilots, uses)
        pilot_uses = kept.pilots * uses
        if speaking is None:
            return Sent(signal, reconstruction, pilot_uses=pilot_uses, agreed=agreed)
        heard = speaking[:, :copies].reshape(*indices.shape, kept.repeat).any(dim=2)
        return Sent(signal, where_sent(reconstruction, heard, announced), speaking, pilot_uses, agreed)

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], announced: Announced, csi: AtReceiver
    ) -> tuple[Counts, Memory]:
        """Estimate how many devices sent each codeword in each slot, from what the first antenna heard in phase."""
        kept: Kept = announced.kept
        heard = in_phase(received)
        copies, sequence = len(heard) - kept.pilots, pilot_sequence(heard.shape[1])
        told = hear_pilots(heard, sequence, last_slots(copies, kept.pilots)) if kept.pilots else None
        combined, copies_noise = combine(heard[:copies], kept.repeat)
        side, quantizer = self.settings.side_information, kept.quantizer
        layers, own = visible_side_information(side, kept.slot_layers, quantizer.base_indices)
        decoder, codebook, turn = self._decoder(announced)
        seen = combined if turn is None else combined @ turn.to(combined)

        def decode(noise_var: float | None) -> Decoded:
            decoded = decoder.decode(
                seen,
                kept.quantizer.popularity,
                num_active=None if told is None else self._num_active(told, combined),
                noise_var=noise_var,
                slot_layers=layers,
                bs_indices=own,
                quant_codebook=kept.quantizer.codebook,
            )
            check_type("what the decoder returned", decoded, Decoded, "an aircomp.Decoded")
            return decoded

        one_noise = self.context.snr_reference != "slot"
        decoded = decode((copies_noise or self._told_noise(told)) if one_noise else None)
        noise = float(decoded.noise_var.double().mean()) if copies_noise is None else copies_noise
        snr_db = estimate_snr_db(combined, noise, kept.repeat)
        if one_noise and told is not None and self.settings.energy == "matched" and told.is_less_noise(decoded):
            # the next energies are matched to all that hides counts, errors of decoding too
            decoded = nearer(seen, codebook, decoded, decode(told.noise_var))
        output = counts_of(decoded, announced, self.context.include_base_station)
        stage = Stage(decoder, codebook, quantizer.popularity, quantizer.codebook, decoded, layers, own)
        output = replace(
            output,
            diagnostics={"snr_db_hat": snr_db},
            rehearse=lambda: stage.rehearse(rngs.generator(self.context.seed, "rehearsal")),
        )
        remembered = {SNR_DB: snr_db} | ({NOISE_VAR: noise} if self._follows_noise else {})
        remembered |= {NUM_ACTIVE: decoded.num_active_hat} if self.code else {}
        return output, {name: torch.tensor(value, dtype=torch.float64) for name, value in remembered.items()}

    def _num_active(self, told: PilotEstimate, combined: Float[Tensor, "asked uses"]) -> float:
        """Return the number of devices from pilots and, where codewords have a direction in common, from the data too."""
        direction = None if self.unequal else counting_direction(self.codebook)
        if direction is None or len(combined) < 2:
            return told.num_active
        counted = count_devices(RoundMoments.of(combined), direction)
        return whole_devices(*join_numbers((told.num_active, told.num_active_error), counted))[0]

    @property
    def _follows_noise(self) -> bool:
        """Whether the next round depends on the noise of this one."""
        return self.unequal or self.settings.rate == "auto"

    def _told_noise(self, told: PilotEstimate | None) -> float | None:
        """Return the noise that pilots tell; short codewords cannot: slots that were decoded wrongly look like noise."""
        return told.noise_var if told is not None and self.settings.rate == "auto" else None

    def _num_pilots(self, slots: int) -> int:
        """Return how many slots carry pilots: quiet codewords leave the number of devices open."""
        if self.settings.pilots is None:
            return num_pilots(slots) if self.unequal else 0
        return self.settings.pilots

    def _decoder(
        self, announced: Announced
    ) -> tuple[Decoder, Float[Tensor, "codewords uses"], Float[Tensor, "uses uses"] | None]:
        """Return the round's decoder, its codebook, and the basis in which it decodes where codewords lean."""
        kept: Kept = announced.kept
        if kept.shaped is None:
            return self.decoder, self.codebook, None
        made: Any = self.decoder  # with the method, as the constructor saw
        rows, turn = self._rows(kept.shaped, float(announced.agreed[SCALE])), None
        if kept.shaped.leaning:
            turn = leading_basis(rows, kept.quantizer.popularity, self.settings.quantize.fragment_length + 1)
            rows = rows @ turn
        return made.with_codebook(rows), rows, turn

    def diagnose(self, sent: Sent, announced: Announced, output: Counts) -> dict[str, float]:
        """Compare the true counts with the decoded ones."""
        return compare(sent, announced, output)


def counts_of(decoded: Decoded, announced: Announced, include_base_station: bool) -> Counts:
    """Turn decoded counts into what is aggregated; the base station's own codeword is one more, known exactly."""
    kept: Kept = announced.kept
    words = kept.quantizer.codebook
    own = count(kept.quantizer.base_indices[None], len(words)) if include_base_station else None
    return Counts(
        counts=decoded.counts,
        codewords=words,
        num_params=announced.num_params,
        num_active_hat=decoded.num_active_hat,
        soft_counts=decoded.mean,
        asked=kept.asked,
        own=own,
    )


def sent_counts(
    indices: Int[Tensor, "devices asked"],
    delivered: Bool[Tensor, "devices sent"] | None,
    repeat: int,
    num_codewords: int,
) -> Int[Tensor, "asked codewords"]:
    """Count how many devices sent each codeword; those that were silent in a slot did not."""
    if delivered is None:
        return count(indices, num_codewords)
    copies = delivered[:, : indices.shape[1] * repeat]  # pilots come after them
    heard = copies.reshape(*indices.shape, repeat).any(dim=2).to(indices.device)
    chosen = indices.long().where(heard, num_codewords)  # one more column takes the silent ones
    return count(chosen, num_codewords + 1)[:, :num_codewords]


def compare(sent: Sent, announced: Announced, output: Counts) -> dict[str, float]:
    """Measure a round of the digital link against the truth."""
    kept: Kept = announced.kept
    signal: Any = sent.signal  # Codewords, from `send`, perhaps with pilots
    signal = signal.data if kept.pilots else signal
    words, soft = kept.quantizer.codebook, output.soft_counts
    assert soft is not None  # from `counts_of`
    truth = sent_counts(signal.indices, sent.delivered, kept.repeat, len(words))
    return {
        "repeat": float(kept.repeat),
        "count_accuracy": metrics.count_accuracy(truth, output.counts),
        "count_nmse": metrics.count_nmse(truth, soft),
        "update_nmse": metrics.update_nmse(truth, output.counts, words),
        "update_nmse_soft": metrics.update_nmse(truth, soft, words),
        "pupe": metrics.pupe(truth, output.counts),
        "collision_rate": metrics.collision_rate(truth),
    }
