"""Slots that are sent several times: so many times fewer slots, those in which the base station's own update has most energy.

    broadcast: slots that are asked for, how often each is sent
    devices:   codewords of these slots, copies behind each other
    decode:    mean of the copies, noise by their differences ──► link

How often pays is worked out in `encode/schedule.py`.
"""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.encode.schedule import COPIES, Repeat, choose_repeat, schedule
from aircomp.errors import ConfigError
from aircomp.quantize.fragment import split
from aircomp.schemes.base import NOISE_VAR, Broadcast, Memory, Private, Sent, in_phase, remembered
from aircomp.schemes.digital.link import SNR_RANGE_DB, Digital, Wrapper, estimate_snr_db
from aircomp.schemes.digital.slots import SomeSlots
from aircomp.schemes.outputs import Counts

SNR_DB = "snr_db"
"""What the scheme remembers: the SNR of one channel use, as the base station estimated it last."""


class Repetition(SomeSlots):
    """Every slot is sent several times.

    Args:
        link: Sends and counts a slot.
        repeat: How often, or auto: chosen from round to round by the SNR of the round before.

    Raises:
        ConfigError: If copies of a slot would lie in two coherence blocks, whose gains differ.
    """

    def __init__(self, link: Digital | Wrapper, repeat: Repeat):
        super().__init__(link)
        self.repeat: Repeat = repeat
        self.uses, block = link.codebook.shape[1], link.context.block_uses
        copies = max(COPIES) if repeat == "auto" else repeat
        if block % (copies * self.uses):
            raise ConfigError(
                f"uplink.repeat = {repeat}: up to {copies} copies of {self.uses} channel uses do not fit evenly into a "
                f"coherence block of {block}; choose channel.block_slots so that they do, or repeat = 1"
            )

    def broadcast(
        self,
        base_update: Float[Tensor, " params"],
        memory: Memory,
        *,
        rng: torch.Generator,
        slots: Int[Tensor, " slots"] | None = None,
    ) -> tuple[Broadcast, Private]:
        """Choose how often slots are sent, and which of them."""
        energy = split(base_update, self.length).square().sum(dim=1)
        repeat = choose_repeat(self.repeat, remembered(memory, SNR_DB), energy)
        asked = schedule(energy, repeat)
        announced, private = self.announce(base_update, memory, asked, slots, rng)
        values = dict(announced.values) | {"repeat": torch.tensor(repeat, dtype=torch.int32)}
        if asked is not None:
            values["asked"] = asked.to(torch.int32)
        return Broadcast(base_update.numel(), announced.num_uses * repeat, values), private

    def _read(self, broadcast: Broadcast) -> tuple[int, Int[Tensor, " asked"] | None, Broadcast]:
        """Return how often slots are sent, which, and the broadcast of the link."""
        repeat, asked = int(broadcast.values["repeat"]), broadcast.values.get("asked")
        asked = None if asked is None else asked.long()
        return repeat, asked, self.inner(broadcast, asked, broadcast.num_uses // repeat)

    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Send what the link would, each slot several times."""
        repeat, asked, inner = self._read(broadcast)
        sent = self.link.encode(self.part(messages, asked), inner, _together(csi, repeat), rng=rng)
        signal: Any = sent.signal  # Codewords: pilots are put around copies
        delivered = None if sent.delivered is None else sent.delivered.repeat_interleave(repeat, dim=1)
        sent = replace(sent, signal=replace(signal, repeat=repeat), delivered=delivered)
        return self.whole(sent, broadcast, asked)

    def decode(
        self,
        received: Inexact[Tensor, "antennas sent uses"],
        broadcast: Broadcast,
        private: Private,
        csi: AtReceiver,
    ) -> tuple[Counts, Memory]:
        """Average the copies, whose differences tell the noise, and decode as the link does."""
        repeat, asked, inner = self._read(broadcast)
        csi, noise_var = _together(csi, repeat), None
        if self.context.block_uses:  # gains of many antennas: noise is left to the receiver
            combined = received.unflatten(1, (-1, repeat)).mean(dim=2)
        else:
            combined, noise_var = combine(in_phase(received), repeat)
            combined, csi = combined[None], replace(csi, noise_var=noise_var or csi.noise_var)
        output, memory = self.link.decode(combined, inner, private, csi)
        snr_db = float(output.diagnostics["snr_db_hat"])
        if noise_var is not None:
            memory = {**memory, NOISE_VAR: torch.tensor(noise_var, dtype=torch.float64)}
            snr_db = estimate_snr_db(combined[0], noise_var, repeat)
        elif repeat > 1:
            snr_db = max(snr_db - float(10 * torch.tensor(float(repeat)).log10()), SNR_RANGE_DB[0])
        output = replace(output, diagnostics={**output.diagnostics, "snr_db_hat": snr_db})
        memory = {**memory, SNR_DB: torch.tensor(snr_db, dtype=torch.float64)}
        return self.placed(output, broadcast, asked), memory

    def diagnose(self, sent: Sent, broadcast: Broadcast, output: Counts) -> dict[str, float]:
        """Compare as the link does."""
        repeat, _, inner = self._read(broadcast)
        signal: Any = sent.signal
        delivered = None if sent.delivered is None else sent.delivered[:, ::repeat]
        once = replace(sent, signal=replace(signal, repeat=1), delivered=delivered)
        return {"repeat": float(repeat)} | self.link.diagnose(once, inner, output)


def _together(csi: AtDevices | AtReceiver, repeat: int) -> Any:
    """Return what is known of the channel as the link sees it, whose slots are all of their copies together."""
    return replace(csi, block_uses=csi.block_uses // repeat) if csi.block_uses else csi


def combine(received: Float[Tensor, "copies uses"], repeat: int) -> tuple[Float[Tensor, "asked uses"], float | None]:
    """Average the copies of each slot, which lie behind each other; return the noise variance left in the averages.

    The signal is the same in all copies, so their differences are noise alone and tell its variance without decoding,
    pooled over the round. A single copy tells nothing: None.
    """
    if repeat == 1:
        return received, None
    copies = received.unflatten(0, (-1, repeat))
    combined = copies.mean(dim=1)
    if not torch.isfinite(combined).all():  # their sum is beyond the type's range
        combined = (copies / repeat).sum(dim=1)
    return combined, float(copies.double().var(dim=1).mean()) / repeat
