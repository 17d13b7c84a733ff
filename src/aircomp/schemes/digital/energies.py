"""Codewords that differ in energy from round to round: matched to what they stand for and to the noise.

broadcast: the noise of the last round, the popularity; devices compute the same energies (`encode/energy.py`)
devices:   agree on the scale that makes their mean energy one
decode:    the round's codebook ──► link; where it took its errors for noise, once more with the noise that pilots tell
"""

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.decoders.amp.basis import leading_basis
from aircomp.decoders.estimate.heard_pilots import is_less_noise, nearer
from aircomp.encode.energy import PEAK, Shaped, codeword_energies, limited, scale_to_one
from aircomp.errors import ConfigError
from aircomp.schemes.base import MEAN_ENERGY, NOISE_VAR, Broadcast, Memory, Sent, in_phase, remembered
from aircomp.schemes.digital.link import Digital, DigitalPrivate, Wrapper
from aircomp.schemes.outputs import Counts

SCALE = "scale"
"""What devices and base station agree on: the factor that makes the mean energy one."""
POPULARITY = "popularity"


class UnequalCodewords(Wrapper):
    """A link with codewords of its own in every round, as soon as something is known of the noise.

    Args:
        link: Chooses codewords and counts them.
        peak: The most energy of a codeword, where the mean is one.

    Raises:
        ConfigError: If the link's decoder needs codewords of equal energy.
    """

    needed: tuple[str, ...]
    """What the codewords depend on, of what the link remembers."""

    def __init__(self, link: Digital, peak: float | None = None):
        super().__init__(link)
        if not hasattr(link.decoder, "with_codebook"):
            raise ConfigError(
                f"uplink.energy = 'matched' gives codewords unequal energies, and the decoder of {link.name!r} needs equal "
                "ones; use gamp or posterior, or a decoder with the method with_codebook"
            )
        self.digital, self.peak, self.side_information = link, PEAK if peak is None else peak, MEAN_ENERGY

    @abstractmethod
    def _shaped(self, broadcast: Broadcast) -> Shaped:
        """Return the codewords of the round, before all agree on their scale."""

    def broadcast(
        self,
        base_update: Float[Tensor, " params"],
        memory: Memory,
        *,
        rng: torch.Generator,
        slots: Int[Tensor, " slots"] | None = None,
    ) -> tuple[Broadcast, DigitalPrivate]:
        """Announce what the codewords depend on; without an estimate of the noise they are those of the link."""
        announced, private = self.digital.broadcast(base_update, memory, rng=rng, slots=slots)
        known = {name: remembered(memory, name) for name in self.needed}
        if any(value is None for value in known.values()):
            return announced, private
        values = {name: torch.tensor(value, dtype=torch.float64) for name, value in known.items()}
        values = {**announced.values, POPULARITY: private.quantizer.popularity, **values}
        return replace(announced, values=values), private

    def _rows(self, shaped: Shaped, scale: float) -> Float[Tensor, "codewords uses"]:
        """Return the random-access codebook of a round whose codewords differ in energy."""
        amplitudes = limited(shaped.energies, scale, self.peak).sqrt()
        return shaped.directions * amplitudes.to(self.codebook)[:, None]

    @torch.no_grad()
    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Send what the link would, by the codewords of the round."""
        sent = self.digital.encode(messages, broadcast, csi, rng=rng)
        if POPULARITY not in broadcast.values:
            return sent
        signal: Any = sent.signal  # Codewords
        shaped = self._shaped(broadcast)
        told = signal.indices if csi.reports is None else signal.indices[csi.reports > 0]
        chosen = torch.bincount(told.flatten(), minlength=len(self.codebook))
        scale = scale_to_one(shaped.energies, chosen, self.peak)
        signal = replace(signal, codebook=self._rows(shaped, scale))
        return replace(sent, signal=signal, agreed={SCALE: torch.tensor(scale, dtype=torch.float64)})

    @torch.no_grad()
    def decode(
        self,
        received: Inexact[Tensor, "antennas slots uses"],
        broadcast: Broadcast,
        private: DigitalPrivate,
        csi: AtReceiver,
    ) -> tuple[Counts, Memory]:
        """Count by the codewords of the round."""
        link, heard, shaped = self.digital, in_phase(received), None
        if POPULARITY in broadcast.values:
            shaped = self._shaped(broadcast)
            rows = self._rows(shaped, float(broadcast.agreed[SCALE]))
            if shaped.leaning:  # some are alike: in this basis fewer uses tell them apart
                turn = leading_basis(rows, private.quantizer.popularity, self.settings.quantize.fragment_length + 1)
                rows, heard = rows @ turn, heard @ turn.to(heard)
            link = link.with_codebook(rows)
        decoded = link.count(heard, private, csi)
        noise_var = float(decoded.noise_var.double().mean())
        if self._decodes_again(csi) and is_less_noise(csi.pilot_noise, noise_var):
            assert csi.pilot_noise is not None
            # the next energies are matched to all that hides counts, errors of decoding too: noise_var stays
            again = link.count(heard, private, replace(csi, noise_var=csi.pilot_noise[0]))
            decoded = nearer(heard, link.codebook, decoded, again)
        return link.conclude(decoded, heard, noise_var, broadcast, private)

    def _decodes_again(self, csi: AtReceiver) -> bool:
        return False

    def diagnose(self, sent: Sent, broadcast: Broadcast, output: Counts) -> dict[str, float]:
        """Compare the true counts with the decoded ones."""
        return self.digital.diagnose(sent, broadcast, output)


class MatchedEnergies(UnequalCodewords):
    """Energies matched to what each codeword stands for and to the noise of the last round."""

    needed = (NOISE_VAR,)

    def _shaped(self, broadcast: Broadcast) -> Shaped:
        words, popularity = broadcast.values["codebook"], broadcast.values[POPULARITY]
        noise_var = float(broadcast.values[NOISE_VAR])
        return Shaped(codeword_energies(words, popularity, noise_var, self.peak), self.codebook)

    def _decodes_again(self, csi: AtReceiver) -> bool:
        return self.context.snr_reference != "slot" and csi.pilot_noise is not None
