"""Sizes by SNR: long codewords in much noise, short ones otherwise, at the same channel uses per parameter.

A fragment of 20 parameters behind one of 128 codewords has 0.35 bit a parameter, and most of an update stays behind in the
quantiser. A quarter of the fragment behind one of a quarter of the codewords has 1 bit, in as many channel uses. Its codeword
has a quarter of the energy, so noise hurts it earlier.
"""

import math
from dataclasses import replace
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.channel.signal import InUnits
from aircomp.errors import ConfigError
from aircomp.schemes.base import NOISE_VAR, Broadcast, Memory, Private, Scheme, SchemeContext, Sent, remembered
from aircomp.schemes.digital.link import Digital, Wrapper
from aircomp.schemes.outputs import Counts
from aircomp.schemes.settings import DigitalSettings

S = TypeVar("S", bound=DigitalSettings)

SHORTER = 4
"""By how much fragments, codewords and their number shrink."""
SHORT_FROM_DB = -22.0
"""SNR of a single device from which short codewords are sent: of ten devices a transmit SNR of -12 dB.

Training on digits gains one to four points by short codewords at -10 dB of all devices, and loses half a point at -15 dB
(docs/notebook/2026-11-17-rate.md). The received SNR would not do: devices that choose alike raise it by up to 6 dB."""

SHORT_CODEBOOK = "low-coherence-real"
"""Of the short link: with two bases of 16 uses several counts make the same sum, and no decoder can tell them apart."""
UNEQUAL_NOISE = 0.2
"""Energies of short codewords are matched to at least this noise variance: unequal energies keep sums of codewords apart.
Of 0, 0.05, 0.1 and 0.2 the last has the least update NMSE from 10 dB up (docs/notebook/2026-11-17-hybrid.md)."""
LEAST_NOISE = 1e-30
"""Floor that keeps log10 finite."""


def short_sizes(settings: S) -> S:
    """Return the settings of the link with short codewords.

    Raises:
        ConfigError: If the sizes have no quarter.
    """
    fragment, words = settings.quantize.fragment_length, settings.quantize.num_codewords
    sizes = {"fragment_length": fragment, "codeword_length": settings.codeword_length, "num_codewords": words}
    odd = [f"{name} = {size}" for name, size in sizes.items() if size % SHORTER]
    if odd:
        raise ConfigError(f"uplink.rate = 'auto' divides sizes by {SHORTER}, and {' and '.join(odd)} cannot be divided")
    return settings.changed(
        **{
            "codebook": SHORT_CODEBOOK if settings.codebook == "auto" else settings.codebook,
            "codeword_length": settings.codeword_length // SHORTER,
            "quantize.fragment_length": fragment // SHORTER,
            "quantize.num_codewords": words // SHORTER,
        }
    )


def short_context(context: SchemeContext) -> SchemeContext:
    """Return what the link with short codewords is made for: each of its fragments is a part of a long one."""
    layers = context.slot_layers
    return replace(context, slot_layers=None if layers is None else layers.repeat_interleave(SHORTER))


class Rate(Scheme):
    """The digital link in two sizes; the base station chooses one before every round, by the SNR of the round before.

    Args:
        long: Sends the first round, and all rounds in much noise.
        short: Sends the others.
    """

    offers = Counts

    def __init__(self, long: Digital | Wrapper, short: Digital | Wrapper):
        self.long, self.short = long, short
        self.name, self.side_information = long.name, long.side_information

    def broadcast(
        self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator
    ) -> tuple[Broadcast, Private]:
        """Choose the size, and announce what that link would."""
        noise_var = remembered(memory, NOISE_VAR)
        enough = noise_var is not None and -10 * math.log10(self._uses * max(noise_var, LEAST_NOISE)) >= SHORT_FROM_DB
        link = self.short if enough else self.long
        memory = _scaled(memory, 1 / self._energy(link))
        if link is self.short:
            memory = {**memory, NOISE_VAR: memory[NOISE_VAR].clamp(min=UNEQUAL_NOISE)}
        return link.broadcast(base_update, memory, rng=rng)

    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Send what the chosen link would, so that a channel use has the same energy whatever was chosen."""
        link = self._link(broadcast)
        sent = link.encode(messages, broadcast, csi, rng=rng)
        return replace(sent, signal=InUnits(sent.signal, self._energy(link) ** 0.5))

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], broadcast: Broadcast, private: Private, csi: AtReceiver
    ) -> tuple[Counts, Memory]:
        """Decode as the chosen link would."""
        link = self._link(broadcast)
        output, memory = link.decode(received / self._energy(link) ** 0.5, broadcast, private, csi)
        return output, _scaled(memory, self._energy(link))

    def diagnose(self, sent: Sent, broadcast: Broadcast, output: Counts) -> dict[str, float]:
        """Compare the true counts with the decoded ones."""
        signal: Any = sent.signal  # from `encode`
        return self._link(broadcast).diagnose(replace(sent, signal=signal.signal), broadcast, output)

    def _link(self, broadcast: Broadcast) -> Digital | Wrapper:
        """Return the link whose codewords were announced."""
        words = len(broadcast.values["codebook"])
        return self.long if words == len(self.long.codebook) else self.short

    def _energy(self, link: Digital | Wrapper) -> float:
        """Return the energy of a codeword of a link, where that of a long one is one."""
        return link.codebook.shape[1] / self._uses

    @property
    def _uses(self) -> int:
        """Return the channel uses of a long codeword."""
        return self.long.codebook.shape[1]


def _scaled(memory: Memory, factor: float) -> Memory:
    """Return what is remembered with the noise times a factor: a link takes its codewords' energy for one."""
    return {name: value * factor if name == NOISE_VAR else value for name, value in memory.items()}
